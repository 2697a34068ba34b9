//! INFO debug: the longest and fullest turns of the workers.

use super::row::{Item, Unit};
use super::row::{counter, gauge, zero};
use super::sample::Sample;
use crate::counters::{Count, Counter, WorkerCounters};

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    zero("eventloop_duration_aof_sum", "iolite_eventloop_duration_log_seconds", Unit::Microseconds, "Always 0: a thread of its own writes the log."),
    counter("eventloop_duration_cron_sum", "iolite_eventloop_upkeep_seconds_total", Unit::Microseconds, "Time that upkeep took.", |s| (s.sum(Count::UpkeepNs) / 1000).into()).times(1e-6),
    gauge("eventloop_duration_max", "iolite_eventloop_longest_seconds", Unit::Microseconds, "The longest turn.", |s| (most(s, |one| &one.busy_ns_max) / 1000).into()).times(1e-6),
    // Measured only while the latency monitor is on, because it costs two system calls per turn.
    gauge("eventloop_cpu_max", "iolite_eventloop_longest_cpu_seconds", Unit::Microseconds, "The most processor time of a turn, of those in which it was measured.", |s| (most(s, |one| &one.cpu_ns_max) / 1000).into()).times(1e-6),
    gauge("eventloop_cmd_per_cycle_max", "iolite_eventloop_most_commands", Unit::Count, "Most requests of one turn.", |s| most(s, |one| &one.requests_max).into()),
];

fn most(sample: &Sample<'_>, of: fn(&WorkerCounters) -> &Counter) -> u64 {
    let all = sample.node.workers().iter();
    let all = all.map(|one| of(&one.counters).get());
    all.max().unwrap_or_default()
}
