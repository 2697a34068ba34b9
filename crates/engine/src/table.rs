//! Lookup of a command's row by its name.
//!
//! There are two ways. Names of up to seven bytes that are all upper case or all lower case, as
//! client libraries write them, are found by comparing one word (`find_key`). Any name is found by
//! its first eight bytes in upper case and its remaining bytes ([`Table::find`]). Both tables are
//! open-addressed and sparse, so that a known name nearly always takes one probe.

use std::sync::OnceLock;

use access::Catalog;
use protocol::{NameKey, Run};

pub use crate::command_index::CommandIndex;
use crate::engine::series::SeriesLoop;
use crate::spec::{Arity, Begin, CommandSpec, Find, Flags, Group, Handler, KeySpec};

/// All commands that an engine knows, by the names that clients use. The creator of an engine
/// supplies it.
pub struct Table {
    rows: &'static Rows,
    slots: Vec<Slot>,
    mask: usize,
    spellings: Box<[Spelling; SPELLINGS_MAX]>,
    /// The same table by the commands' original names, if clients use others.
    original: Option<&'static Table>,
}

/// The part that does not depend on the names that clients use.
struct Rows {
    commands: Vec<&'static CommandSpec>,
    /// The lookup results for commands, by index.
    found: Vec<Found>,
    /// Rows of commands, followed by rows of subcommands.
    names: Vec<Row>,
    catalog: OnceLock<Catalog>,
}

/// Number of entries for spellings: at least twice as many as there are, so that probes stay short.
const SPELLINGS_MAX: usize = 1024;

/// A command or a subcommand.
struct Row {
    spec: &'static CommandSpec,
    /// Name in lower case, with the container's name before a subcommand's: `client|list`.
    full_name: String,
    /// For a container, the row of its first subcommand; the others follow.
    first_subcommand: CommandIndex,
}

/// The result of a name lookup: the row, and what every request needs of it in compact form.
pub struct Found {
    /// The command's row.
    pub spec: &'static CommandSpec,
    /// Its index.
    pub index: CommandIndex,
    /// Positions of its keys, if they are fixed.
    pub(crate) keys: KeyPlaces,
    /// The handler.
    pub(crate) handler: Handler,
    /// The loop that runs its plain requests.
    pub(crate) series: SeriesLoop,
    /// Minimum number of arguments.
    arguments_min: u16,
    /// Number of further arguments that it may take.
    arguments_more: u16,
    /// Whether it touches nothing but keys and its reply, and is so quick that the next command may
    /// see the same time.
    pub(crate) is_plain: bool,
    /// Whether it is refused when memory is full.
    pub(crate) needs_room: bool,
    /// Number of arguments with which it only stores a value at its key; 0 if there is no such
    /// form.
    pub(crate) sets_with: u16,
    /// Index of the argument that it looks up in the structure at its first key; 0 if there is
    /// none.
    pub(crate) element: u16,
    /// Whether it expects structures at its keys, not strings.
    pub(crate) is_about_structures: bool,
}

/// The arguments that are keys, if they are every `step` from `first` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct KeyPlaces {
    /// Index of the first key; 0 if there is none, or if it has no fixed position.
    pub(crate) first: u16,
    /// The last key, relative to the first; if negative, from the end of the request.
    pub(crate) last: i16,
    /// Distance between two keys.
    pub(crate) step: u16,
}

impl Found {
    fn new(index: CommandIndex, spec: &'static CommandSpec) -> Self {
        let (arguments_min, arguments_more) = match spec.arity {
            Arity::Exactly(count) => (count, 0),
            Arity::AtLeast(count) => (count, u16::MAX),
        };
        let keys = KeyPlaces::of(spec);
        let is_quick = spec.flags.has(Flags::FAST) || spec.group == Group::String;
        let is_plain = spec.group.is_data()
            && keys.first != 0
            && spec.subcommands.is_empty()
            && !spec.flags.has(Flags::BLOCKING)
            && is_quick;
        Self {
            spec,
            index,
            keys,
            handler: spec.handler,
            series: spec.series.unwrap_or(|series| series.each_by_row()),
            arguments_min,
            arguments_more,
            is_plain,
            element: spec.element.unwrap_or(0),
            sets_with: spec.sets_with,
            needs_room: spec.flags.has(Flags::DENYOOM),
            is_about_structures: spec.group.is_about_structures(),
        }
    }

    /// Returns the arguments of a request that are keys, if the request touches only those and they
    /// have fixed positions. For callers that apply commands to parts of the keyspace concurrently.
    /// Returns `None` if the command touches other keys, or if its row does not tell. The same keys
    /// in other databases count as other keys.
    pub fn fixed_keys(&self, arguments: usize) -> Option<impl ExactSizeIterator<Item = usize>> {
        let is_fixed = self.keys.first != 0
            && self.spec.keys.len() == 1
            && self.spec.keys_of.is_none()
            && self.spec.subcommands.is_empty()
            && arguments > usize::from(self.keys.first);
        is_fixed.then(|| self.keys.places(arguments))
    }

    /// Whether it certainly takes this number of arguments, without a look at its row.
    #[inline(always)]
    pub(crate) fn surely_takes(&self, count: usize) -> bool {
        count.wrapping_sub(usize::from(self.arguments_min)) <= usize::from(self.arguments_more)
    }
}

impl KeyPlaces {
    pub(crate) const NONE: Self = Self {
        first: 0,
        last: 0,
        step: 1,
    };

    /// Returns the key positions of a request with this number of arguments, its name included.
    pub(crate) fn places(self, arguments: usize) -> impl ExactSizeIterator<Item = usize> {
        let first = usize::from(self.first);
        let last = match usize::try_from(self.last) {
            Ok(last) => first + last,
            Err(_) => arguments.saturating_sub(usize::from(self.last.unsigned_abs())),
        };
        let end = if first == 0 {
            0
        } else {
            arguments.min(last + 1)
        };
        (first..end).step_by(usize::from(self.step))
    }

    /// Returns its number of keys.
    #[inline]
    pub(crate) fn count(self, arguments: usize) -> usize {
        match self.last {
            0 => usize::from(self.first != 0 && usize::from(self.first) < arguments),
            _ => self.places(arguments).len(),
        }
    }

    fn of(spec: &CommandSpec) -> Self {
        match spec.keys.first() {
            Some(&KeySpec {
                begin: Begin::Index(first),
                find: Find::Range { last, step, .. },
                ..
            }) => Self {
                first,
                last,
                step: step.max(1),
            },
            _ => Self::NONE,
        }
    }
}

#[derive(Clone, Copy)]
struct Slot {
    packed: u64,
    name: &'static str,
    command: Option<&'static Found>,
}

/// A name in a common spelling.
#[derive(Clone, Copy)]
struct Spelling {
    key: NameKey,
    command: Option<&'static Found>,
}

/// Commands with the names that clients use for them. An empty name disables a command.
type Renamed = Vec<(&'static str, &'static str)>;

impl Table {
    /// Returns the table of these commands. It lives as long as the process, so that running
    /// requests can hold its rows by reference: build it once where engines are made.
    #[must_use]
    pub fn build(commands: impl IntoIterator<Item = &'static CommandSpec>) -> &'static Self {
        let commands: Vec<&'static CommandSpec> = commands.into_iter().collect();
        let numbered = commands.iter().enumerate();
        let found = numbered.map(|(index, spec)| Found::new(command_index(index), spec));
        let rows = Rows {
            found: found.collect(),
            names: rows(&commands),
            commands,
            catalog: OnceLock::new(),
        };
        Box::leak(Box::new(Self::named(Box::leak(Box::new(rows)), &[], None)))
    }

    /// Returns a table of the same commands in which clients use other names for some of them
    /// (`rename-command`). An empty name disables a command. Rules about users and the log still
    /// use the original names.
    ///
    /// # Errors
    /// What is wrong with a name.
    pub fn renamed(&'static self, renames: &[(Vec<u8>, Vec<u8>)]) -> Result<&'static Self, String> {
        let mut names = Renamed::new();
        for (old, new) in renames {
            let is_old = |spec: &&&CommandSpec| spec.name.as_bytes().eq_ignore_ascii_case(old);
            let spec = self.commands().iter().find(is_old);
            let spec = spec.ok_or("No such command in rename-command")?;
            let new =
                std::str::from_utf8(new).map_err(|_| "rename-command takes names in UTF-8")?;
            names.retain(|(name, _)| *name != spec.name);
            names.push((spec.name, new.to_ascii_uppercase().leak()));
        }
        let is_taken = |(_, new): &(&str, &str)| {
            let stays = |spec: &CommandSpec| !names.iter().any(|(old, _)| *old == spec.name);
            let mut commands = self.commands().iter();
            let is_others = commands.any(|spec| spec.name == *new && stays(spec));
            let count = names.iter().filter(|(_, other)| other == new).count();
            !new.is_empty() && (is_others || count > 1)
        };
        if names.iter().any(is_taken) {
            return Err("Target command name already exists".to_owned());
        }
        if names.is_empty() {
            return Ok(self.original());
        }
        let named = Self::named(self.rows, &names, Some(self.original()));
        Ok(Box::leak(Box::new(named)))
    }

    fn named(
        rows: &'static Rows,
        renamed: &[(&'static str, &'static str)],
        original: Option<&'static Self>,
    ) -> Self {
        let size = (rows.commands.len() * 4).next_power_of_two();
        let mut slots = vec![
            Slot {
                packed: 0,
                name: "",
                command: None
            };
            size
        ];
        let mask = size - 1;
        for found in &rows.found {
            let Some(name) = name_of(found, renamed) else {
                continue;
            };
            let packed = pack(name.as_bytes());
            let mut at = place(packed, name.len(), mask);
            while slots[at].command.is_some() {
                at = (at + 1) & mask;
            }
            slots[at] = Slot {
                packed,
                name,
                command: Some(found),
            };
        }
        Self {
            rows,
            slots,
            mask,
            spellings: spellings(&rows.found, renamed),
            original,
        }
    }

    /// Returns the table by the commands' original names, which the log uses.
    #[must_use]
    pub fn original(&'static self) -> &'static Self {
        self.original.unwrap_or(self)
    }

    /// Returns what `make` derives from the rows. It is made once.
    pub(crate) fn catalog_of(
        &self,
        make: impl FnOnce(&[&'static CommandSpec]) -> Catalog,
    ) -> &'static Catalog {
        let rows = self.rows;
        rows.catalog.get_or_init(|| make(&rows.commands))
    }

    /// Returns every command, in the order of the families.
    #[must_use]
    pub fn commands(&self) -> &'static [&'static CommandSpec] {
        &self.rows.commands
    }

    /// Returns the number of rows: commands and subcommands.
    #[must_use]
    pub fn rows_count(&self) -> usize {
        self.rows.names.len()
    }

    /// Returns a row.
    #[must_use]
    pub fn spec(&self, index: CommandIndex) -> Option<&'static CommandSpec> {
        let row = self.rows.names.get(usize::from(index))?;
        Some(row.spec)
    }

    /// Returns the lookup result of a command, or `None` for a subcommand.
    pub(crate) fn found(&self, index: CommandIndex) -> Option<&'static Found> {
        self.rows.found.get(usize::from(index))
    }

    /// Returns the name of a row in lower case, with the container's name before a subcommand's:
    /// `client|list`.
    #[must_use]
    pub fn full_name(&self, index: CommandIndex) -> Option<&'static str> {
        let row = self.rows.names.get(usize::from(index))?;
        Some(&row.full_name)
    }

    /// Returns the subcommand of `container` (a row and its index) with this name, ignoring case.
    #[must_use]
    pub fn find_subcommand(
        &self,
        (index, container): (CommandIndex, &'static CommandSpec),
        word: &[u8],
    ) -> Option<(CommandIndex, &'static CommandSpec)> {
        let at = subcommand_at(container, word)?;
        let first = self.rows.names.get(usize::from(index))?.first_subcommand;
        Some((first + command_index(at), &container.subcommands[at]))
    }

    /// Looks up the name of a run.
    #[inline]
    #[must_use]
    pub(crate) fn find_run(&self, run: &Run<'_>) -> Option<&'static Found> {
        self.find_key(run.name).or_else(|| {
            let request = run.requests.clone().next()?;
            self.find(request.name())
        })
    }

    /// Looks up a name that has a key, if it is in a common spelling. Otherwise the caller uses
    /// [`find`](Self::find).
    #[inline(always)]
    #[must_use]
    fn find_key(&self, key: NameKey) -> Option<&'static Found> {
        let mut at = spelling_place(key);
        loop {
            let spelling = &self.spellings[at];
            if spelling.key == key {
                return spelling.command;
            }
            spelling.command?;
            at = (at + 1) % SPELLINGS_MAX;
        }
    }

    /// Looks up a name, ignoring case.
    #[must_use]
    pub fn find(&self, name: &[u8]) -> Option<&'static Found> {
        let packed = pack(name);
        let mut at = place(packed, name.len(), self.mask);
        loop {
            let slot = &self.slots[at];
            let found = slot.command?;
            if slot.packed == packed && is_rest_equal(slot.name.as_bytes(), name) {
                return Some(found);
            }
            at = (at + 1) & self.mask;
        }
    }
}

/// Returns the name that clients use for a command, or `None` if it is disabled.
fn name_of(
    found: &'static Found,
    renamed: &[(&'static str, &'static str)],
) -> Option<&'static str> {
    let own = found.spec.name;
    let new = renamed.iter().find(|(old, _)| *old == own);
    let name = new.map_or(own, |(_, new)| *new);
    (!name.is_empty()).then_some(name)
}

/// Returns every name in upper case and in lower case.
fn spellings(
    commands: &'static [Found],
    renamed: &[(&'static str, &'static str)],
) -> Box<[Spelling; SPELLINGS_MAX]> {
    let empty = Spelling {
        key: NameKey::NONE,
        command: None,
    };
    let mut places = Box::new([empty; SPELLINGS_MAX]);
    let mut used = 0;
    for found in commands {
        let Some(name) = name_of(found, renamed) else {
            continue;
        };
        for name in [name.to_owned(), name.to_lowercase()] {
            let key = NameKey::of(name.as_bytes());
            if key == NameKey::NONE {
                continue;
            }
            let mut at = spelling_place(key);
            while places[at].command.is_some() {
                at = (at + 1) % SPELLINGS_MAX;
            }
            places[at] = Spelling {
                key,
                command: Some(found),
            };
            used += 1;
        }
    }
    assert!(used <= SPELLINGS_MAX / 2, "probes stay short");
    places
}

#[inline(always)]
fn spelling_place(key: NameKey) -> usize {
    let mixed = key.word().wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(mixed >> (u64::BITS - SPELLINGS_MAX.ilog2())).unwrap_or(0)
}

/// Whether a row's name equals the wanted one, given that their packed bytes are equal.
#[inline]
fn is_rest_equal(name: &[u8], wanted: &[u8]) -> bool {
    name.len() == wanted.len()
        && (name.len() <= PACKED_BYTES
            || name[PACKED_BYTES..].eq_ignore_ascii_case(&wanted[PACKED_BYTES..]))
}

/// Returns the subcommand of a container with this name, ignoring case.
#[must_use]
pub fn find_subcommand(
    container: &'static CommandSpec,
    word: &[u8],
) -> Option<&'static CommandSpec> {
    subcommand_at(container, word).map(|at| &container.subcommands[at])
}

fn subcommand_at(container: &CommandSpec, word: &[u8]) -> Option<usize> {
    let is_it = |spec: &CommandSpec| spec.name.as_bytes().eq_ignore_ascii_case(word);
    container.subcommands.iter().position(is_it)
}

fn rows(commands: &[&'static CommandSpec]) -> Vec<Row> {
    let mut rows = Vec::new();
    let mut next = commands.len();
    for spec in commands {
        rows.push(Row {
            spec,
            full_name: spec.name.to_lowercase(),
            first_subcommand: command_index(next),
        });
        next += spec.subcommands.len();
    }
    for spec in commands {
        rows.extend(spec.subcommands.iter().map(|subcommand| Row {
            spec: subcommand,
            full_name: format!("{}|{}", spec.name, subcommand.name).to_lowercase(),
            first_subcommand: 0,
        }));
    }
    rows
}

fn command_index(index: usize) -> CommandIndex {
    CommandIndex::try_from(index).expect("fewer than 65,535 commands and subcommands")
}

/// Number of bytes of a name in its packed form.
const PACKED_BYTES: usize = 8;

/// Returns the first eight bytes in upper case as one integer. For names of the same length, it is
/// equal exactly if those bytes are equal. Shorter names are read as two overlapping pieces, which
/// takes no loop.
#[inline]
fn pack(name: &[u8]) -> u64 {
    let half = |bytes: &[u8; 4]| u64::from(u32::from_le_bytes(*bytes));
    let word = if let Some(bytes) = name.first_chunk() {
        u64::from_le_bytes(*bytes)
    } else if let (Some(first), Some(last)) = (name.first_chunk(), name.last_chunk()) {
        half(first) | half(last) << 32
    } else {
        name.iter()
            .fold(0, |word, byte| word << 8 | u64::from(*byte))
    };
    capitals(word)
}

/// Converts eight bytes at once to upper case. Bytes that are not ASCII letters stay as they are.
#[inline]
const fn capitals(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const HIGH: u64 = 0x80 * ONES;
    let low = word & !HIGH;
    // The sums carry into a byte's high bit but never beyond: from 'a' on, and after 'z'.
    let from_a = low + (0x80 - b'a' as u64) * ONES;
    let after_z = low + (0x7F - b'z' as u64) * ONES;
    let is_small = (from_a ^ after_z) & !word & HIGH;
    word ^ (is_small >> 2)
}

#[inline]
fn place(packed: u64, len: usize, mask: usize) -> usize {
    let mixed = (packed ^ len as u64).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    usize::try_from(mixed >> 40).unwrap_or(0) & mask
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    const fn row(name: &'static str, subcommands: &'static [CommandSpec]) -> CommandSpec {
        CommandSpec {
            name,
            subcommands,
            ..CommandSpec::BLANK
        }
    }

    static ROWS: [CommandSpec; 5] = [
        row("GET", &[]),
        row("CLIENT", &[row("LIST", &[]), row("NO-EVICT", &[])]),
        row("GEORADIUSBYMEMBER", &[]),
        row("ACL", &[row("LIST", &[])]),
        row("SET", &[]),
    ];

    #[test]
    fn every_command_is_found_in_any_case() {
        let table = Table::build(&ROWS);
        for spec in table.commands() {
            for name in [spec.name.to_owned(), spec.name.to_lowercase()] {
                let found = table.find(name.as_bytes()).expect("known");
                assert_eq!(found.spec.name, spec.name);
                let key = NameKey::of(name.as_bytes());
                let by_key = table.find_key(key).map(|found| found.spec.name);
                assert_eq!(by_key, (key != NameKey::NONE).then_some(spec.name));
                let lower = spec.name.to_lowercase();
                assert_eq!(table.full_name(found.index), Some(lower.as_str()));
            }
        }
    }

    #[test]
    fn every_subcommand_has_a_row_of_its_own() {
        let table = Table::build(&ROWS);
        let names = (0..8).map(|index| table.full_name(index));
        let expected = [
            "get",
            "client",
            "georadiusbymember",
            "acl",
            "set",
            "client|list",
            "client|no-evict",
            "acl|list",
        ];
        assert!(names.eq(expected.map(Some)));
        assert_eq!(table.rows_count(), 8);
        let acl = table.find(b"acl").expect("known");
        let (index, row) = table
            .find_subcommand((acl.index, acl.spec), b"list")
            .expect("known");
        assert_eq!((index, row.name), (7, "LIST"));
        assert_eq!(table.spec(7).expect("known").name, "LIST");
    }

    #[test]
    fn a_renamed_command_keeps_its_own_name_for_the_log() {
        let table = Table::build(&ROWS);
        let rename = |old: &str, new: &str| (old.as_bytes().to_vec(), new.as_bytes().to_vec());
        let renamed = table
            .renamed(&[rename("get", "fetch"), rename("set", "")])
            .unwrap();
        let named = |name: &str| renamed.find(name.as_bytes()).map(|found| found.spec.name);
        assert_eq!(
            (named("FETCH"), named("get"), named("SET")),
            (Some("GET"), None, None)
        );
        assert!(renamed.original().find(b"SET").is_some());
        assert_eq!(renamed.full_name(0), Some("get"));
        for wrong in [rename("none", "x"), rename("get", "set")] {
            assert!(table.renamed(&[wrong]).is_err());
        }
    }

    #[test]
    fn every_byte_becomes_a_capital_as_ascii_has_it() {
        for byte in 0..=u8::MAX {
            let word = u64::from_le_bytes([byte, b'a', byte, 0xFF, b'Z', byte, b'{', byte]);
            let capital = byte.to_ascii_uppercase();
            let expected = [capital, b'A', capital, 0xFF, b'Z', capital, b'{', capital];
            assert_eq!(capitals(word).to_le_bytes(), expected);
        }
    }

    #[test]
    fn near_misses_are_not_found() {
        let table = Table::build(&ROWS);
        for name in [
            "",
            "GE",
            "GETX",
            "SETT",
            "GETGETGETGETGET",
            "\0GET",
            "get\0",
        ] {
            assert!(table.find(name.as_bytes()).is_none(), "{name:?}");
            assert!(table.find_key(NameKey::of(name.as_bytes())).is_none());
        }
        assert!(Table::build([]).find(b"GET").is_none());
    }

    #[test]
    fn counts_that_are_surely_taken_are_taken() {
        for arity in [
            Arity::Exactly(1),
            Arity::Exactly(3),
            Arity::AtLeast(1),
            Arity::AtLeast(4),
        ] {
            let spec = Box::leak(Box::new(CommandSpec {
                arity,
                ..CommandSpec::BLANK
            }));
            let found = Found::new(0, spec);
            for count in (0..20).chain([usize::from(u16::MAX), 100_000]) {
                let accepted = arity.accepts(count);
                assert_eq!(found.surely_takes(count), accepted && count < 100_000);
            }
        }
    }
}
