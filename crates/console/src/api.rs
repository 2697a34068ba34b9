//! The API: each call runs commands as the user who is logged in.

use axum::Json;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use protocol::Value;
use serde_json::{Value as Body, json};

use crate::json::{argument, decode, encode, tree};
use crate::limits::{ARGUMENTS_MAX, PIPELINE_MAX};
use crate::link::{Conversation, Fault};
use crate::login::{self, Login};
use crate::shared::Shared;

/// Maximum number of keyspace buckets that one step scans.
const STEP_MAX: u64 = 2000;
/// Number of buckets of a step that does not specify it.
const STEP: u64 = 500;
/// Number of elements in a page of a value.
const PAGE: usize = 256;
/// Maximum number of bytes of a string that are shown.
const STRING_BYTES_SHOWN: usize = 64 * 1024;

/// Commands that put a connection into a state that a request over HTTP cannot have.
const REFUSED: [&str; 17] = [
    "auth",
    "hello",
    "quit",
    "reset",
    "monitor",
    "subscribe",
    "psubscribe",
    "ssubscribe",
    "sync",
    "psync",
    "replconf",
    "blpop",
    "brpop",
    "blmove",
    "bzpopmin",
    "bzpopmax",
    "wait",
];
/// The subcommands of CLIENT that do the same.
const REFUSED_OF_CLIENT: [&str; 2] = ["reply", "tracking"];

/// Returns the response to an invalid request.
pub(crate) fn bad(reason: &str) -> Response {
    (StatusCode::BAD_REQUEST, Json(json!({"error": reason}))).into_response()
}

/// Runs commands as the user, in a database.
async fn run(
    shared: &Shared,
    headers: &HeaderMap,
    login: &Login,
    database: u32,
    requests: &[Vec<&[u8]>],
) -> Result<Vec<Value>, Response> {
    let mut conversation = login.conversation.lock().await;
    let done = run_in(&mut conversation, database, requests).await;
    drop(conversation);
    done.map_err(|fault| {
        login::end(shared, headers);
        let body = Json(json!({"error": fault.text()}));
        (StatusCode::UNAUTHORIZED, body).into_response()
    })
}

async fn run_in(
    conversation: &mut Conversation,
    database: u32,
    requests: &[Vec<&[u8]>],
) -> Result<Vec<Value>, Fault> {
    if conversation.database != database {
        let number = database.to_string();
        let selected = conversation
            .run(&[vec![b"SELECT", number.as_bytes()]])
            .await?;
        if let Some(Value::Error(_)) = selected.first() {
            return Ok(requests.iter().map(|_| selected[0].clone()).collect());
        }
        conversation.database = database;
    }
    let replies = conversation.run(requests).await?;
    let selects = |request: &Vec<&[u8]>| {
        request
            .first()
            .is_some_and(|name| name.eq_ignore_ascii_case(b"select"))
    };
    if requests.iter().any(selects) {
        // The next request selects its own database.
        let _back = conversation.run(&[vec![b"SELECT", b"0"]]).await?;
        conversation.database = 0;
    }
    Ok(replies)
}

/// Parses the arguments of one command.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn arguments(body: &Body) -> Result<Vec<Vec<u8>>, String> {
    let Some(parts) = body.as_array().filter(|parts| !parts.is_empty()) else {
        return Err("a command is a list of arguments, its name first".to_owned());
    };
    if parts.len() > ARGUMENTS_MAX {
        return Err(format!("a command has {ARGUMENTS_MAX} arguments at most"));
    }
    let parsed: Option<Vec<Vec<u8>>> = parts.iter().map(argument).collect();
    check(parsed.ok_or("an argument is a text, a number, a boolean, or {\"b64\": bytes}")?)
}

/// Checks the arguments of a command that may be run over HTTP.
///
/// # Errors
/// What is wrong with them.
pub(crate) fn check(parsed: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, String> {
    let word = |at: usize| {
        let word = parsed.get(at).map_or(&[][..], Vec::as_slice);
        String::from_utf8_lossy(word).to_ascii_lowercase()
    };
    let name = word(0);
    if REFUSED.contains(&name.as_str())
        || (name == "client" && REFUSED_OF_CLIENT.contains(&word(1).as_str()))
    {
        return Err(format!(
            "{} cannot be run over HTTP",
            name.to_ascii_uppercase()
        ));
    }
    Ok(parsed)
}

/// Returns the arguments in the form that the connection takes.
pub(crate) fn slices(arguments: &[Vec<u8>]) -> Vec<&[u8]> {
    arguments.iter().map(Vec::as_slice).collect()
}

fn database(body: &Body) -> u32 {
    let number = body.get("db").and_then(Body::as_u64).unwrap_or(0);
    u32::try_from(number).unwrap_or(u32::MAX)
}

/// `POST /api/command`: runs one command and returns its reply as a tree.
pub(crate) async fn command(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Result<Response, Response> {
    let login = login::required(&shared, &headers)?;
    let parsed = arguments(body.get("args").unwrap_or(&Body::Null));
    let parsed = parsed.map_err(|reason| bad(&reason))?;
    let began = tokio::time::Instant::now();
    let requests = [slices(&parsed)];
    let replies = run(&shared, &headers, &login, database(&body), &requests).await?;
    let took_us = u64::try_from(began.elapsed().as_micros()).unwrap_or(u64::MAX);
    Ok(Json(json!({"reply": tree(&replies[0]), "us": took_us})).into_response())
}

/// `POST /api/pipeline`: runs several commands in order and returns their replies as trees.
pub(crate) async fn pipeline(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Result<Response, Response> {
    let login = login::required(&shared, &headers)?;
    let commands = body.get("commands").and_then(Body::as_array);
    let Some(commands) = commands.filter(|all| !all.is_empty() && all.len() <= PIPELINE_MAX) else {
        return Err(bad("a pipeline has from 1 to 128 commands"));
    };
    let parsed: Result<Vec<_>, String> = commands.iter().map(arguments).collect();
    let parsed = parsed.map_err(|reason| bad(&reason))?;
    let requests: Vec<Vec<&[u8]>> = parsed.iter().map(|one| slices(one)).collect();
    let replies = run(&shared, &headers, &login, database(&body), &requests).await?;
    let replies: Vec<Body> = replies.iter().map(tree).collect();
    Ok(Json(json!({"replies": replies})).into_response())
}

/// `POST /api/keys`: one step of a scan of a database's keys, with the share of the keyspace
/// scanned so far.
pub(crate) async fn keys(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Result<Response, Response> {
    let login = login::required(&shared, &headers)?;
    let text = |name: &str| body.get(name).and_then(Body::as_str).unwrap_or_default();
    let database = database(&body);
    let cursor = if text("cursor").is_empty() {
        "0"
    } else {
        text("cursor")
    };
    let count = body.get("count").and_then(Body::as_u64).unwrap_or(STEP);
    let count = count.clamp(1, STEP_MAX).to_string();
    let mut scan: Vec<&[u8]> = vec![b"SCAN", cursor.as_bytes(), b"COUNT", count.as_bytes()];
    let pattern = body
        .get("pattern")
        .and_then(argument)
        .filter(|pattern| !pattern.is_empty());
    if let Some(pattern) = &pattern {
        scan.extend([b"MATCH", pattern.as_slice()]);
    }
    if !text("type").is_empty() {
        scan.extend([b"TYPE", text("type").as_bytes()]);
    }
    let requests = [scan, vec![b"DBSIZE"]];
    let replies = run(&shared, &headers, &login, database, &requests).await?;
    let [Value::Array(step), size] = replies.as_slice() else {
        return Ok(Json(json!({"error": reason(&replies[0])})).into_response());
    };
    let [Value::Bulk(next), Value::Array(found)] = step.as_slice() else {
        return Ok(Json(json!({"error": "no reply of SCAN"})).into_response());
    };
    let found: Vec<&[u8]> = found.iter().filter_map(bytes).collect();
    let described = describe(&shared, &headers, &login, database, &found).await?;
    let next = String::from_utf8_lossy(next).into_owned();
    let size = if let Value::Integer(size) = size {
        json!(size)
    } else {
        Body::Null
    };
    let step = json!({"seen": share_seen(&next), "cursor": next, "size": size, "keys": described});
    Ok(Json(step).into_response())
}

/// Returns the share of the keyspace that a scan has covered at a cursor. The cursor's bits are
/// those of the position, lowest bit first.
#[allow(clippy::cast_precision_loss, reason = "shown in per cent")]
fn share_seen(cursor: &str) -> f64 {
    match cursor.parse::<u64>() {
        Ok(0) | Err(_) => 1.0,
        Ok(cursor) => cursor.reverse_bits() as f64 / 2.0_f64.powi(64),
    }
}

/// Returns type, time to live and memory of keys, without the fields that the user may not query.
async fn describe(
    shared: &Shared,
    headers: &HeaderMap,
    login: &Login,
    database: u32,
    keys: &[&[u8]],
) -> Result<Vec<Body>, Response> {
    let mut requests: Vec<Vec<&[u8]>> = Vec::with_capacity(keys.len() * 3);
    for key in keys {
        requests.push(vec![b"TYPE", key]);
        requests.push(vec![b"PTTL", key]);
        requests.push(vec![b"MEMORY", b"USAGE", key]);
    }
    if requests.is_empty() {
        return Ok(Vec::new());
    }
    let replies = run(shared, headers, login, database, &requests).await?;
    let described = keys.iter().zip(replies.chunks(3)).map(|(key, of)| {
        json!({"key": encode(key), "type": simple(&of[0]), "ttl_ms": integer(&of[1]), "bytes": integer(&of[2])})
    });
    Ok(described.collect())
}

fn bytes(value: &Value) -> Option<&[u8]> {
    match value {
        Value::Bulk(bytes) => Some(bytes),
        _ => None,
    }
}

fn simple(value: &Value) -> Body {
    match value {
        Value::Simple(text) | Value::Bulk(text) => json!(String::from_utf8_lossy(text)),
        _ => Body::Null,
    }
}

fn integer(value: &Value) -> Body {
    match value {
        Value::Integer(number) => json!(number),
        _ => Body::Null,
    }
}

fn reason(value: &Value) -> String {
    match value {
        Value::Error(text) => String::from_utf8_lossy(text).into_owned(),
        _ => "an answer that was not expected".to_owned(),
    }
}

/// `POST /api/value`: returns one page of a key's value.
pub(crate) async fn value(
    State(shared): State<Shared>,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Result<Response, Response> {
    let login = login::required(&shared, &headers)?;
    let key = body.get("key").and_then(Body::as_str).and_then(decode);
    let Some(key) = key else {
        return Err(bad("key is base64"));
    };
    let database = database(&body);
    let about: Vec<Vec<&[u8]>> = vec![
        vec![b"TYPE", &key],
        vec![b"PTTL", &key],
        vec![b"OBJECT", b"ENCODING", &key],
        vec![b"MEMORY", b"USAGE", &key],
    ];
    let about = run(&shared, &headers, &login, database, &about).await?;
    let kind = match &about[0] {
        Value::Simple(kind) => String::from_utf8_lossy(kind).into_owned(),
        other => return Ok(Json(json!({"error": reason(other)})).into_response()),
    };
    let from = body
        .get("from")
        .and_then(Body::as_str)
        .unwrap_or("0")
        .to_owned();
    let commands = page_of(&kind, &key, &from);
    let requests: Vec<Vec<&[u8]>> = commands.iter().map(|one| slices(one)).collect();
    let page = if requests.is_empty() {
        Vec::new()
    } else {
        run(&shared, &headers, &login, database, &requests).await?
    };
    let shown = json!({
        "type": kind, "ttl_ms": integer(&about[1]), "encoding": simple(&about[2]), "bytes": integer(&about[3]),
        "length": page.first().map_or(Body::Null, integer), "page": page.get(1).map_or(Body::Null, tree),
    });
    Ok(Json(shown).into_response())
}

/// Returns the commands that query the length of a value and a page of it. `from` is an index, a
/// cursor or an entry's id.
fn page_of(kind: &str, key: &[u8], from: &str) -> Vec<Vec<Vec<u8>>> {
    let words = |text: &str| -> Vec<Vec<u8>> {
        let parts = text.split(' ').map(|part| {
            if part == "KEY" {
                key.to_vec()
            } else {
                part.as_bytes().to_vec()
            }
        });
        parts.collect()
    };
    let first = from.parse::<usize>().unwrap_or(0);
    let last = first.saturating_add(PAGE - 1);
    let (length, page) = match kind {
        "string" => (
            "STRLEN KEY",
            format!("GETRANGE KEY 0 {}", STRING_BYTES_SHOWN - 1),
        ),
        "list" => ("LLEN KEY", format!("LRANGE KEY {first} {last}")),
        "hash" => ("HLEN KEY", format!("HSCAN KEY {first} COUNT {PAGE}")),
        "set" => ("SCARD KEY", format!("SSCAN KEY {first} COUNT {PAGE}")),
        "zset" => ("ZCARD KEY", format!("ZRANGE KEY {first} {last} WITHSCORES")),
        "stream" => {
            let is_id = from
                .bytes()
                .all(|byte| byte.is_ascii_digit() || byte == b'-');
            let start = if is_id && from != "0" {
                format!("({from}")
            } else {
                "-".to_owned()
            };
            ("XLEN KEY", format!("XRANGE KEY {start} + COUNT {PAGE}"))
        }
        _ => return Vec::new(),
    };
    vec![words(length), words(&page)]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_changes_the_connection_is_refused() {
        for bad in [
            json!(["SUBSCRIBE", "a"]),
            json!(["Monitor"]),
            json!(["client", "REPLY", "off"]),
            json!([]),
            json!("x"),
            json!([null]),
        ] {
            assert!(arguments(&bad).is_err(), "{bad}");
        }
        let good = arguments(&json!(["SET", {"b64": "AP8="}, 5])).unwrap();
        assert_eq!(good, [b"SET".to_vec(), vec![0, 255], b"5".to_vec()]);
    }

    #[test]
    fn a_cursor_says_how_much_was_seen() {
        assert!((share_seen("0") - 1.0).abs() < 1e-9);
        // The second of two halves, and the second of four quarters.
        assert!((share_seen("1") - 0.5).abs() < 1e-9);
        assert!((share_seen("2") - 0.25).abs() < 1e-9);
    }

    #[test]
    fn a_key_with_spaces_is_one_argument() {
        let commands = page_of("list", b"a KEY b", "256");
        assert_eq!(
            commands[1],
            [
                b"LRANGE".to_vec(),
                b"a KEY b".to_vec(),
                b"256".to_vec(),
                b"511".to_vec()
            ]
        );
        assert!(page_of("none", b"a", "0").is_empty());
        assert_eq!(page_of("stream", b"s", "5-1")[1][2], b"(5-1");
    }
}
