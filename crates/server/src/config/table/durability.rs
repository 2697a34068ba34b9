//! Directives about data on disk.
//!
//! A feature that this version lacks is a row of kind `fixed`. Once it is implemented, remove
//! `fixed` here, and give `save` its default.

use super::super::directive::Directive;
use super::super::durability::{DurabilityLevel, QuorumReads};
use super::super::value::{Kind, Value};
use super::{BYTES, COUNT, LONG_MAX, SWITCH, TEXT};

/// Spellings of [`DurabilityLevel`].
pub(crate) const DURABILITY_LEVELS: [(&str, DurabilityLevel); 6] = [
    ("none", DurabilityLevel::None),
    ("checkpoint", DurabilityLevel::Checkpoint),
    ("os", DurabilityLevel::Os),
    ("everysec", DurabilityLevel::EverySecond),
    ("always", DurabilityLevel::Always),
    ("quorum", DurabilityLevel::Quorum),
];
/// Spellings of the levels with a log, as `appendfsync` has them.
pub(crate) const LOG_LEVELS: [(&str, DurabilityLevel); 3] = [
    ("everysec", DurabilityLevel::EverySecond),
    ("always", DurabilityLevel::Always),
    ("no", DurabilityLevel::Os),
];
/// Spellings of the formats that a save writes; `true` if an RDB file is included.
pub(crate) const CHECKPOINT_FORMATS: [(&str, bool); 2] = [("iolite", false), ("rdb", true)];
/// What reads at level quorum wait for.
pub(crate) const QUORUM_READS: [(&str, QuorumReads); 2] = [
    ("lease", QuorumReads::Lease),
    ("confirm", QuorumReads::Confirm),
];
/// The save points that `durability checkpoint` sets if there are none: Redis' defaults.
pub(crate) const SAVE_POINTS: [(u64, u64); 3] = [(3600, 1), (300, 100), (60, 10_000)];

/// Words that say how the server shuts down at a signal.
pub(crate) const AT_SHUTDOWN: &[&str] = &["default", "save", "nosave", "now", "force"];
const LEVEL: Kind = Kind::Choice(&super::works::spellings(DURABILITY_LEVELS));
const READS: Kind = Kind::Choice(&super::works::spellings(QUORUM_READS));
const LOG_LEVEL: Kind = Kind::Choice(&super::works::spellings(LOG_LEVELS));
const CHECKPOINT_FORMAT: Kind = Kind::Choice(&super::works::spellings(CHECKPOINT_FORMATS));
/// With less, a checkpoint would wait for itself.
const CHECKPOINT_BUFFER: Kind = Kind::Memory {
    min: 1 << 20,
    max: LONG_MAX,
};

/// Each new file costs a sync.
const LOG_SEGMENT: Kind = Kind::Memory {
    min: 64 << 10,
    max: 1 << 40,
};

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    Directive::new("durability", LEVEL, "checkpoint"),
    Directive::new("quorum-fsync", SWITCH, "no"),
    Directive::new("quorum-reads", READS, "lease"),
    Directive::new("save", Kind::SavePoints, "3600 1 300 100 60 10000"),
    Directive::new("stop-writes-on-bgsave-error", SWITCH, "yes"),
    Directive::new("checkpoint-buffer-limit", CHECKPOINT_BUFFER, "67108864"),
    Directive::new("checkpoint-format", CHECKPOINT_FORMAT, "iolite"),
    Directive::new("log-segment-size", LOG_SEGMENT, "67108864").at_start(),
    Directive::new("dbfilename", TEXT, "dump.rdb").protected().admit(rdb_file_name),
    Directive::new("shutdown-on-sigint", Kind::Choices(AT_SHUTDOWN), "default")
        .admit(shutdown_words),
    Directive::new("shutdown-on-sigterm", Kind::Choices(AT_SHUTDOWN), "default")
        .admit(shutdown_words),
    Directive::new("appendonly", SWITCH, "no"),
    Directive::new("appendfsync", LOG_LEVEL, "everysec"),
    Directive::new("appendfilename", TEXT, "appendonly.aof").at_start().admit(aof_file_name),
    Directive::new("appenddirname", TEXT, "appendonlydir").at_start().admit(aof_directory_name),
    Directive::new("auto-aof-rewrite-percentage", COUNT, "100"),
    Directive::new("auto-aof-rewrite-min-size", BYTES, "67108864"),
    Directive::new("aof-load-truncated", SWITCH, "yes"),
];

fn shutdown_words(value: Value) -> Result<Value, String> {
    let has = |at: &[usize], word: &str| at.iter().any(|&at| AT_SHUTDOWN[at] == word);
    match &value {
        Value::Choices(at) if has(at, "save") && has(at, "nosave") => Err(
            "shutdown-on-sigint and shutdown-on-sigterm can't both be save and nosave".to_owned(),
        ),
        _ => Ok(value),
    }
}

fn rdb_file_name(value: Value) -> Result<Value, String> {
    plain_name(value, false, "dbfilename can't be a path, just a filename")
}

fn aof_file_name(value: Value) -> Result<Value, String> {
    plain_name(
        value,
        true,
        "appendfilename can't be a path, just a filename",
    )
}

fn aof_directory_name(value: Value) -> Result<Value, String> {
    plain_name(value, true, "appenddirname can't be a path, just a dirname")
}

fn plain_name(value: Value, is_needed: bool, complaint: &str) -> Result<Value, String> {
    match &value {
        Value::Text(name) if name.contains(&b'/') => Err(complaint.to_owned()),
        Value::Text(name) if is_needed && name.is_empty() => Err("can't be empty".to_owned()),
        _ => Ok(value),
    }
}
