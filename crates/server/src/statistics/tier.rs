//! INFO tier: values out of memory. Nothing where there is no tier.

use super::row::{Item, Unit, Value};
use super::row::{counter, gauge, words};
use super::sample::Sample;

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    gauge("tier_keys", "iolite_tier_keys", Unit::Count, "Keys whose value is out of memory.", |s| told(s, "tier_keys")),
    gauge("tier_bytes_live", "iolite_tier_live_bytes", Unit::Bytes, "Bytes of their entries.", |s| told(s, "tier_bytes_live")),
    gauge("tier_bytes_used", "iolite_tier_used_bytes", Unit::Bytes, "Bytes of the segments.", |s| told(s, "tier_bytes_used")),
    gauge("tier_segments", "iolite_tier_segments", Unit::Count, "Segments.", |s| told(s, "tier_segments")),
    counter("tier_demoted", "iolite_tier_demoted_total", Unit::Count, "Values that left memory.", |s| told(s, "tier_demoted")),
    counter("tier_reads", "iolite_tier_reads_total", Unit::Count, "Reads of values.", |s| told(s, "tier_reads")),
    gauge("tier_reads_pending", "iolite_tier_reads_pending", Unit::Count, "Values that are being read.", |s| told(s, "tier_reads_pending")),
    counter("tier_coalesced", "iolite_tier_coalesced_total", Unit::Count, "Waits for a value that was being read already.", |s| told(s, "tier_coalesced")),
    counter("tier_blocking_reads", "iolite_tier_blocking_reads_total", Unit::Count, "Reads with the key held.", |s| told(s, "tier_blocking_reads")),
    counter("tier_writes_bytes", "iolite_tier_written_bytes_total", Unit::Bytes, "Bytes written.", |s| told(s, "tier_writes_bytes")),
    counter("tier_compacted_bytes", "iolite_tier_compacted_bytes_total", Unit::Bytes, "Of these, by compaction.", |s| told(s, "tier_compacted_bytes")),
    counter("tier_checksum_errors", "iolite_tier_checksum_errors_total", Unit::Count, "Reads of what was not written there.", |s| told(s, "tier_checksum_errors")),
    counter("tier_io_errors", "iolite_tier_io_errors_total", Unit::Count, "Reads that the system refused.", |s| told(s, "tier_io_errors")),
    words("tier_state", "How it stands: ok, full, idle or failed.", |s| told(s, "tier_state")),
];

fn told(sample: &Sample<'_>, name: &str) -> Value {
    let Some(tier) = sample.node.tier() else {
        return Value::Absent;
    };
    let stubs = sample.store.borrow().stubs();
    let mut rows = tier.status(stubs).into_iter();
    match rows.find(|(row, _)| *row == name) {
        Some((_, text)) => text.parse().map_or(Value::Text(text), Value::Whole),
        None => Value::Absent,
    }
}
