//! Conversion of replies to JSON that preserves their kinds, and of JSON to arguments. Bytes are
//! base64 both ways.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use protocol::Value;
use serde_json::{Value as Json, json};

/// Encodes bytes as base64.
pub(crate) fn encode(bytes: &[u8]) -> String {
    STANDARD.encode(bytes)
}

/// Decodes base64.
pub(crate) fn decode(text: &str) -> Option<Vec<u8>> {
    STANDARD.decode(text).ok()
}

/// Returns an argument from a text, a number, a boolean, or `{"b64": …}`.
pub(crate) fn argument(json: &Json) -> Option<Vec<u8>> {
    match json {
        Json::String(text) => Some(text.clone().into_bytes()),
        Json::Number(number) => Some(number.to_string().into_bytes()),
        Json::Bool(is) => Some(is.to_string().into_bytes()),
        Json::Object(fields) => decode(fields.get("b64")?.as_str()?),
        _ => None,
    }
}

/// Returns a reply as a tree of objects with one field each, which names the kind.
pub(crate) fn tree(value: &Value) -> Json {
    let all = |values: &[Value]| values.iter().map(tree).collect::<Vec<Json>>();
    let pairs = |pairs: &[(Value, Value)]| {
        let pairs = pairs.iter();
        pairs
            .map(|(key, value)| json!([tree(key), tree(value)]))
            .collect::<Vec<Json>>()
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    match value {
        Value::Simple(bytes) => json!({"simple": text(bytes)}),
        Value::Error(bytes) => json!({"error": text(bytes)}),
        // A browser's numbers cannot hold it exactly.
        Value::Integer(number) => json!({"integer": number.to_string()}),
        Value::Bulk(bytes) => json!({"bulk": encode(bytes)}),
        Value::Null | Value::NullArray => json!({"null": true}),
        Value::Array(values) => json!({"array": all(values)}),
        Value::Map(of) => json!({"map": pairs(of)}),
        Value::Set(values) => json!({"set": all(values)}),
        Value::Push(values) => json!({"push": all(values)}),
        Value::Double(double) => json!({"double": double.text}),
        Value::Boolean(is) => json!({"boolean": is}),
        Value::BigNumber(digits) => json!({"big": digits}),
        Value::Verbatim {
            text: bytes,
            format,
        } => {
            json!({"verbatim": encode(bytes), "format": format})
        }
        Value::Attribute { value, .. } => tree(value),
    }
}

/// Returns a reply in the form of the REST interface that programs know: no kinds, texts unchanged.
pub(crate) fn plain(value: &Value) -> Json {
    shown(value, &|bytes| String::from_utf8_lossy(bytes).into_owned())
}

/// As [`plain`], but with all texts in base64 except the status OK.
pub(crate) fn encoded(value: &Value) -> Json {
    if matches!(value, Value::Simple(text) if text == b"OK") {
        return json!("OK");
    }
    shown(value, &encode)
}

fn shown(value: &Value, spell: &dyn Fn(&[u8]) -> String) -> Json {
    let plain = |value: &Value| match value {
        Value::Simple(text) if text == b"OK" => json!("OK"),
        value => shown(value, spell),
    };
    let all = |values: &[Value]| values.iter().map(plain).collect::<Vec<Json>>();
    let text = |bytes: &[u8]| Json::String(spell(bytes));
    match value {
        Value::Simple(bytes) | Value::Error(bytes) | Value::Bulk(bytes) => text(bytes),
        Value::Verbatim { text: bytes, .. } => text(bytes),
        Value::Integer(number) => json!(number),
        Value::Null | Value::NullArray => Json::Null,
        Value::Array(values) | Value::Set(values) | Value::Push(values) => Json::Array(all(values)),
        Value::Map(pairs) => {
            let flat = pairs
                .iter()
                .flat_map(|(key, value)| [plain(key), plain(value)]);
            Json::Array(flat.collect())
        }
        Value::Double(double) => text(double.text.as_bytes()),
        Value::Boolean(is) => json!(i32::from(*is)),
        Value::BigNumber(digits) => text(digits.as_bytes()),
        Value::Attribute { value, .. } => plain(value),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_kept_apart_and_bytes_are_whole() {
        let value = Value::Array(vec![
            Value::Bulk(vec![0, 255]),
            Value::Integer(i64::MAX),
            Value::Null,
            Value::Map(vec![(Value::Simple(b"k".to_vec()), Value::Boolean(true))]),
        ]);
        let expected = json!({"array": [
            {"bulk": "AP8="},
            {"integer": "9223372036854775807"},
            {"null": true},
            {"map": [[{"simple": "k"}, {"boolean": true}]]},
        ]});
        assert_eq!(tree(&value), expected);
        assert_eq!(argument(&json!({"b64": "AP8="})), Some(vec![0, 255]));
        assert_eq!(argument(&json!("a")), Some(b"a".to_vec()));
        assert_eq!(argument(&json!(12)), Some(b"12".to_vec()));
        for bad in [json!({"b64": "*"}), json!(null), json!(["a"]), json!({})] {
            assert_eq!(argument(&bad), None);
        }
    }
}
