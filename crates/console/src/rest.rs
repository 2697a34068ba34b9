//! Commands for programs without TCP, in the form that HTTP clients of serverless platforms know: a
//! list of arguments, a token, and plain JSON as the response. Each request uses a connection of
//! its own.
//!
//! ```text
//!   POST /            ["SET", "key", "value"]                    {"result": …} or {"error": …}
//!   POST /pipeline    [["SET", "key", "value"], ["GET", "key"]]  a list of those
//!   POST /multi-exec  the same, as a transaction                 a list of those, or one error
//!   GET  /set/key/value?EX=100    the command in the path; a body of a POST comes behind it
//! ```
//!
//! With `Upstash-Encoding: base64`, all texts except the status OK are in base64.

use std::net::SocketAddr;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, Uri, header};
use axum::response::{IntoResponse as _, Response};
use protocol::Value;
use serde_json::{Value as Body, json};

use crate::api::{arguments, bad, check, slices};
use crate::files;
use crate::json::{encoded, plain};
use crate::limits::{ARGUMENTS_MAX, PIPELINE_MAX};
use crate::link::Conversation;
use crate::shared::Shared;

/// Returns the user and password of `Authorization: Bearer user:password`. A token without a user
/// is the password of the default user.
fn token(headers: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let token = given.strip_prefix("Bearer ")?.trim();
    let (user, password) = token.split_once(':').unwrap_or(("default", token));
    Some((user.as_bytes().to_vec(), password.as_bytes().to_vec()))
}

/// The way in which the commands of a request belong together.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Form {
    Single,
    Pipeline,
    Transaction,
}

/// `POST /`, `/pipeline` and `/multi-exec`: run commands for programs without TCP, if
/// `http-commands` is on.
pub(crate) async fn rest(
    State(shared): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Response {
    if !shared.settings().has_commands {
        return StatusCode::NOT_FOUND.into_response();
    }
    let form = match uri.path() {
        "/" => Form::Single,
        "/multi-exec" => Form::Transaction,
        _ => Form::Pipeline,
    };
    let one = [body];
    let commands = match &one {
        all if form == Form::Single => &all[..],
        [body] => body.as_array().map_or(&[][..], Vec::as_slice),
    };
    if commands.is_empty() || commands.len() > PIPELINE_MAX {
        return bad(&format!("ERR from 1 to {PIPELINE_MAX} commands"));
    }
    let parsed: Result<Vec<_>, String> = commands.iter().map(arguments).collect();
    match parsed {
        Ok(parsed) => run(&shared, from, &headers, parsed, form).await,
        Err(reason) => bad(&format!("ERR {reason}")),
    }
}

/// Runs a command in the path of a request, if `http-commands` is on.
pub(crate) async fn by_path(
    State(shared): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    if !shared.settings().has_commands {
        return StatusCode::NOT_FOUND.into_response();
    }
    let words = words_of(&uri, &body).ok_or("a path that cannot be decoded, or is too long");
    let words = words.map_err(str::to_owned).and_then(check);
    match words {
        Ok(words) => run(&shared, from, &headers, vec![words], Form::Single).await,
        Err(reason) => bad(&format!("ERR {reason}")),
    }
}

/// Returns a file of the page, or runs a command of one word.
pub(crate) async fn file_or_command(
    state: State<Shared>,
    from: ConnectInfo<SocketAddr>,
    uri: Uri,
    headers: HeaderMap,
) -> Response {
    let name = uri.path().trim_start_matches('/').to_owned();
    let is_asked_for = state.settings().has_commands && token(&headers).is_some();
    if is_asked_for && !files::has(&name) {
        return by_path(state, from, uri, headers, Bytes::new()).await;
    }
    files::file(state, axum::extract::Path(name), headers).await
}

/// Returns the words of a path, the body, and the names and values of the query, in this order.
fn words_of(uri: &Uri, body: &Bytes) -> Option<Vec<Vec<u8>>> {
    let path = uri.path().trim_matches('/');
    let mut words: Vec<Vec<u8>> = path.split('/').map(decoded).collect::<Option<_>>()?;
    if !body.is_empty() {
        words.push(body.to_vec());
    }
    for part in uri.query().unwrap_or_default().split('&') {
        let (name, value) = part.split_once('=').map_or((part, None), |(name, value)| {
            (name, Some(value).filter(|value| !value.is_empty()))
        });
        if !name.is_empty() {
            words.push(decoded(name)?);
        }
        if let Some(value) = value {
            words.push(decoded(value)?);
        }
    }
    (words.len() <= ARGUMENTS_MAX).then_some(words)
}

/// Decodes percent signs followed by two hexadecimal digits.
fn decoded(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        rest = behind;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = behind.split_first_chunk::<2>()?;
        let digit = |byte: u8| char::from(byte).to_digit(16);
        let number = digit(digits[0])? * 16 + digit(digits[1])?;
        bytes.push(u8::try_from(number).ok()?);
        rest = behind;
    }
    Some(bytes)
}

/// Runs commands as the user that the request names.
async fn run(
    shared: &Shared,
    from: SocketAddr,
    headers: &HeaderMap,
    mut commands: Vec<Vec<Vec<u8>>>,
    form: Form,
) -> Response {
    let Some((user, password)) = token(headers) else {
        return unauthorized();
    };
    if form == Form::Transaction {
        commands.insert(0, vec![b"MULTI".to_vec()]);
        commands.push(vec![b"EXEC".to_vec()]);
    }
    let Ok(mut conversation) = Conversation::open(shared.sessions.as_ref(), from) else {
        let body = Json(json!({"error": "ERR max number of clients reached"}));
        return (StatusCode::SERVICE_UNAVAILABLE, body).into_response();
    };
    let hello: Vec<&[u8]> = vec![b"HELLO", b"2", b"AUTH", &user, &password];
    match conversation.run(&[hello]).await.as_deref() {
        Ok([Value::Error(_)]) | Err(_) => return unauthorized(),
        Ok(_) => {}
    }
    let requests: Vec<Vec<&[u8]>> = commands.iter().map(|one| slices(one)).collect();
    match conversation.run(&requests).await {
        Ok(replies) => answer(&replies, form, wants_base64(headers)),
        Err(fault) => bad(&format!("ERR {}", fault.text())),
    }
}

pub(crate) fn unauthorized() -> Response {
    let body = Json(json!({"error": "Unauthorized"}));
    (StatusCode::UNAUTHORIZED, body).into_response()
}

fn wants_base64(headers: &HeaderMap) -> bool {
    let given = headers.get("upstash-encoding");
    given.is_some_and(|value| value.as_bytes().eq_ignore_ascii_case(b"base64"))
}

fn answer(replies: &[Value], form: Form, in_base64: bool) -> Response {
    let shown = |reply: &Value| match reply {
        Value::Error(text) => json!({"error": String::from_utf8_lossy(text)}),
        other if in_base64 => json!({"result": encoded(other)}),
        other => json!({"result": plain(other)}),
    };
    let refused = |error: &Value| (StatusCode::BAD_REQUEST, Json(shown(error))).into_response();
    match (form, replies) {
        (Form::Single, [error @ Value::Error(_)]) => refused(error),
        (Form::Single, [one]) => Json(shown(one)).into_response(),
        (Form::Transaction, [.., Value::Array(results)]) => {
            Json(Body::Array(results.iter().map(shown).collect())).into_response()
        }
        (Form::Transaction, [.., error @ Value::Error(_)]) => refused(error),
        (_, all) => Json(Body::Array(all.iter().map(shown).collect())).into_response(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(uri: &str, body: &'static [u8]) -> Option<Vec<String>> {
        let words = words_of(&uri.parse().unwrap(), &Bytes::from_static(body))?;
        let texts = words.iter().map(|word| word.escape_ascii().to_string());
        Some(texts.collect())
    }

    #[test]
    fn a_command_stands_in_a_path() {
        let all = |words: &[&str]| Some(words.iter().map(|word| (*word).to_owned()).collect());
        assert_eq!(words("/get/foo", b""), all(&["get", "foo"]));
        assert_eq!(
            words("/set/a%20b/%2Fc%ff?EX=100&NX", b""),
            all(&["set", "a b", "/c\\xff", "EX", "100", "NX"])
        );
        assert_eq!(
            words("/set/foo?EX=100", b"a value"),
            all(&["set", "foo", "a value", "EX", "100"])
        );
        assert_eq!(words("/get/%2", b""), None);
        assert_eq!(words("/get/%zz", b""), None);
        assert_eq!(
            words(&format!("/a{}", "/b".repeat(ARGUMENTS_MAX)), b""),
            None
        );
    }
}
