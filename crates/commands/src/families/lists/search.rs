//! Search for elements: LPOS.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use structures::{Element, List};

use super::{READ_KEY, SCANNED_PER_STEP};
use crate::structure::{self, write_count};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "LPOS",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::List,
    since: "6.0.6",
    summary: "Gives the numbers of the elements of a list that equal another.",
    complexity: "O(N) where N is the number of elements compared.",
    syntax: "key element [RANK rank:integer] [COUNT num-matches:integer] [MAXLEN len:integer]",
    handler: find,
    ..CommandSpec::BLANK
}];

/// The parsed search.
struct Search<'a> {
    wanted: Element<'a>,
    /// Number of matches to skip.
    passed: u64,
    /// Whether to search from the end.
    backwards: bool,
    /// Maximum number of matches; 0 for all. `None` replies with one number instead of an array.
    count: Option<u64>,
    /// Maximum number of elements to compare; 0 for all.
    compared_max: u64,
}

impl<'a> Search<'a> {
    fn parse(args: &mut Args<'a>) -> Result<Self, CommandError> {
        let mut search = Self {
            wanted: Element::parse(args.bytes()?),
            passed: 0,
            backwards: false,
            count: None,
            compared_max: 0,
        };
        while args.remaining() > 0 {
            if args.remaining() == 1 {
                return Err(CommandError::Syntax);
            }
            if args.take_word("RANK") {
                search.take_rank(args.integer()?)?;
            } else if args.take_word("COUNT") {
                search.count = Some(natural(args, "ERR COUNT can't be negative")?);
            } else if args.take_word("MAXLEN") {
                search.compared_max = natural(args, "ERR MAXLEN can't be negative")?;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(search)
    }

    fn take_rank(&mut self, rank: i64) -> CommandResult {
        if rank == i64::MIN {
            return Err(CommandError::fixed(
                "ERR value is out of range, value must between -9223372036854775807 and \
                 9223372036854775807",
            ));
        }
        self.backwards = rank < 0;
        self.passed = rank.unsigned_abs().checked_sub(1).ok_or(CommandError::fixed(
            "ERR RANK can't be zero: use 1 to start from the first match, 2 from the second ... \
             or use negative to start from the end of the list",
        ))?;
        Ok(())
    }

    /// Calls `found` with the position of every match.
    fn run(&self, list: &List, mut found: impl FnMut(usize)) {
        let matches = |(number, element)| (element == self.wanted).then_some(number);
        let most = |all: u64| match usize::try_from(all) {
            Ok(0) | Err(_) => usize::MAX,
            Ok(all) => all,
        };
        let passed = usize::try_from(self.passed).unwrap_or(usize::MAX);
        let (compared, count) = (most(self.compared_max), most(self.count.unwrap_or(1)));
        if self.backwards {
            let numbers = (0..list.len()).rev();
            let elements = numbers.zip(list.iter().rev()).take(compared);
            elements
                .filter_map(matches)
                .skip(passed)
                .take(count)
                .for_each(found);
        } else {
            let (mut passed, mut left) = (passed, count);
            list.for_each_equal(self.wanted, compared, |number| {
                if passed > 0 {
                    passed -= 1;
                    return true;
                }
                found(number);
                left -= 1;
                left > 0
            });
        }
    }
}

fn find(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let search = Search::parse(args)?;
    let pace = context.pace;
    structure::read(context, &key, reply, |list: Option<&List>, reply| {
        pace.admit_steps(list.map_or(0, List::len) / SCANNED_PER_STEP)?;
        match (list, search.count) {
            (None, None) => reply.null(),
            (None, Some(_)) => reply.array(0),
            (Some(list), None) => {
                let mut first = None;
                search.run(list, |number| first = Some(number));
                match first {
                    Some(number) => write_count(reply, number),
                    None => reply.null(),
                }
            }
            (Some(list), Some(_)) => {
                let slot = reply.begin_array();
                let mut count = 0;
                search.run(list, |number| {
                    write_count(reply, number);
                    count += 1;
                });
                reply.end_array(slot, count);
            }
        }
        Ok(())
    })?
}

/// Takes the next argument as a number that is not negative.
fn natural(args: &mut Args<'_>, complaint: &'static str) -> Result<u64, CommandError> {
    let number = args.integer().ok();
    let number = number.and_then(|number| u64::try_from(number).ok());
    number.ok_or_else(|| CommandError::fixed(complaint))
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn numbers(server: &mut TestServer, line: &str) -> Vec<i64> {
        match server.run(line) {
            Value::Array(items) => items
                .into_iter()
                .map(|item| match item {
                    Value::Integer(number) => number,
                    other => panic!("{line}: {other:?}"),
                })
                .collect(),
            other => panic!("{line}: {other:?}"),
        }
    }

    #[test]
    fn matches_are_counted_from_either_end() {
        let mut server = TestServer::new();
        server.run("RPUSH l a b c 1 2 3 c c");
        assert_eq!(server.integer("LPOS l c"), 2);
        assert_eq!(server.integer("LPOS l 1"), 3);
        assert_eq!(server.integer("LPOS l c RANK 2"), 6);
        assert_eq!(server.integer("LPOS l c RANK -1"), 7);
        assert_eq!(server.integer("LPOS l c rank -3"), 2);
        assert_eq!(server.run("LPOS l c RANK 4"), Value::Null);
        assert_eq!(numbers(&mut server, "LPOS l c COUNT 2"), [2, 6]);
        assert_eq!(numbers(&mut server, "LPOS l c COUNT 0"), [2, 6, 7]);
        assert_eq!(numbers(&mut server, "LPOS l c COUNT 0 RANK -2"), [6, 2]);
        assert_eq!(numbers(&mut server, "LPOS l c COUNT 0 MAXLEN 7"), [2, 6]);
        assert_eq!(
            numbers(&mut server, "LPOS l c COUNT 0 MAXLEN 3 RANK -1"),
            [7, 6]
        );
        assert_eq!(numbers(&mut server, "LPOS l x COUNT 1"), [0; 0]);
        assert_eq!(numbers(&mut server, "LPOS none x COUNT 1"), [0; 0]);
        assert_eq!(server.run("LPOS none x"), Value::Null);
    }

    #[test]
    fn options_are_checked() {
        let mut server = TestServer::new();
        assert!(
            server
                .error("LPOS l c RANK 0")
                .starts_with("ERR RANK can't be zero")
        );
        assert!(
            server
                .error("LPOS l c RANK -9223372036854775808")
                .starts_with("ERR value is out of range")
        );
        assert_eq!(
            server.error("LPOS l c COUNT -1"),
            "ERR COUNT can't be negative"
        );
        assert_eq!(
            server.error("LPOS l c MAXLEN x"),
            "ERR MAXLEN can't be negative"
        );
        assert_eq!(server.error("LPOS l c RANK"), "ERR syntax error");
    }
}
