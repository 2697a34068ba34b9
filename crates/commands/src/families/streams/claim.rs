//! Transfer of pending entries to another consumer: XCLAIM XAUTOCLAIM.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use store::{Entry, EventClass, Key};
use structures::stream::{ConsumerNumber, EntryId, EntryLog, Group as ConsumerGroup, Stream};

use super::ids;
use super::pending::idle_ms;
use super::shared::{
    CHANGED_KEY, CONSUMER_EVENT, CUT_KEY, Delivered, Position, consumer_of, no_group,
};
use super::shared::{state_consumer, state_ids, write_entry, write_id};

const CLAIM: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(6),
    flags: Flags::WRITE.with(Flags::FAST),
    group: Group::Stream,
    tips: &["nondeterministic_output"],
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "XCLAIM",
        keys: CHANGED_KEY,
        since: "5.0.0",
        summary: "Makes pending entries those of a consumer.",
        complexity: "O(log(N)) for each id, with N pending entries.",
        syntax: "key group consumer min-idle-time id [id ...] [IDLE ms:integer] \
                 [TIME unix-time-milliseconds] [RETRYCOUNT count] [FORCE] [JUSTID] [LASTID id]",
        handler: claim,
        ..CLAIM
    },
    CommandSpec {
        name: "XAUTOCLAIM",
        keys: CUT_KEY,
        since: "6.2.0",
        history: &[("7.0.0", "Tells which entries were no more.")],
        summary: "Makes pending entries that are old enough those of a consumer.",
        complexity: "O(1) for a small COUNT.",
        syntax: "key group consumer min-idle-time start:string [COUNT count] [JUSTID]",
        handler: claim_next,
        ..CLAIM
    },
];

/// Default number of entries that XAUTOCLAIM claims.
const CLAIMED_ENTRIES: u64 = 100;
/// Number of pending entries that it examines for each of them.
const ATTEMPTS_PER_ENTRY: u64 = 10;
/// Maximum number that can be requested.
const CLAIMED_ENTRIES_MAX: i64 = i64::MAX / 16;

/// How entries are claimed.
struct Terms {
    idle_ms: i64,
    now_unix_ms: u64,
    /// The delivery time that entries get.
    unix_ms: u64,
    /// The delivery count that entries get. If not given, the count stays or increases by one.
    retry_count: Option<u64>,
    /// Whether entries that are not pending are claimed.
    is_forced: bool,
    has_just_ids: bool,
    last_id: Option<EntryId>,
}

/// The changes of a claim in a group.
#[derive(Default)]
struct Claimed {
    is_new_consumer: bool,
    /// Claimed entries with their delivery counts.
    entries: Vec<(EntryId, u64)>,
    /// Entries that are no longer pending.
    gone: Vec<EntryId>,
    is_raised: bool,
}

/// The result for one id.
enum Outcome {
    Claimed,
    Gone,
    Left,
}

impl Terms {
    fn new(idle_ms: i64, now_unix_ms: u64) -> Self {
        Self {
            idle_ms: idle_ms.max(0),
            now_unix_ms,
            unix_ms: now_unix_ms,
            retry_count: None,
            is_forced: false,
            has_just_ids: false,
            last_id: None,
        }
    }

    /// Parses XCLAIM's options.
    fn take_options(&mut self, args: &mut Args<'_>) -> CommandResult {
        let now = super::shared::whole(self.now_unix_ms);
        let number = |args: &mut Args<'_>, complaint| {
            args.integer().map_err(|_| CommandError::fixed(complaint))
        };
        let mut time = -1;
        while let Some(argument) = args.next() {
            let has_more = args.remaining() > 0;
            let is = |word: &[u8]| argument.eq_ignore_ascii_case(word);
            if is(b"FORCE") {
                self.is_forced = true;
            } else if is(b"JUSTID") {
                self.has_just_ids = true;
            } else if has_more && is(b"IDLE") {
                let idle = number(args, "ERR Invalid IDLE option argument for XCLAIM")?;
                time = now.wrapping_sub(idle);
            } else if has_more && is(b"TIME") {
                time = number(args, "ERR Invalid TIME option argument for XCLAIM")?;
            } else if has_more && is(b"RETRYCOUNT") {
                let count = number(args, "ERR Invalid RETRYCOUNT option argument for XCLAIM")?;
                self.retry_count = u64::try_from(count).ok();
            } else if has_more && is(b"LASTID") {
                self.last_id = Some(ids::next(args)?);
            } else {
                let text = [
                    b"ERR Unrecognized XCLAIM option '",
                    super::shared::text_of(argument),
                    b"'",
                ]
                .concat();
                return Err(CommandError::Bytes(text));
            }
        }
        // An impossible time becomes now. A request that states the group's last id repeats an
        // effect, whose time is kept whatever this server's clock shows.
        let latest = match self.last_id {
            None => self.now_unix_ms,
            Some(_) => u64::MAX,
        };
        let time = u64::try_from(time).ok();
        self.unix_ms = time.map_or(self.now_unix_ms, |time| time.min(latest));
        Ok(())
    }

    /// Claims one entry if it exists and has been idle for long enough.
    fn claim(
        &self,
        group: &mut ConsumerGroup,
        log: &EntryLog,
        number: ConsumerNumber,
        id: EntryId,
        claimed: &mut Claimed,
    ) -> Outcome {
        if log.get(id).is_none() {
            if group.acknowledge(id) {
                claimed.gone.push(id);
                return Outcome::Gone;
            }
            return Outcome::Left;
        }
        let deliveries = match group.pending_at(id) {
            None if !self.is_forced => return Outcome::Left,
            None => 1,
            Some(one) if self.idle_ms > 0 && idle_ms(&one, self.now_unix_ms) < self.idle_ms => {
                return Outcome::Left;
            }
            Some(one) => one.deliveries,
        };
        let more = u64::from(!self.has_just_ids);
        let deliveries = self
            .retry_count
            .unwrap_or_else(|| deliveries.saturating_add(more));
        group.deliver(id, number, self.unix_ms, deliveries);
        claimed.entries.push((id, deliveries));
        Outcome::Claimed
    }

    /// Ends a claim: a consumer that got entries counts as active.
    fn end(&self, group: &mut ConsumerGroup, number: ConsumerNumber, claimed: &Claimed) {
        if !claimed.entries.is_empty() {
            group.set_active(number, Some(self.now_unix_ms));
        }
    }

    /// Writes the claimed entries, or their ids.
    fn write(&self, log: &EntryLog, claimed: &Claimed, reply: &mut Reply<'_>) {
        reply.array(claimed.entries.len());
        for (id, _) in &claimed.entries {
            match log.get(*id).filter(|_| !self.has_just_ids) {
                Some(entry) => write_entry(reply, entry),
                None => write_id(reply, *id),
            }
        }
    }
}

impl Claimed {
    /// States the changes.
    fn state(
        &self,
        entry: &mut Entry<'_>,
        (group, consumer): (&[u8], &[u8]),
        unix_ms: u64,
        position: Position,
    ) {
        let key = entry.key();
        if self.is_new_consumer {
            entry.event(EventClass::STREAM, CONSUMER_EVENT);
        }
        entry.effect(|effect| {
            if self.is_new_consumer {
                state_consumer(effect, &key, group, consumer);
            }
            let delivered = Delivered {
                key: &key,
                group,
                consumer,
                unix_ms,
                last_delivered: position.last_delivered,
            };
            delivered.state(effect, &self.entries);
            if self.is_raised && self.entries.is_empty() {
                position.state(effect, &key, group);
            }
            state_ids(effect, &[b"XACK", key.bytes(), group], &self.gone);
        });
    }
}

/// Refuses a key without a group of this name.
fn check_group(entry: &Entry<'_>, key: &Key<'_>, name: &[u8]) -> CommandResult {
    let record = entry.record();
    let stream = record.as_ref().map(|record| record.structure::<Stream>());
    let stream = stream.transpose()?;
    let group = stream.as_deref().and_then(|stream| stream.group(name));
    group.map(|_| ()).ok_or_else(|| no_group(key, name, ""))
}

fn claim(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (name, consumer) = (args.bytes()?, args.bytes()?);
    let now_unix_ms = context.now_unix_ms;
    context.store.modify(&key, |entry| {
        entry.note_look();
        check_group(entry, &key, name)?;
        let idle_ms = args
            .integer()
            .map_err(|_| CommandError::fixed("ERR Invalid min-idle-time argument for XCLAIM"))?;
        let mut wanted = Vec::new();
        while let Some(Ok(id)) = args.peek().map(|argument| ids::parse(argument, 0)) {
            args.next();
            wanted.push(id);
        }
        let mut terms = Terms::new(idle_ms, now_unix_ms);
        terms.take_options(args)?;
        let changed = entry.change(|stream: &mut Stream| {
            stream.change_group(name, |group, log| {
                let mut claimed = Claimed {
                    is_raised: group.raise_last_delivered(terms.last_id.unwrap_or(EntryId::MIN)),
                    ..Claimed::default()
                };
                let (number, is_new) = consumer_of(group, consumer, now_unix_ms);
                claimed.is_new_consumer = is_new;
                for id in wanted {
                    terms.claim(group, log, number, id, &mut claimed);
                }
                terms.end(group, number, &claimed);
                terms.write(log, &claimed, reply);
                (claimed, Position::of(group))
            })
        })?;
        if let Some(Some((claimed, position))) = changed {
            claimed.state(entry, (name, consumer), terms.unix_ms, position);
        }
        Ok(())
    })
}

fn claim_next(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (name, consumer) = (args.bytes()?, args.bytes()?);
    let wanted = Wanted::parse(args, context.now_unix_ms);
    if wanted.is_err() {
        // The key counts as looked up even if the other arguments are wrong: it may be a miss.
        context.store.read(&key, |_| ());
    }
    let Wanted {
        terms,
        start,
        count,
    } = wanted?;
    context.store.modify(&key, |entry| {
        entry.note_look();
        check_group(entry, &key, name)?;
        let changed = entry.change(|stream: &mut Stream| {
            stream.change_group(name, |group, log| {
                let (number, is_new) = consumer_of(group, consumer, terms.now_unix_ms);
                let mut claimed = Claimed {
                    is_new_consumer: is_new,
                    ..Claimed::default()
                };
                let cursor = terms.claim_from(group, log, number, (start, count), &mut claimed);
                terms.end(group, number, &claimed);
                reply.array(3);
                write_id(reply, cursor);
                terms.write(log, &claimed, reply);
                reply.array(claimed.gone.len());
                claimed.gone.iter().for_each(|id| write_id(reply, *id));
                (claimed, Position::of(group))
            })
        })?;
        if let Some(Some((claimed, position))) = changed {
            claimed.state(entry, (name, consumer), terms.unix_ms, position);
        }
        Ok(())
    })
}

/// The parsed arguments of XAUTOCLAIM.
struct Wanted {
    terms: Terms,
    start: EntryId,
    count: u64,
}

impl Wanted {
    fn parse(args: &mut Args<'_>, now_unix_ms: u64) -> Result<Self, CommandError> {
        let idle_ms = args.integer().map_err(|_| {
            CommandError::fixed("ERR Invalid min-idle-time argument for XAUTOCLAIM")
        })?;
        let start = ids::range_start(args.bytes()?)?;
        let mut terms = Terms::new(idle_ms, now_unix_ms);
        let mut count = CLAIMED_ENTRIES;
        while args.remaining() > 0 {
            if args.remaining() > 1 && args.take_word("COUNT") {
                count = claimed_count(args)?;
            } else if args.take_word("JUSTID") {
                terms.has_just_ids = true;
            } else {
                return Err(CommandError::Syntax);
            }
        }
        Ok(Self {
            terms,
            start,
            count,
        })
    }
}

/// Parses the number after COUNT.
fn claimed_count(args: &mut Args<'_>) -> Result<u64, CommandError> {
    let count = args.integer().ok();
    let count = count.filter(|count| (1..=CLAIMED_ENTRIES_MAX).contains(count));
    let count = count.and_then(|count| u64::try_from(count).ok());
    count.ok_or(CommandError::fixed("ERR COUNT must be > 0"))
}

impl Terms {
    /// Claims up to `count` of the pending entries from `start` on. Returns where to continue, or
    /// the lowest id at the end.
    fn claim_from(
        &self,
        group: &mut ConsumerGroup,
        log: &EntryLog,
        number: ConsumerNumber,
        (start, count): (EntryId, u64),
        claimed: &mut Claimed,
    ) -> EntryId {
        let pending_from = |group: &ConsumerGroup, from: Option<EntryId>| {
            group.pending(from?, EntryId::MAX).next().map(|one| one.id)
        };
        let mut from = Some(start);
        let mut left = count;
        for _ in 0..count.saturating_mul(ATTEMPTS_PER_ENTRY) {
            if left == 0 {
                break;
            }
            let Some(id) = pending_from(group, from) else {
                return EntryId::MIN;
            };
            from = id.next();
            match self.claim(group, log, number, id, claimed) {
                Outcome::Claimed | Outcome::Gone => left -= 1,
                Outcome::Left => {}
            }
        }
        pending_from(group, from).unwrap_or(EntryId::MIN)
    }
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::{START_UNIX_MS, TestServer};

    /// Returns a server with five entries, read by alice.
    fn read_by_alice() -> TestServer {
        let mut server = TestServer::new();
        (1..=5).for_each(|number| drop(server.run(&format!("XADD s {number} a {number}"))));
        server.run("XGROUP CREATE s g 0");
        server.run("XREADGROUP GROUP g alice STREAMS s >");
        server
    }

    #[test]
    fn a_claim_states_time_and_count() {
        let mut server = read_by_alice();
        server.run("XDEL s 3");
        server.advance_ms(100);
        server.effects();
        let shown = testkit::transcript::show(&server.run("XCLAIM s g bob 100 1 3 9 JUSTID"));
        assert_eq!(shown, "[\"1-0\"]");
        server.run("XCLAIM s g bob 0 2 IDLE 40 RETRYCOUNT 7");
        let now = START_UNIX_MS + 100;
        assert_eq!(
            server.effects(),
            [
                "XGROUP CREATECONSUMER s g bob".to_owned(),
                format!("XCLAIM s g bob 0 1-0 TIME {now} RETRYCOUNT 1 FORCE JUSTID LASTID 5-0"),
                "XACK s g 3-0".to_owned(),
                format!(
                    "XCLAIM s g bob 0 2-0 TIME {} RETRYCOUNT 7 FORCE JUSTID LASTID 5-0",
                    now - 40
                ),
            ]
        );
        assert_eq!(server.integer("XACK s g 1 2 3 4 5"), 4);
        server.run("XCLAIM s g bob 0 4 LASTID 9");
        assert_eq!(
            server.effects().last().map(String::as_str),
            Some("XGROUP SETID s g 9-0 ENTRIESREAD 5")
        );
        server.assert_effects_replay();
    }

    /// The effect of a claim is replayed with its time even if the clock shows less, and even if
    /// nothing was delivered in order yet.
    #[test]
    fn a_claim_is_repeated_with_its_time_before_anything_was_read() {
        let mut server = TestServer::new();
        server.run("XADD s 1 a 1");
        server.run("XGROUP CREATE s g 0");
        server.run("XCLAIM s g bob 0 1 FORCE");
        let stated = server.effects();
        let stated = stated.last().map(String::as_str).unwrap_or_default();
        assert!(stated.ends_with("LASTID 0-0"), "{stated}");
        server.assert_effects_replay();
    }

    #[test]
    fn old_entries_are_claimed_in_order() {
        let mut server = read_by_alice();
        server.advance_ms(10);
        let mut ask = |line: &str| testkit::transcript::show(&server.run(line));
        assert_eq!(ask("XAUTOCLAIM s g bob 11 0"), "[\"0-0\", [], []]");
        ask("XDEL s 2");
        assert_eq!(
            ask("XAUTOCLAIM s g bob 10 - COUNT 2 JUSTID"),
            "[\"3-0\", [\"1-0\"], [\"2-0\"]]"
        );
        assert_eq!(
            ask("XAUTOCLAIM s g bob 10 (3-0 COUNT 1"),
            "[\"5-0\", [[\"4-0\", [\"a\", \"4\"]]], []]"
        );
        assert_eq!(
            server.error("XAUTOCLAIM s g bob 0 0 COUNT 0"),
            "ERR COUNT must be > 0"
        );
        server.assert_effects_replay();
    }
}
