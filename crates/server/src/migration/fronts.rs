//! Clients' orders about moves, and what clients see of moves.

use base::hex;
use cluster::NodeId;
use engine::CommandError;
use engine::cluster::{Ordered, SlotOrder};
use engine::slot_moves::{MoveAnswer, MoveOrder, SlotMove};

use super::job::Job;
use crate::node::Node;

/// Maximum time that GETKEYSINSLOT waits for a slot that moves away.
const KEYS_WAIT_MS: u64 = 5_000;
/// Maximum time that SETSLOT NODE waits for a move, and for news that another node already has.
const MOVE_WAIT_MS: u64 = 30_000;
const VIEW_WAIT_MS: u64 = 2_000;
/// Interval between two checks.
const LOOK: std::time::Duration = std::time::Duration::from_millis(1);

fn refused(reason: &str) -> CommandError {
    CommandError::Text(format!("ERR {reason}").into())
}

/// Carries out an order.
///
/// # Errors
/// The error reply.
pub(crate) fn carry_out(node: &Node, order: &MoveOrder) -> Result<MoveAnswer, CommandError> {
    let migrations = &node.migrations;
    match order {
        MoveOrder::Export(moves) => {
            let mut begun = Vec::new();
            for (ranges, id) in moves {
                let target = id_of(id).ok_or_else(|| refused("a node is named by 40 digits"))?;
                match migrations.begin_export(node, ranges.clone(), target) {
                    Ok(job) => begun.push(job),
                    Err(reason) => {
                        // All moves begin, or none.
                        begun.iter().for_each(|job| migrations.cancel(job));
                        return Err(refused(&reason));
                    }
                }
            }
            let ids = begun.iter().map(|job| hex::text(&job.name));
            Ok(MoveAnswer::Begun(ids.collect()))
        }
        MoveOrder::Import(ranges) => {
            let job = migrations.begin_import(node, ranges.clone());
            let job = job.map_err(|reason| refused(&reason))?;
            Ok(MoveAnswer::Begun(vec![hex::text(&job.name)]))
        }
        MoveOrder::CancelExports => {
            let (exports, _) = migrations.all();
            let going = exports.iter().filter(|job| may_cancel(job));
            Ok(MoveAnswer::Cancelled(cancel(node, going)))
        }
        MoveOrder::Cancel(id) => {
            let (exports, imports) = migrations.all();
            let is_meant = |job: &Job| {
                may_cancel(job) && id.as_ref().is_none_or(|id| hex::text(&job.name) == *id)
            };
            let going = exports.iter().chain(&imports).filter(|job| is_meant(job));
            Ok(MoveAnswer::Cancelled(cancel(node, going)))
        }
        MoveOrder::AwaitLeaving(slot) => {
            migrations.await_leaving(*slot, KEYS_WAIT_MS);
            Ok(MoveAnswer::Done)
        }
    }
}

fn may_cancel(job: &Job) -> bool {
    let stage = job.stage();
    !stage.is_over() && !stage.is_moved()
}

fn cancel<'j>(node: &Node, jobs: impl Iterator<Item = &'j std::sync::Arc<Job>>) -> usize {
    jobs.map(|job| node.migrations.cancel(job)).count()
}

fn id_of(text: &str) -> Option<NodeId> {
    hex::bytes(text).map(NodeId)
}

/// Returns all moves that this node knows.
pub(crate) fn shown(node: &Node) -> Vec<SlotMove> {
    let (exports, imports) = node.migrations.all();
    let exports = exports.iter().map(|job| of_job(job, false));
    exports
        .chain(imports.iter().map(|job| of_job(job, true)))
        .collect()
}

fn of_job(job: &Job, is_import: bool) -> SlotMove {
    let progress = job.progress();
    SlotMove {
        id: hex::text(&job.name),
        is_import,
        ranges: job.ranges.clone(),
        source: job.source.to_string(),
        target: job.target.to_string(),
        stage: progress.stage,
        error: progress.error,
        retries: progress.retries,
        created_ms: progress.created_ms,
        started_ms: progress.started_ms,
        updated_ms: progress.updated_ms,
        acked_ms: progress.acked_ms,
        ended_ms: progress.ended_ms,
        pause_us: progress.pause_us,
        left_bytes: progress.left_bytes,
    }
}

/// The old way to move a slot. MIGRATING at the source begins a move, IMPORTING at the target does
/// nothing, STABLE cancels the move, and NODE waits for its end. Returns `None` if the order is not
/// about a move.
pub(crate) fn set_slot(
    node: &Node,
    slot: u16,
    order: &SlotOrder,
) -> Option<Result<Ordered, CommandError>> {
    let migrations = &node.migrations;
    node.control.log()?;
    match order {
        SlotOrder::Importing(_) => Some(Ok(Ordered::Done)),
        SlotOrder::Migrating(id) => {
            let Some(target) = id_of(id) else {
                return Some(Err(refused("a node is named by 40 digits")));
            };
            // A repeated order has no further effect.
            if migrations
                .leaving(slot)
                .is_some_and(|job| job.target == target)
            {
                return Some(Ok(Ordered::Done));
            }
            let begun = migrations.begin_export(node, vec![(slot, slot)], target);
            Some(begun.map_or_else(|reason| Err(refused(&reason)), |_| Ok(Ordered::Done)))
        }
        SlotOrder::Stable => {
            let job = migrations.leaving(slot).filter(|job| may_cancel(job))?;
            migrations.cancel(&job);
            Some(Ok(Ordered::Done))
        }
        SlotOrder::Node(id) => {
            let is_its = || {
                let state = node.control.log().map(|log| log.watch());
                state.is_some_and(|state| {
                    let shard = id_of(id).and_then(|id| state.shard_of(id));
                    shard.is_some() && state.slots.owner(slot) == shard
                })
            };
            migrations.await_leaving(slot, MOVE_WAIT_MS);
            let owner = node.core.shared.hash_slots.routes().owner(slot);
            // If the slot has no owner, there is nothing to wait for.
            let looks = if owner.is_some() { VIEW_WAIT_MS } else { 1 };
            for _ in 0..looks {
                if is_its() {
                    return Some(Ok(Ordered::Done));
                }
                std::thread::sleep(LOOK);
            }
            None
        }
    }
}
