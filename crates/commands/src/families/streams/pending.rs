//! Entries that wait for an acknowledgement: XACK XPENDING.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use structures::stream::{EntryId, Group as ConsumerGroup, Pending, Stream};

use super::ids;
use super::shared::{CHANGED_KEY, READ_KEY, no_group, state_ids, whole, write_id};
use crate::structure::{self, write_count};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "XACK",
        arity: Arity::AtLeast(4),
        flags: Flags::WRITE.with(Flags::FAST),
        keys: CHANGED_KEY,
        group: Group::Stream,
        since: "5.0.0",
        summary: "Acknowledges entries that were delivered to a consumer.",
        complexity: "O(log(N)) for each id, with N pending entries.",
        syntax: "key group id [id ...]",
        handler: acknowledge,
        ..CommandSpec::BLANK
    },
    CommandSpec {
        name: "XPENDING",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        keys: READ_KEY,
        group: Group::Stream,
        since: "5.0.0",
        history: &[(
            "6.2.0",
            "Added `IDLE`, and ids that are left out themselves.",
        )],
        summary: "Tells what was delivered to consumers and not acknowledged.",
        complexity: "O(log(N)+M) for M entries told, or looked at with IDLE; without a range, O(C) \
                     for C consumers.",
        syntax: "key group [[IDLE min-idle-time:integer] start:string end:string count [consumer]]",
        tips: &["nondeterministic_output"],
        handler: pending,
        ..CommandSpec::BLANK
    },
];

fn acknowledge(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let name = args.bytes()?;
    let wanted = args.rest().map(|argument| ids::parse(argument, 0));
    context.store.modify(&key, |entry| {
        entry.note_look();
        let acknowledged = entry.change(|stream: &mut Stream| {
            stream.change_group(name, |group, _| {
                let mut ids = wanted.collect::<Result<Vec<EntryId>, _>>()?;
                ids.retain(|id| group.acknowledge(*id));
                Ok::<_, CommandError>(ids)
            })
        })?;
        let ids = acknowledged.flatten().transpose()?.unwrap_or_default();
        if !ids.is_empty() {
            entry.effect(|effect| state_ids(effect, &[b"XACK", key.bytes(), name], &ids));
        }
        write_count(reply, ids.len());
        Ok(())
    })
}

/// The requested pending entries.
struct Wanted<'a> {
    idle_ms: i64,
    from: EntryId,
    to: EntryId,
    count: usize,
    consumer: Option<&'a [u8]>,
}

impl<'a> Wanted<'a> {
    /// Parses the arguments after the group. Returns `None` if there are none.
    fn parse(args: &mut Args<'a>) -> Result<Option<Self>, CommandError> {
        match args.remaining() {
            0 => return Ok(None),
            3..=6 => {}
            _ => return Err(CommandError::Syntax),
        }
        let mut idle_ms = 0;
        if args.take_word("IDLE") {
            idle_ms = args.integer()?;
            if args.remaining() < 3 {
                return Err(CommandError::Syntax);
            }
        }
        let (start, end) = (args.bytes()?, args.bytes()?);
        let count = usize::try_from(args.integer()?).unwrap_or(0);
        Ok(Some(Self {
            idle_ms,
            from: ids::range_start(start)?,
            to: ids::range_end(end)?,
            count,
            consumer: args.next(),
        }))
    }

    fn write(&self, group: &ConsumerGroup, now_unix_ms: u64, reply: &mut Reply<'_>) {
        let slot = reply.begin_array();
        let mut count = 0;
        let mut write = |one: Pending<'_>| {
            let idle_ms = idle_ms(&one, now_unix_ms);
            if count == self.count || (self.idle_ms != 0 && idle_ms < self.idle_ms) {
                return count < self.count;
            }
            count += 1;
            reply.array(4);
            write_id(reply, one.id);
            reply.bulk(one.consumer.name());
            reply.integer(idle_ms.max(0));
            reply.integer(whole(one.deliveries));
            count < self.count
        };
        match self.consumer {
            None => {
                group.pending(self.from, self.to).all(&mut write);
            }
            Some(name) => {
                let number = group.find_consumer(name).into_iter();
                number
                    .flat_map(|number| group.pending_of(number, self.from, self.to))
                    .all(&mut write);
            }
        }
        reply.end_array(slot, count);
    }
}

/// Returns the milliseconds since an entry was delivered.
pub(super) fn idle_ms(one: &Pending<'_>, now_unix_ms: u64) -> i64 {
    now_unix_ms
        .wrapping_sub(one.delivered_unix_ms)
        .cast_signed()
}

fn pending(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let name = args.bytes()?;
    let wanted = Wanted::parse(args)?;
    let now_unix_ms = context.now_unix_ms;
    structure::read(context, &key, reply, |stream: Option<&Stream>, reply| {
        let group = stream.and_then(|stream| stream.group(name));
        let group = group.ok_or_else(|| no_group(&key, name, ""))?;
        match &wanted {
            None => write_summary(group, reply),
            Some(wanted) => wanted.write(group, now_unix_ms, reply),
        }
        Ok(())
    })?
}

/// Writes the number of pending entries, their lowest and highest ids, and the number per consumer.
fn write_summary(group: &ConsumerGroup, reply: &mut Reply<'_>) {
    reply.array(4);
    write_count(reply, group.pending_count());
    let mut all = group.pending(EntryId::MIN, EntryId::MAX);
    let Some(first) = all.next() else {
        reply.null();
        reply.null();
        return reply.null_array();
    };
    write_id(reply, first.id);
    write_id(reply, all.next_back().map_or(first.id, |last| last.id));
    let slot = reply.begin_array();
    let mut count = 0;
    for (_, consumer) in group.consumers() {
        if consumer.pending_count() > 0 {
            reply.array(2);
            reply.bulk(consumer.name());
            reply.bulk_integer(whole(consumer.pending_count() as u64));
            count += 1;
        }
    }
    reply.end_array(slot, count);
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn pending_entries_are_told_by_consumer_and_age() {
        let mut server = TestServer::new();
        (1..=3).for_each(|number| drop(server.run(&format!("XADD s {number} a {number}"))));
        server.run("XGROUP CREATE s g 0");
        server.run("XREADGROUP GROUP g alice COUNT 1 STREAMS s >");
        server.advance_ms(50);
        server.run("XREADGROUP GROUP g bob STREAMS s >");
        let mut ask = |line: &str| testkit::transcript::show(&server.run(line));
        assert_eq!(
            ask("XPENDING s g"),
            "[:3, \"1-0\", \"3-0\", [[\"alice\", \"1\"], [\"bob\", \"2\"]]]"
        );
        assert_eq!(
            ask("XPENDING s g IDLE 50 - + 9"),
            "[[\"1-0\", \"alice\", :50, :1]]"
        );
        assert_eq!(
            ask("XPENDING s g (2-0 + 9 bob"),
            "[[\"3-0\", \"bob\", :0, :1]]"
        );
        assert_eq!(ask("XPENDING s g - + 1"), "[[\"1-0\", \"alice\", :50, :1]]");
        assert_eq!(ask("XPENDING s g - + 0"), "[]");
        assert_eq!(ask("XPENDING s g - + 9 carol"), "[]");
        assert!(server.error("XPENDING s h").starts_with("NOGROUP"));
        assert_eq!(server.error("XPENDING s g - +"), "ERR syntax error");
    }
}
