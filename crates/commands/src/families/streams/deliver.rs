//! XREADGROUP: entries that no consumer of the group has got yet, or the consumer's own pending
//! entries again.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use store::{Entry, EventClass, Key, Record, Wanted};
use structures::stream::{EntryId, EntryLog, Group as ConsumerGroup, Stream};

use super::ids;
use super::read::{Answer, Reading, admit_range, streams_keys};
use super::shared::{CONSUMER_EVENT, Delivered, Position, consumer_of, no_group, state_consumer};
use super::shared::{write_entry, write_id};
use crate::structure;
use engine::keys::KeyList;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "XREADGROUP",
    arity: Arity::AtLeast(7),
    flags: Flags::WRITE.with(Flags::BLOCKING).with(Flags::MOVABLE_KEYS),
    keys: &[streams_keys(4)],
    group: Group::Stream,
    since: "5.0.0",
    summary: "Gives a consumer entries that its group has not read, or those pending for it.",
    complexity: "O(log(N)+M) for each stream of N entries, M of which are returned.",
    syntax: "GROUP group consumer [COUNT count] [BLOCK milliseconds] [NOACK] \
             STREAMS <key [key ...] id [id ...]>",
    handler: read,
    ..CommandSpec::BLANK
}];

/// Where a consumer begins to read.
#[derive(Clone, Copy)]
enum Start {
    /// `>`: after the last entry that the group got.
    New,
    /// The consumer's pending entries after an id.
    Pending(EntryId),
}

/// The consumer that reads, and its options.
struct Consumer<'a> {
    group: &'a [u8],
    name: &'a [u8],
    count: usize,
    has_noack: bool,
    now_unix_ms: u64,
}

/// The changes of a read in a group.
struct Change {
    is_new_consumer: bool,
    /// Delivered entries with their delivery counts.
    entries: Vec<(EntryId, u64)>,
    has_moved: bool,
    /// The new position of the group.
    position: Position,
}

fn read(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let reading = Reading::parse(context, args, true)?;
    let (group, name) = reading.group.ok_or(CommandError::fixed(
        "ERR Missing GROUP option for XREADGROUP",
    ))?;
    let consumer = Consumer {
        group,
        name,
        count: reading.count.unwrap_or(usize::MAX),
        has_noack: reading.has_noack,
        now_unix_ms: context.now_unix_ms,
    };
    let keys = reading.streams.iter().map(|(key, _)| context.key(key));
    let keys: KeyList<'_> = keys.collect();
    context.locked(&keys, |context| {
        let mut starts = Vec::with_capacity(keys.len());
        for (key, (_, id)) in keys.iter().zip(&reading.streams) {
            let is_there = structure::read(context, key, reply, |stream: Option<&Stream>, _| {
                stream.is_some_and(|stream| stream.group(group).is_some())
            })?;
            if !is_there {
                return Err(no_group(key, group, " in XREADGROUP with GROUP option"));
            }
            starts.push(start(id)?);
            consumer.admit(context, key, starts.last())?;
        }
        if context.turn.is_later() {
            // If a consumer gets nothing, nothing is changed, not even the list of consumers.
            if !has_news(context, reply, &keys, group)? {
                return Err(CommandError::Blocks);
            }
            context.turn.take()?;
        }
        let mut answer = Answer::begin(reply);
        for (key, start) in keys.iter().zip(starts) {
            let served = context
                .store
                .modify(key, |entry| consumer.read(entry, start, &mut answer, reply));
            served?;
        }
        if answer.is_empty()
            && context.may_block
            && let Some(timeout_ms) = reading.timeout_ms
        {
            return context.wait_for(&keys, Wanted::KnownStream, timeout_ms, args);
        }
        answer.end(reply);
        Ok(())
    })
}

/// Whether one of the streams has an entry that the group has not got yet.
fn has_news(
    context: &mut Context<'_>,
    reply: &mut Reply<'_>,
    keys: &[Key<'_>],
    group: &[u8],
) -> Result<bool, CommandError> {
    for key in keys {
        let is_new = structure::read(context, key, reply, |stream: Option<&Stream>, _| {
            let found = stream.and_then(|stream| Some((stream.group(group)?, stream.log())));
            found.is_some_and(|(group, log)| {
                let start = group.last_delivered().next();
                start.is_some_and(|start| log.range(start, EntryId::MAX).next().is_some())
            })
        })?;
        if is_new {
            return Ok(true);
        }
    }
    Ok(false)
}

fn start(argument: &[u8]) -> Result<Start, CommandError> {
    match argument {
        b"$" => Err(CommandError::fixed(
            "ERR The $ ID is meaningless in the context of XREADGROUP: you want to read the \
             history of this consumer by specifying a proper ID, or use the > ID to get new \
             messages. The $ ID would just return an empty result set.",
        )),
        b">" => Ok(Start::New),
        id => Ok(match ids::parse(id, 0)? {
            EntryId::MAX => Start::New,
            id => Start::Pending(id),
        }),
    }
}

impl Consumer<'_> {
    /// Checks whether the consumer's entries of a stream may be written here.
    fn admit(
        &self,
        context: &mut Context<'_>,
        key: &Key<'_>,
        start: Option<&Start>,
    ) -> CommandResult {
        let pace = context.pace;
        if pace.admit(self.count).is_ok() {
            return Ok(());
        }
        context.store.read_structure(key, |record| {
            let stream = record.map(Record::structure::<Stream>).transpose()?;
            let group = stream.as_deref();
            let group = group.and_then(|stream| Some((stream.log(), stream.group(self.group)?)));
            let (Some((log, group)), Some(start)) = (group, start) else {
                return Ok(());
            };
            match start {
                Start::New => {
                    let from = group.last_delivered().next().unwrap_or(EntryId::MAX);
                    admit_range(pace, log, from, EntryId::MAX, self.count)
                }
                Start::Pending(_) => {
                    let number = group.find_consumer(self.name);
                    let consumer = number.and_then(|number| group.consumer(number));
                    pace.admit(consumer.map_or(0, |consumer| consumer.pending_count()))
                }
            }
        })
    }

    /// Writes the consumer's entries of one stream, and states the changes.
    fn read(
        &self,
        entry: &mut Entry<'_>,
        start: Start,
        answer: &mut Answer,
        reply: &mut Reply<'_>,
    ) -> CommandResult {
        let key = entry.key();
        let changed = entry.change(|stream: &mut Stream| {
            stream.change_group(self.group, |group, log| match start {
                Start::New => self.read_new(group, log, reply, |reply| {
                    answer.add(reply, key.bytes());
                }),
                Start::Pending(id) => {
                    answer.add(reply, key.bytes());
                    self.read_pending(group, log, id, reply)
                }
            })
        })?;
        let Some(Some(change)) = changed else {
            return Ok(());
        };
        if change.is_new_consumer {
            entry.event(EventClass::STREAM, CONSUMER_EVENT);
        }
        // Consumers poll: a read that finds nothing is not a change, and causes no event.
        if !change.is_new_consumer && !change.has_moved && change.entries.is_empty() {
            return Ok(());
        }
        entry.effect(|effect| {
            if change.is_new_consumer {
                state_consumer(effect, &key, self.group, self.name);
            }
            let delivered = Delivered {
                key: &key,
                group: self.group,
                consumer: self.name,
                unix_ms: self.now_unix_ms,
                last_delivered: change.position.last_delivered,
            };
            delivered.state(effect, &change.entries);
            if change.has_moved {
                change.position.state(effect, &key, self.group);
            }
        });
        Ok(())
    }

    /// Delivers entries after the last one that the group got. `begin` runs before the first is
    /// written.
    fn read_new(
        &self,
        group: &mut ConsumerGroup,
        log: &EntryLog,
        reply: &mut Reply<'_>,
        begin: impl FnOnce(&mut Reply<'_>),
    ) -> Change {
        let (number, is_new_consumer) = consumer_of(group, self.name, self.now_unix_ms);
        let start = group.last_delivered().next();
        let mut entries = start
            .map(|start| log.range(start, EntryId::MAX).take(self.count))
            .into_iter()
            .flatten()
            .peekable();
        let mut delivered = Vec::new();
        let has_moved = entries.peek().is_some();
        if has_moved {
            begin(reply);
            let slot = reply.begin_array();
            let mut count = 0;
            for entry in entries {
                group.advance(entry.id, log);
                write_entry(reply, entry);
                count += 1;
                if !self.has_noack {
                    group.deliver(entry.id, number, self.now_unix_ms, 1);
                    delivered.push((entry.id, 1));
                }
            }
            reply.end_array(slot, count);
            group.set_active(number, Some(self.now_unix_ms));
        }
        Change {
            is_new_consumer,
            entries: delivered,
            has_moved,
            position: Position::of(group),
        }
    }

    /// Writes the consumer's pending entries after an id again, with null for a deleted entry.
    fn read_pending(
        &self,
        group: &mut ConsumerGroup,
        log: &EntryLog,
        behind: EntryId,
        reply: &mut Reply<'_>,
    ) -> Change {
        let (number, is_new_consumer) = consumer_of(group, self.name, self.now_unix_ms);
        let start = behind.next().unwrap_or(EntryId::MAX);
        let pending = group.pending_of(number, start, EntryId::MAX);
        let pending: Vec<(EntryId, u64)> = pending
            .take(self.count)
            .map(|one| (one.id, one.deliveries))
            .collect();
        let mut delivered = Vec::with_capacity(pending.len());
        reply.array(pending.len());
        for (id, deliveries) in pending {
            let Some(entry) = log.get(id) else {
                reply.array(2);
                write_id(reply, id);
                reply.null_array();
                continue;
            };
            write_entry(reply, entry);
            let deliveries = deliveries.saturating_add(1);
            group.deliver(id, number, self.now_unix_ms, deliveries);
            delivered.push((id, deliveries));
        }
        Change {
            is_new_consumer,
            entries: delivered,
            has_moved: false,
            position: Position::of(group),
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::{START_UNIX_MS, TestServer};

    #[test]
    fn what_is_read_is_pending_until_it_is_acknowledged() {
        let mut server = TestServer::new();
        (1..=3).for_each(|number| drop(server.run(&format!("XADD s {number} a {number}"))));
        server.run("XGROUP CREATE s g 0");
        server.effects();
        server.run("XREADGROUP GROUP g alice COUNT 2 STREAMS s >");
        server.run("XREADGROUP GROUP g bob NOACK STREAMS s >");
        assert_eq!(
            server.run("XREADGROUP GROUP g bob STREAMS s >"),
            Value::NullArray
        );
        server.advance_ms(7);
        server.run("XREADGROUP GROUP g alice STREAMS s 1");
        assert_eq!(server.integer("XACK s g 1 2 3"), 2);
        let claim = |ids: &str, time: u64, count: u64, last: &str| {
            format!(
                "XCLAIM s g alice 0 {ids} TIME {time} RETRYCOUNT {count} FORCE JUSTID LASTID {last}"
            )
        };
        assert_eq!(
            server.effects(),
            [
                "XGROUP CREATECONSUMER s g alice".to_owned(),
                claim("1-0 2-0", START_UNIX_MS, 1, "2-0"),
                "XGROUP SETID s g 2-0 ENTRIESREAD 2".to_owned(),
                "XGROUP CREATECONSUMER s g bob".to_owned(),
                "XGROUP SETID s g 3-0 ENTRIESREAD 3".to_owned(),
                claim("2-0", START_UNIX_MS + 7, 2, "3-0"),
                "XACK s g 1-0 2-0".to_owned(),
            ]
        );
        server.assert_effects_replay();
    }
}
