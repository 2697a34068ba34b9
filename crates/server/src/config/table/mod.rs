//! The table of directives. Each directive is described here, in one row, and nowhere else.
//!
//! Defaults are Redis' if a tool could look at them, unless this server can do better or lacks the
//! feature: `threads` follows the machine.

mod cluster;
mod durability;
mod fixed;
mod group;
mod http;
mod replication;
mod tls;
mod without_effect;
mod works;

use super::directive::Directive;
use super::value::Kind;

pub(super) use durability::{
    AT_SHUTDOWN, CHECKPOINT_FORMATS, DURABILITY_LEVELS, LOG_LEVELS, QUORUM_READS, SAVE_POINTS,
};
pub(super) use fixed::REFUSED_WORDS;
pub(super) use http::METRICS_AUTH;
pub(super) use tls::{CLIENT_CERTIFICATES, USER_FIELDS};
pub(super) use without_effect::FORGOTTEN_WORDS;
pub(super) use works::{
    CHANNEL_DEFAULTS, COMPRESSIONS, EVICTION_POLICIES, FACILITIES, LEVELS, OOM_SCORES, PERMISSIONS,
    PROMOTIONS, SUPERVISORS, TIER_IOS,
};

/// All rows.
pub(super) const SECTIONS: &[&[Directive]] = &[
    works::NETWORK,
    tls::ROWS,
    http::ROWS,
    works::MEMCACHED,
    works::SECURITY,
    works::PROCESS,
    works::MEMORY,
    works::LIMITS,
    works::THRESHOLDS,
    works::OBSERVATION,
    durability::ROWS,
    works::TIER,
    without_effect::ROWS,
    replication::ROWS,
    group::ROWS,
    fixed::OUTGOING,
    cluster::ROWS,
    fixed::SECURITY,
    fixed::MACHINE,
    fixed::OBSERVATION,
];

const SWITCH: Kind = Kind::Switch;
const TEXT: Kind = Kind::Text;
const INT_MAX: i128 = 2_147_483_647;
const INT_MIN: i128 = -2_147_483_648;
const UINT_MAX: i128 = 4_294_967_295;
const LONG_MAX: i128 = 9_223_372_036_854_775_807;
const ULONG_MAX: i128 = 18_446_744_073_709_551_615;
const PORT_MAX: i128 = 65_535;

/// A whole number from 0 up to the largest C `int`.
const COUNT: Kind = integer(0, INT_MAX);
/// A whole number from 0 up to the largest C `long`.
const LONG_COUNT: Kind = integer(0, LONG_MAX);
/// A number of bytes from 0 up to the largest C `long`.
const LONG_BYTES: Kind = Kind::Memory {
    min: 0,
    max: LONG_MAX,
};
/// A number of bytes from 0 up to the largest C `unsigned long`.
const BYTES: Kind = Kind::Memory {
    min: 0,
    max: ULONG_MAX,
};

const fn integer(min: i128, max: i128) -> Kind {
    Kind::Integer { min, max }
}

const fn words(max: usize) -> Kind {
    Kind::Words {
        max,
        excess: "wrong number of arguments",
    }
}
