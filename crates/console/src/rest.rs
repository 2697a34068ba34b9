//! Commands for programs without TCP, in the shape that HTTP clients of serverless platforms know: a list of arguments,
//! a token, and plain JSON for an answer. A connection of its own for each request.

use std::net::SocketAddr;

use axum::Json;
use axum::extract::{ConnectInfo, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};
use protocol::Value;
use serde_json::{Value as Body, json};

use crate::api::{arguments, bad, slices};
use crate::json::plain;
use crate::limits::PIPELINE_MAX;
use crate::link::Conversation;
use crate::shared::Shared;

/// A user and its password from `Authorization: Bearer user:password`, or the password of the default one.
fn token(headers: &HeaderMap) -> Option<(Vec<u8>, Vec<u8>)> {
    let given = headers.get(header::AUTHORIZATION)?.to_str().ok()?;
    let token = given.strip_prefix("Bearer ")?.trim();
    let (user, password) = token.split_once(':').unwrap_or(("default", token));
    Some((user.as_bytes().to_vec(), password.as_bytes().to_vec()))
}

/// `POST /` and `/pipeline`: commands for programs without TCP, where `http-commands` is on.
pub(crate) async fn rest(
    State(shared): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    uri: axum::http::Uri,
    headers: HeaderMap,
    Json(body): Json<Body>,
) -> Response {
    if !shared.settings().has_commands {
        return StatusCode::NOT_FOUND.into_response();
    }
    let Some((user, password)) = token(&headers) else {
        return (
            StatusCode::UNAUTHORIZED,
            Json(json!({"error": "Unauthorized"})),
        )
            .into_response();
    };
    let is_single = uri.path() == "/";
    let one = [body.clone()];
    let commands = if is_single {
        &one[..]
    } else {
        body.as_array().map_or(&[][..], Vec::as_slice)
    };
    if commands.is_empty() || commands.len() > PIPELINE_MAX {
        return bad("ERR from 1 to 128 commands");
    }
    let parsed: Result<Vec<_>, String> = commands.iter().map(arguments).collect();
    let mut parsed = match parsed {
        Ok(parsed) => parsed,
        Err(reason) => return bad(&format!("ERR {reason}")),
    };
    let is_transaction = uri.path() == "/multi-exec";
    if is_transaction {
        parsed.insert(0, vec![b"MULTI".to_vec()]);
        parsed.push(vec![b"EXEC".to_vec()]);
    }
    let Ok(mut conversation) = Conversation::open(shared.sessions.as_ref(), from) else {
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            Json(json!({"error": "ERR max number of clients reached"})),
        )
            .into_response();
    };
    let hello: Vec<&[u8]> = vec![b"HELLO", b"2", b"AUTH", &user, &password];
    match conversation.run(&[hello]).await.as_deref() {
        Ok([Value::Error(_)]) | Err(_) => {
            return (
                StatusCode::UNAUTHORIZED,
                Json(json!({"error": "Unauthorized"})),
            )
                .into_response();
        }
        Ok(_) => {}
    }
    let requests: Vec<Vec<&[u8]>> = parsed.iter().map(|one| slices(one)).collect();
    let replies = match conversation.run(&requests).await {
        Ok(replies) => replies,
        Err(fault) => return bad(&format!("ERR {}", fault.text())),
    };
    rest_reply(&replies, is_single, is_transaction)
}

fn rest_reply(replies: &[Value], is_single: bool, is_transaction: bool) -> Response {
    let shown = |reply: &Value| match reply {
        Value::Error(text) => json!({"error": String::from_utf8_lossy(text)}),
        other => json!({"result": plain(other)}),
    };
    let replies = match replies.last() {
        Some(Value::Array(results)) if is_transaction => results.as_slice(),
        Some(error @ Value::Error(_)) if is_transaction => {
            return (StatusCode::BAD_REQUEST, Json(shown(error))).into_response();
        }
        _ => replies,
    };
    match replies {
        [error @ Value::Error(_)] if is_single => {
            (StatusCode::BAD_REQUEST, Json(shown(error))).into_response()
        }
        [one] if is_single => Json(shown(one)).into_response(),
        all => Json(Body::Array(all.iter().map(shown).collect())).into_response(),
    }
}
