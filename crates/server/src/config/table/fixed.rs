//! Directives of features that this version lacks: only the value that says so is accepted.
//!
//! A row leaves this file when its feature is implemented.

use super::super::directive::Directive;
use super::super::value::Kind;
use super::{COUNT, PORT_MAX, SWITCH, TEXT, UINT_MAX, integer, words};

const ONE_CERTIFICATE: &str = "shows the certificate of tls-cert-file to others, too";
const ONE_LOG_FORMAT: &str = "writes its log in one format";
const NO_WATCHDOG: &str = "has no software watchdog";
const NO_CRASH_LOG: &str = "writes no crash report";
const NO_OUTGOING: &str = "binds its own connections to no address";
const NO_USER_DATA: &str = "logs no user data";
const NO_DEPRECATED_API: &str = "lets no script change what others see";
const NO_RDMA: &str = "does not speak RDMA";

/// Words of Redis' files that are not directives with a value, and the reasons for refusing them.
pub(crate) const REFUSED_WORDS: &[(&str, &str)] = &[
    ("loadmodule", "loads no modules"),
    ("sentinel", "has no sentinel mode"),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const OUTGOING: &[Directive] = &[
    lacking("bind-source-addr", TEXT, "", NO_OUTGOING),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const SECURITY: &[Directive] = &[
    lacking("tls-client-cert-file", TEXT, "", ONE_CERTIFICATE),
    lacking("tls-client-key-file", TEXT, "", ONE_CERTIFICATE),
    lacking("tls-client-key-file-pass", TEXT, "", ONE_CERTIFICATE).secret(),
    lacking("hide-user-data-from-log", SWITCH, "yes", NO_USER_DATA).or(&["no"]),
    lacking("hash-seed", TEXT, "", "draws the secret of its hashes itself").at_start().hidden(),
    lacking("lua-enable-insecure-api", SWITCH, "no", NO_DEPRECATED_API).hidden()
        .aliases(&["lua-enable-deprecated-api"]),
    lacking("rdb-version-check", Kind::Choice(&["strict", "relaxed"]), "strict",
        "loads no file of a version that it does not know"),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const MACHINE: &[Directive] = &[
    lacking("unixsocketgroup", TEXT, "", "sets no group for its socket").at_start(),
    lacking("socket-mark-id", integer(0, UINT_MAX), "0", "does not mark its sockets").at_start(),
    lacking("mptcp", SWITCH, "no", "does not speak MPTCP").at_start(),
    lacking("import-mode", SWITCH, "no", "has no import mode"),
    lacking("rdma-port", integer(0, PORT_MAX), "0", NO_RDMA),
    lacking("rdma-bind", words(16), "", NO_RDMA),
    lacking("rdma-rx-size", integer(65_536, 16_777_216), "1048576", NO_RDMA).at_start(),
    lacking("rdma-completion-vector", integer(-1, 1024), "-1", NO_RDMA).at_start(),
];

#[rustfmt::skip] // One row, one directive.
pub(super) const OBSERVATION: &[Directive] = &[
    lacking("locale-collate", TEXT, "", "compares texts by their bytes").or(&["C", "POSIX"]),
    lacking("log-format", Kind::Choice(&["legacy", "logfmt"]), "legacy", ONE_LOG_FORMAT),
    lacking("log-timestamp-format", Kind::Choice(&["legacy", "iso8601", "milliseconds"]), "legacy",
        ONE_LOG_FORMAT),
    lacking("extended-redis-compatibility", SWITCH, "no", "gives its own name to clients"),
    lacking("gopher-enabled", SWITCH, "no", "does not speak Gopher").hidden(),
    lacking("crash-log-enabled", SWITCH, "yes", NO_CRASH_LOG).or(&["no"]),
    lacking("crash-memcheck-enabled", SWITCH, "yes", NO_CRASH_LOG).or(&["no"]),
    lacking("watchdog-period", COUNT, "0", NO_WATCHDOG),
];

const fn lacking(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    lacks: &'static str,
) -> Directive {
    Directive::new(name, kind, default).fixed(lacks)
}
