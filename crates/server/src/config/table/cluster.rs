//! Directives of cluster mode: those with an effect, and those without.

use super::super::directive::Directive;
use super::super::value::Kind;

const SWITCH: Kind = Kind::Switch;
const TEXT: Kind = Kind::Text;
const INT_MAX: i128 = 2_147_483_647;
const LONG_MAX: i128 = 9_223_372_036_854_775_807;
const PORT_MAX: i128 = 65_535;
const COUNT: Kind = integer(0, INT_MAX);
const LONG_COUNT: Kind = integer(0, LONG_MAX);
const BYTES: Kind = Kind::Memory {
    min: 0,
    max: 18_446_744_073_709_551_615,
};

const fn integer(min: i128, max: i128) -> Kind {
    Kind::Integer { min, max }
}

const NO_FILE: &str = "what a node knows of its cluster is in the data directory";
const NO_BUS: &str = "nodes do not gossip";
const ONE_LEADER: &str = "the control group decides who follows whom";
const AT_ONCE: &str = "what was answered is on disk";
const ONE_ADDRESS: &str = "tells clients and nodes of one address: cluster-announce-ip";
const NO_SAMPLES: &str = "no samples of requests that a cluster would refuse are taken";

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    Directive::new("cluster-enabled", SWITCH, "no").at_start(),
    Directive::new("cluster-port", integer(0, PORT_MAX), "0").at_start(),
    Directive::new("cluster-announce-ip", TEXT, ""),
    Directive::new("cluster-announce-hostname", TEXT, ""),
    Directive::new("cluster-announce-human-nodename", TEXT, ""),
    Directive::new("cluster-announce-port", integer(0, PORT_MAX), "0"),
    Directive::new("cluster-announce-tls-port", integer(0, PORT_MAX), "0"),
    Directive::new("cluster-announce-bus-port", integer(0, PORT_MAX), "0"),
    Directive::new("cluster-preferred-endpoint-type", Kind::Choice(ENDPOINTS), "ip"),
    Directive::new("cluster-require-full-coverage", SWITCH, "yes"),
    Directive::new("cluster-allow-reads-when-down", SWITCH, "no"),
    Directive::new("cluster-allow-pubsubshard-when-down", SWITCH, "yes"),
    Directive::new("cluster-cross-slot", Kind::Choice(&["no", "node"]), "no"),
    Directive::new("forward-port", integer(0, PORT_MAX), "0").at_start(),
    Directive::new("forward-multi", Kind::Choice(&["refuse", "split"]), "refuse"),
    Directive::new("forward-timeout", integer(1, INT_MAX), "5000"),
    Directive::new("cluster-slot-stats-enabled", SWITCH, "no"),
    Directive::new("cluster-migration-pause-max", integer(10, 60_000), "1000"),
    Directive::new("cluster-migration-barrier", COUNT, "1"),
    Directive::new("cluster-allow-replica-migration", SWITCH, "yes"),
    Directive::new("cluster-databases", integer(1, INT_MAX), "1").at_start(),
    accepted("cluster-config-file", TEXT, "nodes.conf", NO_FILE).at_start(),
    accepted("cluster-link-sendbuf-limit", BYTES, "0", NO_BUS),
    Directive::new("cluster-replica-no-failover", SWITCH, "no")
        .aliases(&["cluster-slave-no-failover"]),
    accepted("cluster-replica-validity-factor", COUNT, "10", ONE_LEADER)
        .aliases(&["cluster-slave-validity-factor"]),
    Directive::new("cluster-announce-client-ipv4", TEXT, "").fixed(ONE_ADDRESS),
    Directive::new("cluster-announce-client-ipv6", TEXT, "").fixed(ONE_ADDRESS),
    accepted("cluster-ping-interval", LONG_COUNT, "0", NO_BUS).hidden(),
    accepted("cluster-blacklist-ttl", LONG_COUNT, "60", NO_BUS),
    accepted("cluster-manual-failover-timeout", integer(1, INT_MAX), "5000", ONE_LEADER),
    accepted("cluster-config-save-behavior", Kind::Choice(&["sync", "best-effort"]), "sync", AT_ONCE),
    accepted("cluster-message-gossip-perc", integer(1, 100), "10", NO_BUS).hidden(),
    accepted("cluster-slot-migration-log-max-len", LONG_COUNT, "1000", "the last 1,000 moves are listed"),
    accepted("cluster-compatibility-sample-ratio", integer(0, 100), "0", NO_SAMPLES),
    accepted("slot-migration-max-failover-repl-bytes", integer(-1, LONG_MAX), "0", ONE_LEADER),
    accepted("auto-failover-on-shutdown", SWITCH, "no", ONE_LEADER),
];

const ENDPOINTS: &[&str] = &["ip", "hostname", "unknown-endpoint"];

const fn accepted(
    name: &'static str,
    kind: Kind,
    default: &'static str,
    reason: &'static str,
) -> Directive {
    Directive::new(name, kind, default).without_effect(reason)
}
