//! Directives that are accepted without effect, because users do not need the effect.
//!
//! This list is closed. A new row needs a reason, and must not leave the server less durable, less
//! secure or larger than the directive says. A line at start names those that the user sets.

use super::super::directive::Directive;
use super::super::value::Kind;
use super::works::PERMISSION;
use super::{COUNT, INT_MAX, LONG_MAX, SWITCH, TEXT, integer};

const COMPRESSION: &str = "lists are never compressed";
const FREED_BESIDE: &str = "large values are always freed beside the commands";
const SPREAD: &str = "every worker reads and writes for its own clients";
const TITLE: &str = "the process keeps the name it was started with";
const GROWTH: &str = "the index grows a little with every insertion";
const PUNCTUAL: &str = "expired keys are removed as soon as their time has come";
const PACED: &str = "housekeeping follows the number of clients by itself";
const NO_MODULES: &str = "MODULE LOAD fails, whoever may use it";
const ALLOCATOR: &str = "the allocator always has a thread that gives free memory back";
const WARNINGS: &str = "there is no such warning to ignore";
const SANITIZED: &str = "every payload of RESTORE is checked in full";
const CHECKED: &str = "whatever is written is checksummed, and checked when it is read";
const STEADY: &str = "checkpoints go to the disk in pieces";
const SYNCED: &str = "the log is synced while a checkpoint is written, too";
const OWN_FORMAT: &str = "a checkpoint has one form, whatever the log grew from";
const TIMED: &str = "every entry of the log says when it was made";
const COLLECTED: &str = "what a newer checkpoint replaces is deleted once that is verified";
const NO_FINITE_FIELDS: &str = "keys are agreed on elliptic curves only";
const NO_PINNING: &str = "threads are not pinned to processors";
const HUGE_PAGES: &str = "huge pages are asked for only where the server wants them";
const ACCEPTED_IN_TURN: &str = "new connections are accepted between the requests of others";
const PREFETCHED: &str = "the keys of a batch are always prefetched";
const LOADED_BESIDE: &str = "clients are answered while data is loaded, at any size of a step";
const NO_ASSERTIONS: &str = "there is no such aid for debugging";
const NOT_COPIED: &str = "long replies are always sent from where the values lie";
const DEFRAG_STEPS: &str = "records are moved in short steps between commands";

/// Words of older files that no longer mean anything; each takes one argument.
pub(crate) const FORGOTTEN_WORDS: &[&str] = &[
    "list-max-ziplist-entries",
    "list-max-ziplist-value",
    "lua-replicate-commands",
];

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    accepted("tls-dh-params-file", TEXT, "", NO_FINITE_FIELDS),
    accepted("list-compress-depth", COUNT, "0", COMPRESSION),
    accepted("activerehashing", SWITCH, "yes", GROWTH),
    accepted("dynamic-hz", SWITCH, "yes", PACED),
    accepted("active-expire-effort", integer(1, 10), "1", PUNCTUAL),
    accepted("lazyfree-lazy-eviction", SWITCH, "no", FREED_BESIDE),
    accepted("lazyfree-lazy-expire", SWITCH, "no", FREED_BESIDE),
    accepted("lazyfree-lazy-server-del", SWITCH, "no", FREED_BESIDE),
    accepted("lazyfree-lazy-user-del", SWITCH, "no", FREED_BESIDE),
    accepted("lazyfree-lazy-user-flush", SWITCH, "no", FREED_BESIDE),
    accepted("io-threads-do-reads", SWITCH, "no", SPREAD).at_start(),
    accepted("set-proc-title", SWITCH, "yes", TITLE).at_start(),
    accepted("proc-title-template", TEXT, "{title} {listen-addr} {server-mode}", TITLE),
    accepted("enable-module-command", PERMISSION, "no", NO_MODULES).at_start(),
    accepted("rdbchecksum", SWITCH, "yes", CHECKED).at_start(),
    accepted("rdb-save-incremental-fsync", SWITCH, "yes", STEADY),
    accepted("aof-rewrite-incremental-fsync", SWITCH, "yes", STEADY),
    accepted("no-appendfsync-on-rewrite", SWITCH, "no", SYNCED),
    accepted("aof-use-rdb-preamble", SWITCH, "yes", OWN_FORMAT),
    accepted("aof-timestamp-enabled", SWITCH, "no", TIMED),
    accepted("aof-disable-auto-gc", SWITCH, "no", COLLECTED),
    accepted("jemalloc-bg-thread", SWITCH, "yes", ALLOCATOR),
    accepted("sanitize-dump-payload", Kind::Choice(&["no", "yes", "clients"]), "no", SANITIZED),
    accepted("ignore-warnings", TEXT, "", WARNINGS),
    accepted("disable-thp", SWITCH, "yes", HUGE_PAGES).at_start(),
    accepted("server-cpulist", TEXT, "", NO_PINNING).aliases(&["server_cpulist"]).at_start(),
    accepted("bio-cpulist", TEXT, "", NO_PINNING).aliases(&["bio_cpulist"]).at_start(),
    accepted("aof-rewrite-cpulist", TEXT, "", NO_PINNING).aliases(&["aof_rewrite_cpulist"])
        .at_start(),
    accepted("bgsave-cpulist", TEXT, "", NO_PINNING).aliases(&["bgsave_cpulist"]).at_start(),
    accepted("max-new-connections-per-cycle", integer(1, 1000), "10", ACCEPTED_IN_TURN),
    accepted("max-new-tls-connections-per-cycle", integer(1, 1000), "1", ACCEPTED_IN_TURN),
    accepted("prefetch-batch-max-size", integer(0, 128), "16", PREFETCHED),
    accepted("events-per-io-thread", COUNT, "2", SPREAD),
    accepted("loading-process-events-interval-bytes", integer(1024, INT_MAX), "2097152", LOADED_BESIDE)
        .hidden(),
    accepted("enable-debug-assert", SWITCH, "no", NO_ASSERTIONS).at_start().hidden(),
    accepted("debug-context", TEXT, "", NO_ASSERTIONS).hidden(),
    accepted("use-exit-on-panic", SWITCH, "no", NO_ASSERTIONS).hidden(),
    accepted("active-defrag-cycle-min", integer(1, 99), "1", DEFRAG_STEPS),
    accepted("active-defrag-cycle-max", integer(1, 99), "25", DEFRAG_STEPS),
    accepted("active-defrag-threshold-upper", integer(0, 1000), "100", DEFRAG_STEPS),
    accepted("active-defrag-max-scan-fields", integer(1, LONG_MAX), "1000", DEFRAG_STEPS),
    accepted("active-defrag-cycle-us", integer(0, 100_000), "500", DEFRAG_STEPS),
    accepted("io-threads-always-active", SWITCH, "no", SPREAD).hidden(),
    accepted("min-io-threads-avoid-copy-reply", COUNT, "7", NOT_COPIED).hidden(),
    accepted("min-string-size-avoid-copy-reply", COUNT, "16384", NOT_COPIED).hidden(),
    accepted("min-string-size-avoid-copy-reply-threaded", COUNT, "65536", NOT_COPIED).hidden(),
];

const fn accepted(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reason: &'static str,
) -> Directive {
    Directive::new(name, kind, default).without_effect(reason)
}
