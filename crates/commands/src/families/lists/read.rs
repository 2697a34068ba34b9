//! Reading elements.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use structures::List;

use super::{READ_KEY, position, range};
use crate::structure::{self, write_element};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LLEN",
        needs_values: false,
        arity: Arity::Exactly(2),
        flags: Flags::READONLY.with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RO)],
        group: Group::List,
        summary: "Tells how many elements a list has.",
        syntax: "key",
        handler: len,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "LINDEX",
        arity: Arity::Exactly(3),
        flags: Flags::READONLY,
        keys: READ_KEY,
        group: Group::List,
        summary: "Gives the element of a list with a number.",
        complexity: "O(N) where N is the number of blocks between the element and the nearer end.",
        syntax: "key index",
        handler: index,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "LRANGE",
        arity: Arity::Exactly(4),
        flags: Flags::READONLY,
        keys: READ_KEY,
        group: Group::List,
        summary: "Gives the elements of a list between two numbers.",
        complexity: "O(S+N) where S is the number of blocks before the range, and N the number of \
                     elements in it.",
        syntax: "key start stop:integer",
        handler: part,
        ..CommandSpec::BLANK
    },
];

fn len(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    structure::count(context, &key, reply, List::len)
}

fn index(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    structure::read(context, &key, reply, |list: Option<&List>, reply| {
        let Some(list) = list else {
            reply.null();
            return Ok(());
        };
        // The index is parsed only if there is a list.
        let index = Args::new(args.request(), 2).integer()?;
        let element = position(index, list.len()).and_then(|index| list.get(index));
        match element {
            Some(element) => write_element(reply, element),
            None => reply.null(),
        }
        Ok::<_, CommandError>(())
    })?
}

fn part(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (start, end) = (args.integer()?, args.integer()?);
    let pace = context.pace;
    structure::read(context, &key, reply, |list: Option<&List>, reply| {
        let Some(list) = list else {
            reply.array(0);
            return Ok(());
        };
        let range = range(start, end, list.len());
        pace.admit_steps(range.len())?;
        reply.array(range.len());
        list.for_each(range, |element| write_element(reply, element));
        Ok(())
    })?
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn elements_are_read_by_number() {
        let mut server = TestServer::new();
        server.run("RPUSH l 1 two ''");
        assert_eq!(server.text("LINDEX l 0"), "1");
        assert_eq!(server.text("LINDEX l -2"), "two");
        assert_eq!(server.text("LINDEX l 2"), "");
        assert_eq!(server.run("LINDEX l 3"), Value::Null);
        assert_eq!(server.integer("LLEN l"), 3);
        assert_eq!(server.integer("LLEN none"), 0);
        assert_eq!(server.texts("LRANGE l 1 1"), ["two"]);
        assert_eq!(server.texts("LRANGE none 0 -1"), [""; 0]);
    }

    #[test]
    fn a_wrong_number_matters_once_there_is_a_list() {
        let mut server = TestServer::new();
        let complaint = "ERR value is not an integer or out of range";
        assert_eq!(server.run("LINDEX none x"), Value::Null);
        server.run("RPUSH l 1");
        assert_eq!(server.error("LINDEX l x"), complaint);
        assert_eq!(server.error("LRANGE none x 1"), complaint);
    }

    #[test]
    fn long_lists_are_read_across_their_blocks() {
        let mut server = TestServer::new();
        for number in 0..3000 {
            server.run(&format!("RPUSH l element:{number}"));
        }
        assert_eq!(server.text("OBJECT ENCODING l"), "quicklist");
        let middle = server.texts("LRANGE l 1000 1999");
        assert_eq!(middle.len(), 1000);
        assert_eq!(
            (&*middle[0], &*middle[999]),
            ("element:1000", "element:1999")
        );
        assert_eq!(server.text("LINDEX l -1000"), "element:2000");
        server.assert_effects_replay();
    }
}
