//! The target's end of a move: a link from a source, on the thread that accepted it.
//!
//! If the move fails, the copied data is removed. But once the target has answered a durable mark,
//! the source may have proposed that the slots become this node's. Then this node first makes the
//! group confirm that no such proposal can still arrive (`Entry::EndMoves`), and then reads which
//! shard has the slots.

use std::sync::Arc;
use std::time::Duration;

use cluster::entry::SlotRange;
use cluster::{ControlState, Entry, NodeId, moves};
use replication::link::{Message, SlotsStep};

use super::job::{Job, Stage};
use super::staging::{Staging, own_log};
use super::wire::{self, Begin, Mark, Step};
use super::{CLAIM_MS, Migrations, trim};
use crate::group::unique;
use crate::node::Node;
use crate::replication::session::{LinkFault, Reader, Received, Session, Writer};

/// Interval between two checks whether the server stops.
const LOOK: Duration = Duration::from_millis(100);
/// Interval between two checks whether this node serves the slots, ...
const ROUTES_LOOK: Duration = Duration::from_millis(1);
/// ... and their maximum number.
const ROUTES_LOOKS: u32 = 2_000;
/// Interval at which the group is asked again if it does not answer.
const ASK_AGAIN: Duration = Duration::from_millis(100);
/// Milliseconds of silence after which a source counts as lost.
const SILENCE_MS: u64 = 60_000;

/// How a link ended.
enum Ended {
    /// The slots are this node's.
    Moved,
    /// They are not, for this reason, and nothing was handed over.
    Undone(String),
    /// It is not known yet.
    Unknown(String),
}

/// Serves a link that begins with a step of a move.
pub(super) fn serve(migrations: &Migrations, node: &Arc<Node>, session: Session) {
    let Session {
        conduit,
        mut reader,
        mut writer,
        peer,
        ..
    } = session;
    let from = NodeId(peer.node.0);
    let served = first(&mut reader);
    match served {
        Some((Step::Begin, begin)) => {
            if let Err(reason) = take_in(migrations, node, from, &begin, (&mut reader, &mut writer))
            {
                refuse(&mut writer, &reason);
                node.core
                    .log
                    .notice(format_args!("Slots of {from} were not taken in: {reason}"));
            }
        }
        Some((Step::Ask, begin)) => {
            if let Err(reason) =
                super::import::give(migrations, node, from, &begin, (&mut reader, &mut writer))
            {
                refuse(&mut writer, &reason);
            }
        }
        _ => refuse(&mut writer, "a move begins with what is to be moved"),
    }
    conduit.end();
}

fn first(reader: &mut Reader) -> Option<(Step, Begin)> {
    match reader.next() {
        Ok(Received::Message(Message::Slots(step))) => {
            Some((Step::of(step.step)?, Begin::decode(step.bytes)?))
        }
        _ => None,
    }
}

pub(super) fn say(writer: &mut Writer, step: Step, bytes: &[u8]) -> Result<(), LinkFault> {
    let step = step as u8;
    writer.send(&Message::Slots(SlotsStep { step, bytes }), &|| true)
}

fn refuse(writer: &mut Writer, reason: &str) {
    // A source that cannot receive the reason sees the end of the link.
    let _gone = say(writer, Step::Refused, reason.as_bytes());
}

/// Runs the target's end of a move, from the first to the last step.
fn take_in(
    migrations: &Migrations,
    node: &Arc<Node>,
    from: NodeId,
    begin: &Begin,
    (reader, writer): (&mut Reader, &mut Writer),
) -> Result<(), String> {
    let clock = &node.core.clock;
    let claim_until_ms = clock.monotonic_ms() + CLAIM_MS;
    let _claim = migrations.await_claim(node, || match clock.monotonic_ms() < claim_until_ms {
        true => Ok(()),
        false => Err("another move to this node, or the removal of keys, goes on".to_owned()),
    })?;
    check(node, from, begin)?;
    let own = super::own_id(node);
    let now_unix_ms = node.core.clock.now_unix_ms();
    let job = migrations.imported(begin, (from, own), now_unix_ms);
    let change = |stage, error: &str| {
        job.change(node.core.clock.now_unix_ms(), |it| {
            // If this node asked for the slots, the source has already reported how the move ended.
            if !(job.is_asked_for && it.stage.is_over()) {
                it.stage = stage;
                it.error = error.to_owned();
            }
        });
    };
    change(Stage::Copying, "");
    let mut staging = Staging::new(node);
    let ended = hear(node, &job, &mut staging, reader, writer);
    drop(staging);
    let (is_moved, reason) = match ended {
        Ended::Moved => (true, String::new()),
        Ended::Undone(reason) => (false, reason),
        Ended::Unknown(reason) => (settle(node, &begin.ranges), reason),
    };
    node.core.shared.hash_slots.set_taking(false);
    if is_moved {
        change(Stage::Done, "");
        return Ok(());
    }
    let undone = trim::trim(node, &begin.ranges);
    let stage = match job.is_cancelled() {
        true => Stage::Cancelled,
        // The source tries again, or reports that it does not.
        false if job.is_asked_for => Stage::Preparing,
        false => Stage::Failed,
    };
    change(stage, &reason);
    if job.is_asked_for {
        job.change(node.core.clock.now_unix_ms(), |it| it.retries += 1);
    }
    match undone {
        Ok(_) => Err(reason),
        Err(why) => Err(format!("{reason}; what was copied is removed later: {why}")),
    }
}

/// Checks that this node can take the slots in.
fn check(node: &Arc<Node>, from: NodeId, begin: &Begin) -> Result<(), String> {
    own_log(node)?;
    let group = node.control.log().ok_or(super::ALONE)?;
    // Keys that are here will be removed, so the group is asked: this node's own view of the slots
    // may be old.
    let state = group.read_barrier().map_err(|error| error.to_string())?;
    let own = super::own_id(node);
    moves::may_take_in(&state, (from, own), &begin.ranges)?;
    let handle = node.core.store.handle();
    let limit = handle.statistics().memory.limit_bytes;
    let more = begin.bytes.saturating_add(begin.bytes / 5);
    let needed = trim::used_bytes(&handle).saturating_add(more);
    if limit > 0 && needed > limit {
        return Err(format!(
            "the target would need {needed} bytes, and maxmemory there is {limit}"
        ));
    }
    if trim::keys_in(node, &begin.ranges) > 0 {
        trim::trim(node, &begin.ranges)?;
    }
    Ok(())
}

/// Applies what the source sends, until the slots are this node's or the link ends.
fn hear(
    node: &Arc<Node>,
    job: &Job,
    staging: &mut Staging,
    reader: &mut Reader,
    writer: &mut Writer,
) -> Ended {
    let mut is_handed = false;
    let flushes = node.core.shared.hash_slots.flushes();
    let mut background = None;
    let heard = (|| -> Result<(), String> {
        let fault = |fault: LinkFault| format!("the link of the source: {fault}");
        say(writer, Step::Ready, &[]).map_err(fault)?;
        reader.set_time(LOOK).map_err(fault)?;
        let mut heard_ms = node.core.clock.monotonic_ms();
        loop {
            if node.is_stopping() {
                return Err("the server stops".to_owned());
            }
            if job.is_cancelled() && !is_handed {
                return Err("the move was cancelled at the target".to_owned());
            }
            let now_ms = node.core.clock.monotonic_ms();
            let step = match reader.next().map_err(fault)? {
                Received::Message(Message::Slots(step)) => step,
                Received::Message(_) => return Err("the source says something else".to_owned()),
                Received::Nothing if now_ms > heard_ms + SILENCE_MS => {
                    return Err("the source says nothing any more".to_owned());
                }
                Received::Unknown | Received::Nothing => continue,
            };
            heard_ms = now_ms;
            match Step::of(step.step) {
                Some(Step::Data) => staging.feed(step.bytes, background.as_mut())?,
                Some(Step::Mark) => {
                    let marked = wire::number_and_mark(step.bytes);
                    let (number, kind) = marked.ok_or("a mark is cut off")?;
                    background = (kind == Mark::Background).then(|| node.work.background.enter());
                    if kind == Mark::Durable {
                        take(node, flushes)?;
                        staging.make_durable()?;
                        // From here on the slots may become this node's at any time.
                        is_handed = true;
                    }
                    say(writer, Step::Done, &number.to_le_bytes()).map_err(fault)?;
                }
                Some(Step::Moved) => {
                    await_routes(node, &job.ranges);
                    return Ok(());
                }
                _ => return Err("the source says a step out of turn".to_owned()),
            }
        }
    })();
    match heard {
        Ok(()) => {
            let _gone = say(writer, Step::Served, &[]);
            Ended::Moved
        }
        Err(reason) if is_handed => Ended::Unknown(reason),
        Err(reason) => Ended::Undone(reason),
    }
}

/// From here on, emptying a database also empties the copied data. Fails if a database was emptied
/// since the copy began.
fn take(node: &Node, flushes: u64) -> Result<(), String> {
    let slots = &node.core.shared.hash_slots;
    // A database is emptied either before this, or once the owner of the slots is known.
    let is_whole = node.core.store.handle().exclusive(|_| {
        let is_whole = slots.flushes() == flushes;
        slots.set_taking(is_whole);
        is_whole
    });
    match is_whole {
        true => Ok(()),
        false => Err("a database was emptied at the target".to_owned()),
    }
}

/// Waits for a while until this node serves the slots, which are its own.
fn await_routes(node: &Node, ranges: &[SlotRange]) {
    let first = ranges.first().map_or(0, |(first, _)| *first);
    for _ in 0..ROUTES_LOOKS {
        if node.core.shared.hash_slots.routes().serves(first) {
            return;
        }
        std::thread::sleep(ROUTES_LOOK);
    }
}

/// Makes the group confirm that no move to this node's shard that began before can still arrive.
/// Returns the state after that. Waits for the group.
pub(super) fn end_moves(node: &Arc<Node>) -> Option<Arc<ControlState>> {
    let own = super::own_id(node);
    loop {
        let group = node.control.log()?;
        let state = group.watch();
        let shard = state.shard_of(own)?;
        let proposal = unique::proposal(Entry::EndMoves { shard });
        if group.propose(&proposal).is_ok()
            && let Ok(state) = group.read_barrier()
        {
            return Some(state);
        }
        if node.is_stopping() {
            return None;
        }
        std::thread::sleep(ASK_AGAIN);
    }
}

/// Finds out whether slots that may have been handed over are this node's. Waits for the group;
/// until it answers, the copied data stays.
fn settle(node: &Arc<Node>, ranges: &[SlotRange]) -> bool {
    let Some(state) = end_moves(node) else {
        // The next start finds it out.
        return true;
    };
    let is_own = moves::is_own(&state, super::own_id(node), ranges);
    if is_own {
        await_routes(node, ranges);
    }
    is_own
}
