//! Moves of slots to and from other nodes: MIGRATESLOTS, GETSLOTMIGRATIONS and CANCELSLOTMIGRATIONS
//! as in Valkey 9, and MIGRATION as in Redis 8.4. They are two views of the same moves.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::slot_moves::{MoveAnswer, MoveOrder, MoveStage, SlotMove};
use protocol::Reply;

use super::admit;
use super::orders::{NamedSlots, slot_range, text};

/// Executes an order, on a server that is known to be in cluster mode.
fn carry_out(context: &mut Context<'_>, order: &MoveOrder) -> Result<MoveAnswer, CommandError> {
    if !context.may_block {
        return Err(CommandError::fixed(
            "ERR Slots are not moved inside of a transaction or a script",
        ));
    }
    context.pace.admit_waiting()?;
    context.outside(|server| server.move_slots(order))
}

/// Parses pairs of slots up to the next word or the end.
fn ranges(args: &mut Args<'_>) -> Result<Vec<(u16, u16)>, CommandError> {
    let mut ranges: Vec<(u16, u16)> = Vec::new();
    while args
        .peek()
        .is_some_and(|arg| base::number::parse_i64(arg).is_some())
    {
        ranges.push(slot_range(args)?);
    }
    match ranges.is_empty() {
        true => Err(CommandError::Syntax),
        false => Ok(ranges),
    }
}

/// Refuses slots that are given twice.
fn check_once<'r>(all: impl Iterator<Item = &'r (u16, u16)>) -> CommandResult {
    let mut named = NamedSlots::new();
    let mut slots = all.flat_map(|(first, last)| *first..=*last);
    slots.try_for_each(|slot| named.name(slot))
}

pub(super) fn migrate_slots(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let seen = super::seen(context)?;
    let mut moves = Vec::new();
    while args.remaining() > 0 {
        if !args.take_word("SLOTSRANGE") {
            return Err(CommandError::Syntax);
        }
        let ranges = ranges(args)?;
        if !args.take_word("NODE") {
            return Err(CommandError::Syntax);
        }
        let id = args.bytes()?;
        let Some(node) = seen.node(id) else {
            return Err(super::about("ERR Unknown node name: ", id, ""));
        };
        if node.is_me {
            return Err(CommandError::fixed(
                "ERR Target node can not be this node itself",
            ));
        }
        if node.primary.is_some() {
            return Err(CommandError::fixed("ERR Target node is not a primary"));
        }
        moves.push((ranges, text(id)));
    }
    check_once(moves.iter().flat_map(|(ranges, _)| ranges))?;
    let routes = context.shared.hash_slots.routes();
    let all = moves.iter().flat_map(|(ranges, _)| ranges);
    let mut slots = all.flat_map(|(first, last)| *first..=*last);
    if slots.any(|slot| !routes.serves(slot)) {
        return Err(CommandError::fixed(
            "ERR Slots are not served by this node.",
        ));
    }
    carry_out(context, &MoveOrder::Export(moves))?;
    reply.ok();
    Ok(())
}

pub(super) fn cancel_slot_migrations(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    match carry_out(context, &MoveOrder::CancelExports)? {
        MoveAnswer::Cancelled(0) => Err(CommandError::fixed("ERR No migrations ongoing")),
        _ => {
            reply.ok();
            Ok(())
        }
    }
}

pub(super) fn get_slot_migrations(
    context: &mut Context<'_>,
    _args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    let moves = context.server.slot_moves();
    reply.array(moves.len());
    for one in &moves {
        reply.map(12);
        let operation = if one.is_import { "IMPORT" } else { "EXPORT" };
        texts(
            reply,
            [
                ("name", one.id.as_str()),
                ("operation", operation),
                ("slot_ranges", &shown(one)),
                ("target_node", &one.target),
                ("source_node", &one.source),
            ],
        );
        numbers(
            reply,
            [
                ("create_time", signed(one.created_ms / 1000)),
                ("last_update_time", signed(one.updated_ms / 1000)),
                ("last_ack_time", signed(one.acked_ms / 1000)),
            ],
        );
        texts(
            reply,
            [
                ("state", valkey_state(one)),
                ("message", one.error.as_str()),
            ],
        );
        let left_bytes = signed(one.left_bytes);
        numbers(
            reply,
            [("cow_size", 0), ("remaining_repl_size", left_bytes)],
        );
    }
    Ok(())
}

/// Writes text fields of a map.
fn texts<const N: usize>(reply: &mut Reply<'_>, fields: [(&str, &str); N]) {
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.bulk(value.as_bytes());
    }
}

/// Writes number fields of a map.
fn numbers<const N: usize>(reply: &mut Reply<'_>, fields: [(&str, i64); N]) {
    for (name, value) in fields {
        reply.bulk(name.as_bytes());
        reply.integer(value);
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn shown(one: &SlotMove) -> String {
    let range = |(first, last): &(u16, u16)| format!("{first}-{last}");
    let all: Vec<String> = one.ranges.iter().map(range).collect();
    all.join(" ")
}

fn valkey_state(one: &SlotMove) -> &'static str {
    match one.stage {
        MoveStage::Waiting | MoveStage::Preparing => "connecting",
        MoveStage::Copying if one.is_import => "receiving-snapshot",
        MoveStage::Copying => "snapshotting",
        MoveStage::CatchingUp => "streaming",
        MoveStage::HandingOver => "failover-granted",
        MoveStage::Trimming | MoveStage::Done => "success",
        MoveStage::Failed => "failed",
        MoveStage::Cancelled => "cancelled",
    }
}

pub(super) fn migration(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    if args.take_word("IMPORT") {
        let ranges = ranges(args)?;
        if args.remaining() > 0 {
            return Err(CommandError::Syntax);
        }
        check_once(ranges.iter())?;
        if let MoveAnswer::Begun(ids) = carry_out(context, &MoveOrder::Import(ranges))? {
            reply.bulk(ids.first().map_or(&[][..], |id| id.as_bytes()));
        }
        return Ok(());
    }
    let is_cancel = args.take_word("CANCEL");
    if !is_cancel && !args.take_word("STATUS") {
        return Err(CommandError::Syntax);
    }
    let id = if args.take_word("ID") {
        Some(text(args.bytes()?))
    } else {
        let _all = args.take_word("ALL");
        None
    };
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    if is_cancel {
        if let MoveAnswer::Cancelled(count) = carry_out(context, &MoveOrder::Cancel(id))? {
            reply.integer(i64::try_from(count).unwrap_or(i64::MAX));
        }
        return Ok(());
    }
    let mut moves = context.server.slot_moves();
    moves.retain(|one| id.as_ref().is_none_or(|id| one.id == *id));
    reply.array(moves.len());
    for one in &moves {
        status(one, reply);
    }
    Ok(())
}

fn status(one: &SlotMove, reply: &mut Reply<'_>) {
    reply.map(12);
    let operation = if one.is_import { "import" } else { "migrate" };
    texts(
        reply,
        [
            ("id", one.id.as_str()),
            ("slots", &shown(one)),
            ("source", &one.source),
            ("dest", &one.target),
            ("operation", operation),
            ("state", redis_state(one.stage)),
            ("last_error", &one.error),
        ],
    );
    numbers(
        reply,
        [
            ("retries", i64::from(one.retries)),
            ("create_time", signed(one.created_ms)),
            ("start_time", signed(one.started_ms)),
            ("end_time", signed(one.ended_ms)),
            ("write_pause_ms", signed(one.pause_us / 1000)),
        ],
    );
}

fn redis_state(stage: MoveStage) -> &'static str {
    match stage {
        MoveStage::Waiting => "none",
        MoveStage::Preparing => "connecting",
        MoveStage::Copying => "send-bulk-and-stream",
        MoveStage::CatchingUp => "streaming",
        MoveStage::HandingOver => "handoff",
        MoveStage::Trimming | MoveStage::Done => "completed",
        MoveStage::Failed => "failed",
        MoveStage::Cancelled => "canceled",
    }
}
