//! Directives of the control group.

use super::super::directive::Directive;
use super::super::group::place_of;
use super::super::value::Value;
use super::{LONG_MAX, SWITCH, TEXT, integer};

/// Less leaves no time for heartbeats.
const TIMEOUT_MS_MIN: i128 = 150;

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    Directive::new("cluster-group", SWITCH, "no").at_start(),
    Directive::new("join", TEXT, "").admit(node_to_join).at_start(),
    Directive::new("witness", SWITCH, "no").at_start(),
    Directive::new("cluster-node-timeout", integer(TIMEOUT_MS_MIN, LONG_MAX), "1500").at_start(),
];

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
