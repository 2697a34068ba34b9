//! Spans as an OTLP document. Each span is a trace of its own, because no span causes another.

use base::random::fill_from_os;
use base::spans::Span;
use serde_json::{Value, json};

use super::{Export, attribute, resource};

/// The kind of a span inside the process.
const INTERNAL: u32 = 1;
const FAILED: u32 = 2;

/// Returns the document for a collector.
pub(super) fn document(spans: &[Span], export: &Export) -> String {
    let spans: Vec<Value> = spans.iter().map(shown).collect();
    json!({"resourceSpans": [{
        "resource": resource(export),
        "scopeSpans": [{"scope": {"name": "iolite"}, "spans": spans}],
    }]})
    .to_string()
}

fn shown(span: &Span) -> Value {
    let attributes = span.attributes.iter();
    let attributes: Vec<Value> = attributes
        .map(|(name, value)| attribute(name, value))
        .collect();
    let status = match &span.failure {
        Some(reason) => json!({"code": FAILED, "message": reason}),
        None => json!({}),
    };
    let unix_ns = |unix_us: u64| unix_us.saturating_mul(1000).to_string();
    json!({
        "traceId": name::<16>(),
        "spanId": name::<8>(),
        "name": span.name,
        "kind": INTERNAL,
        "startTimeUnixNano": unix_ns(span.begun_unix_us),
        "endTimeUnixNano": unix_ns(span.ended_unix_us),
        "attributes": attributes,
        "status": status,
    })
}

/// Returns a unique random identifier.
fn name<const BYTES: usize>() -> String {
    let mut bytes = [0; BYTES];
    fill_from_os(&mut bytes);
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]
mod tests {
    use super::*;

    #[test]
    fn a_span_says_when_and_what_and_how_it_ended() {
        let span = Span {
            name: "checkpoint".to_owned(),
            begun_unix_us: 5,
            ended_unix_us: 7,
            failure: Some("no room".to_owned()),
            attributes: vec![("iolite.bytes", "12".to_owned())],
        };
        let whole = Span {
            failure: None,
            ..span.clone()
        };
        let export = Export {
            resource: vec![("service.name".to_owned(), "iolite".to_owned())],
            ..Export::default()
        };
        let text = document(&[span, whole], &export);
        let all: Value = serde_json::from_str(&text).unwrap();
        let all = &all["resourceSpans"][0];
        assert_eq!(
            all["resource"]["attributes"][0]["value"]["stringValue"],
            "iolite"
        );
        let spans = all["scopeSpans"][0]["spans"].as_array().unwrap();
        let [failed, whole] = &spans[..] else {
            panic!("{spans:?}")
        };
        assert_eq!(failed["startTimeUnixNano"], "5000");
        assert_eq!(failed["endTimeUnixNano"], "7000");
        assert_eq!(failed["status"], json!({"code": 2, "message": "no room"}));
        assert_eq!(
            failed["attributes"],
            json!([attribute("iolite.bytes", "12")])
        );
        assert_eq!(whole["status"], json!({}));
        assert_eq!(failed["traceId"].as_str().unwrap().len(), 32);
        assert_eq!(failed["spanId"].as_str().unwrap().len(), 16);
        assert_ne!(failed["traceId"], whole["traceId"]);
    }
}
