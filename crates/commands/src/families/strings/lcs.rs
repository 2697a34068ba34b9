//! LCS: the longest common subsequence of two strings.
//!
//! The table of lengths is the textbook one. Its size is limited by `proto-max-bulk-len` before it
//! is allocated. The strings are copied out first, so that nothing is locked meanwhile.

use std::ops::Range;

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::settings::Settings;
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Handle, Key, Record};

use super::shared::check_string;

pub(super) const LCS: CommandSpec = CommandSpec {
    name: "LCS",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    keys: &[KeySpec::range(
        1,
        1,
        1,
        KeyAccess::RO.with(KeyAccess::ACCESS),
    )],
    group: Group::String,
    since: "7.0.0",
    summary: "Finds the longest common subsequence of two strings.",
    complexity: "O(N*M) where N and M are the lengths of s1 and s2, respectively",
    syntax: "key1 key2 [LEN] [IDX] [MINMATCHLEN min-match-len] [WITHMATCHLEN]",
    handler: lcs,
    ..CommandSpec::BLANK
};

fn lcs(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let keys = [context.key(args.bytes()?), context.key(args.bytes()?)];
    let cells_max = context.shared.settings.string_bytes_max() / size_of::<u32>() as u64;
    let (one, other) = context.store.locked(&keys, |store| {
        let one = Text::read(store, &keys[0], cells_max);
        // The second key is looked up even if the first is not a string.
        let one_bytes = one.as_ref().map_or(0, |one| one.len as u64);
        let other = Text::read(store, &keys[1], cells_max / (one_bytes + 1));
        Ok::<_, CommandError>((one?, other?))
    })?;
    let options = LcsOptions::parse(args)?;
    check_memory(one.len, other.len, &context.shared.settings)?;
    let (one, other) = (one.bytes, other.bytes);
    match options.answer {
        Answer::Length => reply.integer(signed(length(&one, &other))),
        Answer::Text => reply.bulk(&text(&Lengths::new(&one, &other))),
        Answer::Matches => write_matches(&Lengths::new(&one, &other), &options, reply),
    }
    Ok(())
}

/// One of the two strings.
struct Text {
    len: usize,
    /// Empty if it is too long for a table: a refused string is not copied.
    bytes: Vec<u8>,
}

impl Text {
    fn read(store: &mut Handle, key: &Key<'_>, bytes_max: u64) -> Result<Self, CommandError> {
        store.read(key, |record| {
            check_string(record).map_err(|_| {
                CommandError::fixed("ERR The specified keys must contain string values")
            })?;
            let len = record.map_or(0, Record::len);
            let wanted = record.filter(|_| len as u64 <= bytes_max);
            let bytes = wanted.map(Record::to_vec).unwrap_or_default();
            Ok(Self { len, bytes })
        })
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Answer {
    Text,
    Length,
    Matches,
}

struct LcsOptions {
    answer: Answer,
    match_bytes_min: usize,
    with_match_len: bool,
}

impl LcsOptions {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        let (mut len, mut idx) = (false, false);
        let (mut match_bytes_min, mut with_match_len) = (0, false);
        while let Some(word) = args.option_word() {
            match word.as_bytes() {
                b"LEN" => len = true,
                b"IDX" => idx = true,
                b"WITHMATCHLEN" => with_match_len = true,
                b"MINMATCHLEN" => {
                    match_bytes_min = usize::try_from(args.integer()?.max(0)).unwrap_or(usize::MAX);
                }
                _ => return Err(CommandError::Syntax),
            }
        }
        let answer = match (len, idx) {
            (true, true) => {
                return Err(CommandError::fixed(
                    "ERR If you want both the length and indexes, please just use IDX.",
                ));
            }
            (true, false) => Answer::Length,
            (false, true) => Answer::Matches,
            (false, false) => Answer::Text,
        };
        Ok(Self {
            answer,
            match_bytes_min,
            with_match_len,
        })
    }
}

/// Refuses strings whose table would exceed the maximum string length.
fn check_memory(one_bytes: usize, other_bytes: usize, settings: &Settings) -> CommandResult {
    let longest = usize::try_from(u32::MAX - 2).unwrap_or(usize::MAX);
    if one_bytes > longest || other_bytes > longest {
        return Err(CommandError::fixed("ERR String too long for LCS"));
    }
    let cells = (one_bytes as u128 + 1) * (other_bytes as u128 + 1);
    if cells * size_of::<u32>() as u128 > u128::from(settings.string_bytes_max()) {
        return Err(CommandError::fixed(
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len",
        ));
    }
    Ok(())
}

/// `at(i, j)` is the length for the first `i` bytes of one string and the first `j` of the other.
struct Lengths<'a> {
    one: &'a [u8],
    other: &'a [u8],
    cells: Vec<u32>,
}

impl<'a> Lengths<'a> {
    fn new(one: &'a [u8], other: &'a [u8]) -> Self {
        let width = other.len() + 1;
        let mut cells = vec![0; (one.len() + 1) * width];
        for (index, &byte) in one.iter().enumerate() {
            let (above, row) = cells[index * width..][..2 * width].split_at_mut(width);
            fill_row(byte, other, above, row);
        }
        Self { one, other, cells }
    }

    fn at(&self, i: usize, j: usize) -> u32 {
        self.cells[i * (self.other.len() + 1) + j]
    }
}

/// Computes the row of one byte from the row above it.
fn fill_row(byte: u8, other: &[u8], above: &[u32], row: &mut [u32]) {
    let mut left = 0;
    for (j, &candidate) in other.iter().enumerate() {
        left = if candidate == byte {
            above[j] + 1
        } else {
            above[j + 1].max(left)
        };
        row[j + 1] = left;
    }
}

/// Returns only the length, for which two rows are enough.
fn length(one: &[u8], other: &[u8]) -> usize {
    let mut above = vec![0; other.len() + 1];
    let mut row = above.clone();
    for &byte in one {
        fill_row(byte, other, &above, &mut row);
        std::mem::swap(&mut above, &mut row);
    }
    above
        .last()
        .and_then(|length| usize::try_from(*length).ok())
        .unwrap_or(0)
}

/// Calls `visit` with the positions of every pair of bytes in the subsequence, from the end. Of two
/// paths of equal length, it takes the one that Redis takes.
fn walk_back(lengths: &Lengths<'_>, mut visit: impl FnMut(usize, usize)) {
    let (mut i, mut j) = (lengths.one.len(), lengths.other.len());
    while i > 0 && j > 0 {
        if lengths.one[i - 1] == lengths.other[j - 1] {
            (i, j) = (i - 1, j - 1);
            visit(i, j);
        } else if lengths.at(i - 1, j) > lengths.at(i, j - 1) {
            i -= 1;
        } else {
            j -= 1;
        }
    }
}

fn text(lengths: &Lengths<'_>) -> Vec<u8> {
    let mut text = Vec::new();
    walk_back(lengths, |i, _| text.push(lengths.one[i]));
    text.reverse();
    text
}

/// A run of bytes common to both strings, as positions in each.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Run {
    one: Range<usize>,
    other: Range<usize>,
}

/// Returns the runs of the subsequence, from the end, and its length.
fn runs(lengths: &Lengths<'_>) -> (Vec<Run>, usize) {
    let mut runs: Vec<Run> = Vec::new();
    let mut total = 0;
    walk_back(lengths, |i, j| {
        total += 1;
        match runs.last_mut() {
            Some(run) if run.one.start == i + 1 && run.other.start == j + 1 => {
                (run.one.start, run.other.start) = (i, j);
            }
            _ => runs.push(Run {
                one: i..i + 1,
                other: j..j + 1,
            }),
        }
    });
    (runs, total)
}

fn write_matches(lengths: &Lengths<'_>, options: &LcsOptions, reply: &mut Reply<'_>) {
    let (mut runs, total) = runs(lengths);
    runs.retain(|run| run.one.len() >= options.match_bytes_min);
    reply.map(2);
    reply.bulk(b"matches");
    reply.array(runs.len());
    for run in &runs {
        reply.array(if options.with_match_len { 3 } else { 2 });
        for range in [&run.one, &run.other] {
            reply.array(2);
            reply.integer(signed(range.start));
            reply.integer(signed(range.end - 1));
        }
        if options.with_match_len {
            reply.integer(signed(run.one.len()));
        }
    }
    reply.bulk(b"len");
    reply.integer(signed(total));
}

/// Converts a length or position for a reply; a string is never long enough to overflow.
fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;
    use testkit::engine_server::TestServer;

    #[test]
    fn text_length_and_runs_of_the_documented_example() {
        let mut server = TestServer::new();
        server.run("MSET key1 ohmytext key2 mynewtext");
        assert_eq!(server.text("LCS key1 key2"), "mytext");
        assert_eq!(server.integer("LCS key1 key2 LEN"), 6);
        let lengths = Lengths::new(b"ohmytext", b"mynewtext");
        let expected = vec![
            Run {
                one: 4..8,
                other: 5..9,
            },
            Run {
                one: 2..4,
                other: 0..2,
            },
        ];
        assert_eq!(runs(&lengths), (expected, 6));
    }

    #[test]
    fn absent_keys_are_empty_strings() {
        let mut server = TestServer::new();
        assert_eq!(server.text("LCS a b"), "");
        assert_eq!(server.integer("LCS a b LEN"), 0);
    }

    #[test]
    fn options_are_checked() {
        let mut server = TestServer::new();
        assert_eq!(
            server.error("LCS a b LEN IDX"),
            "ERR If you want both the length and indexes, please just use IDX."
        );
        assert_eq!(server.error("LCS a b MINMATCHLEN"), "ERR syntax error");
        assert_eq!(server.error("LCS a b foo"), "ERR syntax error");
    }

    #[test]
    fn the_table_is_bounded_before_it_is_made() {
        let mut server = TestServer::new();
        server.run("MSET a 0123456789 b 0123456789");
        server
            .shared
            .settings
            .bulk_bytes_max
            .store(483, Ordering::Relaxed);
        assert_eq!(
            server.error("LCS a b"),
            "ERR Insufficient memory, transient memory for LCS exceeds proto-max-bulk-len"
        );
        server
            .shared
            .settings
            .bulk_bytes_max
            .store(484, Ordering::Relaxed);
        assert_eq!(server.text("LCS a b"), "0123456789");
    }
}
