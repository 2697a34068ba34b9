//! Directives of the control group.

use super::super::directive::Directive;
use super::super::group::{Shares, place_of};
use super::super::value::{Kind, Value};

/// Less leaves no time for heartbeats.
const TIMEOUT_MS_MIN: i128 = 150;
/// An hour: no failover takes longer.
const TIMEOUT_MS_MAX: i128 = 3_600_000;
const TIMEOUT: Kind = Kind::Integer {
    min: TIMEOUT_MS_MIN,
    max: TIMEOUT_MS_MAX,
};

/// Time that a shard waits, after a restart of all its members, for members that are not back.
const RECOVERY: Kind = Kind::Integer {
    min: 0,
    max: TIMEOUT_MS_MAX,
};

/// Time that a lost voter may be away before it is replaced; a day at most.
const REPLACEMENT: Kind = Kind::Integer {
    min: 1_000,
    max: 86_400_000,
};

const PORT: Kind = Kind::Integer {
    min: 0,
    max: 65_535,
};

/// 0 means the newest level that this server knows.
const LEVEL: Kind = Kind::Integer {
    min: 0,
    max: cluster::state::FEATURE_LEVEL as i128,
};

const SEEDS: Kind = Kind::Words {
    max: 64,
    excess: "at most 64 nodes are named",
};

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    Directive::new("cluster-group", Kind::Switch, "no").at_start(),
    Directive::new("join", Kind::Text, "").admit(node_to_join).at_start(),
    Directive::new("cluster-seeds", SEEDS, "").admit(nodes_to_ask).at_start(),
    Directive::new("witness", Kind::Switch, "no").at_start(),
    Directive::new("witness-log", Kind::Switch, "no").at_start(),
    Directive::new("cluster-node-timeout", TIMEOUT, "1500"),
    Directive::new("cluster-recovery-wait", RECOVERY, "30000").at_start(),
    Directive::new("cluster-voter-replace-after", REPLACEMENT, "300000"),
    Directive::new("cluster-feature-level", LEVEL, "0").at_start(),
    Directive::new("cluster-sync", Kind::Text, "acl,functions,config").admit(shared_things).at_start(),
    Directive::new("adopt", Kind::Switch, "no").at_start(),
    Directive::new("sentinel-port", PORT, "0").at_start(),
    Directive::new("sentinel-master-name", Kind::Text, "mymaster").admit(master_name),
];

/// A comma-separated list of what nodes share.
fn shared_things(value: Value) -> Result<Value, String> {
    match &value {
        Value::Text(text) if Shares::of(text).is_none() => {
            Err("it is none, or some of acl,functions,config".to_owned())
        }
        _ => Ok(value),
    }
}

/// A word that appears among others in messages.
fn master_name(value: Value) -> Result<Value, String> {
    match &value {
        Value::Text(name)
            if name.is_empty() || name.iter().any(|byte| !byte.is_ascii_graphic()) =>
        {
            Err("a name has no spaces, and at least one character".to_owned())
        }
        _ => Ok(value),
    }
}

/// A list of `HOST[:PORT[@LINK_PORT]]`.
fn nodes_to_ask(value: Value) -> Result<Value, String> {
    let Value::Words(words) = &value else {
        return Ok(value);
    };
    for word in words {
        let _place = node_to_join(Value::Text(word.clone()))?;
    }
    Ok(value)
}

/// `HOST[:PORT[@LINK_PORT]]`, or nothing.
fn node_to_join(value: Value) -> Result<Value, String> {
    let Value::Text(text) = &value else {
        return Ok(value);
    };
    let is_place = std::str::from_utf8(text).is_ok_and(|text| place_of(text, 1).is_some());
    match text.is_empty() || is_place {
        true => Ok(value),
        false => Err("a node is named as HOST[:PORT[@LINK_PORT]]".to_owned()),
    }
}
