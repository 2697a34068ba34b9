//! Writer from a value of a script to JSON.

use base::hex;
use mlua::{Table, Value};

use super::{DEPTH_MAX, Invalid, Settings};
use crate::convert;
use crate::library::Failure;
use crate::number_text::{self, truncated};

/// Writes `value`, which is nested `depth` tables deep.
pub(super) fn value(
    out: &mut Vec<u8>,
    value: &Value,
    settings: &Settings,
    depth: u32,
) -> Result<(), Failure> {
    match value {
        Value::String(string) => text(out, &string.as_bytes()),
        Value::Boolean(true) => out.extend_from_slice(b"true"),
        Value::Boolean(false) => out.extend_from_slice(b"false"),
        Value::Nil => out.extend_from_slice(b"null"),
        Value::LightUserData(pointer) if pointer.0.is_null() => out.extend_from_slice(b"null"),
        Value::Table(table) => return container(out, table, settings, depth + 1),
        other => match convert::number(other) {
            Some(given) => return number(out, given, settings),
            None => {
                let text = format!("Cannot serialise {}: type not supported", other.type_name());
                return Err(Failure::Text(text));
            }
        },
    }
    Ok(())
}

fn container(
    out: &mut Vec<u8>,
    table: &Table,
    settings: &Settings,
    depth: u32,
) -> Result<(), Failure> {
    if depth > settings.encode_depth_max.min(DEPTH_MAX) {
        return Err(Failure::Text(format!(
            "Cannot serialise, excessive nesting ({depth})"
        )));
    }
    match sequence_length(table, settings)? {
        Some(length) if length > 0 => array(out, table, length, settings, depth),
        _ => object(out, table, settings, depth),
    }
}

/// Returns the length of the array that the table is, or `None` if it is an object.
fn sequence_length(table: &Table, settings: &Settings) -> Result<Option<i64>, Failure> {
    let (mut items, mut largest) = (0_i64, 0_i64);
    for pair in table.pairs::<Value, Value>() {
        let key = convert::number(&pair?.0).filter(|key| key.fract() == 0.0 && *key >= 1.0);
        let Some(key) = key else { return Ok(None) };
        largest = largest.max(truncated(key));
        items += 1;
    }
    let ratio = i64::from(settings.sparse_ratio);
    let is_sparse = ratio > 0
        && largest > items.saturating_mul(ratio)
        && largest > i64::from(settings.sparse_safe);
    if !is_sparse {
        return Ok(Some(largest));
    }
    if settings.sparse_convert {
        return Ok(None);
    }
    Err("Cannot serialise table: excessively sparse array".into())
}

fn array(
    out: &mut Vec<u8>,
    table: &Table,
    length: i64,
    settings: &Settings,
    depth: u32,
) -> Result<(), Failure> {
    out.push(b'[');
    for place in 1..=length {
        if place > 1 {
            out.push(b',');
        }
        value(out, &table.raw_get(place)?, settings, depth)?;
    }
    out.push(b']');
    Ok(())
}

fn object(
    out: &mut Vec<u8>,
    table: &Table,
    settings: &Settings,
    depth: u32,
) -> Result<(), Failure> {
    out.push(b'{');
    let mut is_first = true;
    for pair in table.pairs::<Value, Value>() {
        let (key, held) = pair?;
        if !std::mem::take(&mut is_first) {
            out.push(b',');
        }
        match &key {
            Value::String(key) => text(out, &key.as_bytes()),
            other => match convert::number(other) {
                Some(key) => {
                    out.push(b'"');
                    number(out, key, settings)?;
                    out.push(b'"');
                }
                None => {
                    let kind = other.type_name();
                    let text =
                        format!("Cannot serialise {kind}: table key must be a number or string");
                    return Err(Failure::Text(text));
                }
            },
        }
        out.push(b':');
        value(out, &held, settings, depth)?;
    }
    out.push(b'}');
    Ok(())
}

fn number(out: &mut Vec<u8>, number: f64, settings: &Settings) -> Result<(), Failure> {
    if !number.is_finite() {
        match settings.encode_invalid {
            Invalid::Refused => {
                return Err("Cannot serialise number: must not be NaN or Inf".into());
            }
            Invalid::Null => out.extend_from_slice(b"null"),
            Invalid::Written => number_text::general(out, number, 14),
        }
        return Ok(());
    }
    let digits = usize::try_from(settings.number_precision).unwrap_or(14);
    number_text::general(out, number, digits);
    Ok(())
}

fn text(out: &mut Vec<u8>, text: &[u8]) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    for byte in text {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            b'/' => out.extend_from_slice(b"\\/"),
            0x08 => out.extend_from_slice(b"\\b"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\n' => out.extend_from_slice(b"\\n"),
            b'\r' => out.extend_from_slice(b"\\r"),
            b'\t' => out.extend_from_slice(b"\\t"),
            0..=0x1f | 0x7f => {
                out.extend_from_slice(b"\\u00");
                out.extend_from_slice(&hex::digits(*byte));
            }
            other => out.push(*other),
        }
    }
    out.push(b'"');
}
