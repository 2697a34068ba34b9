//! INFO tier: cold values. Empty without a tier.

use super::row::{Item, Unit, Value};
use super::row::{counter, gauge, words};
use super::sample::Sample;
use crate::tier::Standing;

#[rustfmt::skip] // One row, one value.
pub(super) const ITEMS: &[Item] = &[
    gauge("tier_keys", "iolite_tier_keys", Unit::Count, "Keys whose value is out of memory.", |s| of(s, |t| t.keys.into())),
    gauge("tier_bytes_live", "iolite_tier_live_bytes", Unit::Bytes, "Bytes of their entries.", |s| of(s, |t| t.tier.live_bytes.into())),
    gauge("tier_bytes_used", "iolite_tier_used_bytes", Unit::Bytes, "Bytes of the segments.", |s| of(s, |t| t.tier.used_bytes.into())),
    gauge("tier_bytes_kept", "iolite_tier_kept_bytes", Unit::Bytes, "Of these, bytes of segments that only the checkpoint in force names.", |s| of(s, |t| t.tier.kept_bytes.into())),
    gauge("tier_segments", "iolite_tier_segments", Unit::Count, "Segments.", |s| of(s, |t| t.tier.segments.into())),
    counter("tier_demoted", "iolite_tier_demoted_total", Unit::Count, "Values that left memory.", |s| of(s, |t| t.demoted.into())),
    counter("tier_reads", "iolite_tier_reads_total", Unit::Count, "Reads of values.", |s| of(s, |t| t.reads.into())),
    gauge("tier_reads_pending", "iolite_tier_reads_pending", Unit::Count, "Values that are being read.", |s| of(s, |t| t.reads_pending.into())),
    counter("tier_coalesced", "iolite_tier_coalesced_total", Unit::Count, "Waits for a value that was being read already.", |s| of(s, |t| t.coalesced.into())),
    counter("tier_blocking_reads", "iolite_tier_blocking_reads_total", Unit::Count, "Reads with the key held.", |s| of(s, |t| t.blocking_reads.into())),
    counter("tier_writes_bytes", "iolite_tier_written_bytes_total", Unit::Bytes, "Bytes written.", |s| of(s, |t| t.tier.written_bytes.into())),
    counter("tier_raw_bytes", "iolite_tier_raw_bytes_total", Unit::Bytes, "Bytes of values that were written, before compression.", |s| of(s, |t| t.tier.raw_bytes.into())),
    gauge("tier_dictionaries", "iolite_tier_dictionaries", Unit::Count, "Dictionaries that short values are compressed with.", |s| of(s, |t| t.tier.dictionaries.into())),
    counter("tier_dictionary_raw_bytes", "iolite_tier_dictionary_raw_bytes_total", Unit::Bytes, "Bytes of values that came to be written with a dictionary, before that.", |s| of(s, |t| t.tier.packed_raw_bytes.into())),
    counter("tier_dictionary_bytes", "iolite_tier_dictionary_bytes_total", Unit::Bytes, "Bytes that they took.", |s| of(s, |t| t.tier.packed_bytes.into())),
    gauge("tier_compression_memory", "iolite_tier_compression_memory_bytes", Unit::Bytes, "Memory for compression: dictionaries, samples, training.", |s| of(s, |t| t.memory_bytes.into())),
    counter("tier_compacted_bytes", "iolite_tier_compacted_bytes_total", Unit::Bytes, "Bytes written by compaction.", |s| of(s, |t| t.tier.compacted_bytes.into())),
    counter("tier_checksum_errors", "iolite_tier_checksum_errors_total", Unit::Count, "Reads of what was not written there.", |s| of(s, |t| t.damaged.into())),
    counter("tier_io_errors", "iolite_tier_io_errors_total", Unit::Count, "Reads that the system refused.", |s| of(s, |t| t.refused.into())),
    counter("tier_scrubbed", "iolite_tier_scrubbed_total", Unit::Count, "Entries that were read again in the background.", |s| of(s, |t| t.scrubbed.into())),
    counter("tier_scrub_errors", "iolite_tier_scrub_errors_total", Unit::Count, "Segments in which something was found damaged so.", |s| of(s, |t| t.scrub_errors.into())),
    words("tier_io", "How values are read: io_uring or threads.", |s| of(s, |t| t.io.to_owned().into())),
    words("tier_state", "How it stands: ok, full, idle, failed, draining or drained.", |s| of(s, |t| t.state.to_owned().into())),
];

fn of(sample: &Sample<'_>, read: fn(&Standing) -> Value) -> Value {
    sample.tier().map_or(Value::Absent, read)
}

/// Returns the reply of TIER STATUS, which has the values of INFO.
pub(crate) fn status(sample: &Sample<'_>) -> Vec<(&'static str, String)> {
    let rows = ITEMS.iter().filter_map(|item| match item {
        Item::Row(row) => Some((row.info, (row.read)(sample).text()?)),
        Item::Family(_) => None,
    });
    [("tier_enabled", "1".to_owned())]
        .into_iter()
        .chain(rows)
        .collect()
}
