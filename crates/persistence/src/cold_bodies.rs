//! Converts objects that leave memory to bytes and back: a byte for the type, and the body as in a
//! checkpoint.

use rdb::{Limits, Reader, VERSION_MAX, Value, value};
use structures::Object;

use crate::bodies::STYLE;

/// Encodes an object.
#[must_use]
pub fn encode(object: &Object) -> Vec<u8> {
    let mut bytes = vec![value::type_code_of(object, STYLE)];
    value::write_object(object, STYLE, &mut bytes);
    bytes
}

/// Decodes the result of [`encode`]; `None` for any other bytes.
#[must_use]
pub fn decode(bytes: &[u8], limits: &Limits) -> Option<Object> {
    let (type_code, body) = bytes.split_first()?;
    let mut reader = Reader::new(body, VERSION_MAX, limits);
    match value::read(*type_code, &mut reader).ok()? {
        Value::Object(object) if reader.rest().is_empty() => Some(object),
        Value::Object(_) | Value::String(_) => None,
    }
}
