//! CLUSTER SLOT-STATS: statistics of each hash slot of this node's shard.

use base::hash_slot::{self, HASH_SLOTS};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::slot_usage::Usage;
use protocol::Reply;

use super::keys::count;
use super::{admit, slot_arg};

const SEVERAL: CommandError =
    CommandError::fixed("ERR Multiple filters of the same type are disallowed.");

/// The statistics of a slot.
struct Known {
    slot: u16,
    keys: i64,
    usage: Usage,
}

impl Known {
    fn of(context: &Context<'_>, slot: u16) -> Self {
        Self {
            slot,
            keys: count(context, slot),
            usage: context.shared.hash_slots.usage.of(slot),
        }
    }
}

/// A metric of a slot, with its name for clients.
type Metric = (&'static str, fn(&Known) -> u64);

const KEY_COUNT: Metric = ("key-count", |known| known.keys.unsigned_abs());

/// Metrics that are counted with `cluster-slot-stats-enabled yes`.
const COUNTED: [Metric; 3] = [
    ("cpu-usec", |known| known.usage.cpu_ns / 1000),
    ("network-bytes-in", |known| known.usage.bytes_in),
    ("network-bytes-out", |known| known.usage.bytes_out),
];

pub(super) fn slot_stats(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    admit(context)?;
    let is_counted = context.shared.hash_slots.usage.is_on();
    let counted = COUNTED.iter().filter(|_| is_counted);
    let metrics: Vec<Metric> = [&KEY_COUNT].into_iter().chain(counted).copied().collect();
    let slots = if args.take_word("SLOTSRANGE") {
        in_range(context, args)?
    } else if args.take_word("ORDERBY") {
        in_order(context, args, &metrics)?
    } else {
        return Err(CommandError::Syntax);
    };
    reply.array(slots.len());
    for known in &slots {
        reply.array(2);
        reply.integer(known.slot.into());
        reply.map(metrics.len());
        for (name, number) in &metrics {
            reply.bulk(name.as_bytes());
            reply.integer(i64::try_from(number(known)).unwrap_or(i64::MAX));
        }
    }
    Ok(())
}

fn in_range(context: &Context<'_>, args: &mut Args<'_>) -> Result<Vec<Known>, CommandError> {
    let (first, last) = (slot_arg(args)?, slot_arg(args)?);
    if args.remaining() > 0 {
        return Err(CommandError::Syntax);
    }
    if first > last {
        let text = format!("ERR Start slot number {first} is greater than end slot number {last}");
        return Err(CommandError::Text(text.into()));
    }
    Ok(of_shard(context, first..=last))
}

fn in_order(
    context: &Context<'_>,
    args: &mut Args<'_>,
    metrics: &[Metric],
) -> Result<Vec<Known>, CommandError> {
    let mut metrics = metrics.iter();
    let (_, number) = metrics
        .find(|(name, _)| args.take_word(&name.to_ascii_uppercase()))
        .ok_or(CommandError::fixed(
            "ERR Unrecognized sort metric for ORDERBY.",
        ))?;
    let (mut most, mut rises) = (None, None);
    while args.remaining() > 0 {
        if args.take_word("LIMIT") {
            let told = args.bounded(1, i64::try_from(HASH_SLOTS).unwrap_or(i64::MAX));
            let told = told.map_err(|_| {
                CommandError::fixed(
                    "ERR Limit has to lie in between 1 and 16384 (maximum number of slots).",
                )
            })?;
            let told = usize::try_from(told).unwrap_or(HASH_SLOTS);
            if most.replace(told).is_some() {
                return Err(SEVERAL);
            }
        } else {
            let told = args.take_word("ASC");
            if !told && !args.take_word("DESC") {
                return Err(CommandError::Syntax);
            }
            if rises.replace(told).is_some() {
                return Err(SEVERAL);
            }
        }
    }
    let mut slots = of_shard(context, 0..=hash_slot::LAST);
    match rises {
        Some(true) => slots.sort_by_key(number),
        _ => slots.sort_by_key(|known| std::cmp::Reverse(number(known))),
    }
    slots.truncate(most.unwrap_or(HASH_SLOTS));
    Ok(slots)
}

/// Returns the slots of this node's shard, in order.
fn of_shard(context: &Context<'_>, slots: std::ops::RangeInclusive<u16>) -> Vec<Known> {
    let routes = context.shared.hash_slots.routes();
    let slots = slots.filter(|slot| routes.is_of_shard(*slot));
    slots.map(|slot| Known::of(context, slot)).collect()
}
