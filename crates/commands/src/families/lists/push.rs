//! Additions at the ends.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use store::EventClass;
use structures::{End, List};

use super::{GROWN_KEY, push_event};
use crate::structure::{element, write_count};

const PUSH: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(3),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: GROWN_KEY,
    group: Group::List,
    complexity: "O(1) for each element added.",
    syntax: "key element [element ...]",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "LPUSH",
        history: &[("2.4.0", "Takes several elements.")],
        summary: "Adds elements before the first of a list, which is made if there is none.",
        handler: |context, args, reply| push(context, args, reply, End::Front, Absent::IsMade),
        ..PUSH
    },
    CommandSpec {
        name: "RPUSH",
        history: &[("2.4.0", "Takes several elements.")],
        summary: "Adds elements behind the last of a list, which is made if there is none.",
        handler: |context, args, reply| push(context, args, reply, End::Back, Absent::IsMade),
        ..PUSH
    },
    CommandSpec {
        name: "LPUSHX",
        since: "2.2.0",
        history: &[("4.0.0", "Takes several elements.")],
        summary: "Adds elements before the first of a list, if there is such a list.",
        handler: |context, args, reply| push(context, args, reply, End::Front, Absent::Stays),
        ..PUSH
    },
    CommandSpec {
        name: "RPUSHX",
        since: "2.2.0",
        history: &[("4.0.0", "Takes several elements.")],
        summary: "Adds elements behind the last of a list, if there is such a list.",
        handler: |context, args, reply| push(context, args, reply, End::Back, Absent::Stays),
        ..PUSH
    },
];

/// What happens if the key does not exist.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Absent {
    IsMade,
    Stays,
}

#[inline]
fn push(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    end: End,
    absent: Absent,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let request = args.request();
    let elements = || request.iter().skip(2);
    for argument in elements() {
        element(argument)?;
    }
    let limit = context.shared.settings.thresholds.list_blocks();
    let added = |list: &mut List| {
        if request.len() > 3 {
            let bytes = elements().map(<[u8]>::len).sum();
            list.expect(bytes, request.len() - 2, limit);
        }
        for argument in elements() {
            list.push(end, structures::Element::parse(argument), limit);
        }
        list.len()
    };
    let len = context.store.modify(&key, |entry| {
        let len = match absent {
            Absent::IsMade => Some(entry.change_or_create(added)?),
            Absent::Stays => entry.change(added)?,
        };
        if len.is_some() {
            entry.effect(|effect| {
                let name: &[u8] = match end {
                    End::Front => b"LPUSH",
                    End::Back => b"RPUSH",
                };
                let parts: Vec<&[u8]> = [name, key.bytes()].into_iter().chain(elements()).collect();
                effect.command(&parts);
            });
            entry.event(EventClass::LIST, push_event(end));
        }
        Ok::<_, CommandError>(len)
    })?;
    write_count(reply, len.unwrap_or(0));
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use engine::thresholds::Threshold;
    use testkit::engine_server::TestServer;

    #[test]
    fn elements_arrive_in_the_order_they_were_given() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("RPUSH l 1 2 3"), 3);
        assert_eq!(server.integer("LPUSH l a b"), 5);
        assert_eq!(server.texts("LRANGE l 0 -1"), ["b", "a", "1", "2", "3"]);
        assert_eq!(server.integer("RPUSHX l 4"), 6);
        assert_eq!(server.integer("LPUSHX none 4"), 0);
        assert_eq!(
            server.effects(),
            ["RPUSH l 1 2 3", "LPUSH l a b", "RPUSH l 4"]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn a_string_is_no_list() {
        let mut server = TestServer::new();
        server.run("SET k v");
        assert!(server.error("LPUSH k a").starts_with("WRONGTYPE"));
        assert!(server.error("RPUSHX k a").starts_with("WRONGTYPE"));
        server.run("LPUSH l a");
        for line in [
            "GET l",
            "APPEND l x",
            "INCR l",
            "SETRANGE l 0 x",
            "SETBIT l 0 1",
        ] {
            assert!(server.error(line).starts_with("WRONGTYPE"), "{line}");
        }
        server.run("SET l v");
        assert_eq!(server.text("GET l"), "v");
    }

    #[test]
    fn the_encoding_follows_the_configured_size() {
        let mut server = TestServer::new();
        let thresholds = &server.shared.settings.thresholds;
        thresholds.set(Threshold::ListMaxListpackSize, 3);
        server.run("RPUSH l 1 2 3");
        assert_eq!(server.text("OBJECT ENCODING l"), "listpack");
        server.run("RPUSH l 4");
        assert_eq!(server.text("OBJECT ENCODING l"), "quicklist");
        server.run("LPOP l 3");
        assert_eq!(server.text("OBJECT ENCODING l"), "listpack");
        assert_eq!(
            server
                .shared
                .settings
                .bulk_bytes_max
                .load(Ordering::Relaxed),
            512 << 20
        );
    }
}
