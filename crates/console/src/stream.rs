//! `/events`: streams the frames of the last minutes, then a frame every second.

use std::convert::Infallible;
use std::sync::Arc;

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use serde_json::json;
use tokio::sync::broadcast::error::RecvError;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use crate::limits::{MINUTES_KEPT, SECONDS_FIRST, SECONDS_KEPT};
use crate::login;
use crate::shared::Shared;

/// Maximum number of frames that wait for a slow reader before it is disconnected.
const FRAMES_MAX: usize = 16;

/// `GET /events`.
pub(crate) async fn events(
    State(shared): State<Shared>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    login::required_for_info(&shared, &headers)?;
    let Ok(place) = Arc::clone(&shared.streams).try_acquire_owned() else {
        return Err((StatusCode::TOO_MANY_REQUESTS, "too many streams\n").into_response());
    };
    let (sender, receiver) = mpsc::channel::<Result<Event, Infallible>>(FRAMES_MAX);
    let mut frames = shared.frames.subscribe();
    let first = shared.history().last(SECONDS_FIRST, false).to_string();
    let own = shared;
    tokio::spawn(async move {
        let _place = place;
        let mut is_open = sender
            .send(Ok(Event::default().event("history").data(first)))
            .await
            .is_ok();
        // After a change of the user the stream ends.
        while is_open && login::who(&own, &headers).is_some() {
            let frame = match frames.recv().await {
                Ok(frame) => frame,
                Err(RecvError::Lagged(_)) => continue,
                Err(RecvError::Closed) => break,
            };
            is_open = sender
                .try_send(Ok(Event::default().event("frame").data(&*frame)))
                .is_ok();
        }
    });
    let stream = Sse::new(ReceiverStream::new(receiver));
    Ok(stream.keep_alive(KeepAlive::default()).into_response())
}

/// `GET /api/history?minutes`: returns an hour by second, or a day by minute.
pub(crate) async fn history(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Response> {
    login::required_for_info(&shared, &headers)?;
    let by_minute = query.is_some_and(|query| query == "minutes");
    let count = if by_minute {
        MINUTES_KEPT
    } else {
        SECONDS_KEPT
    };
    let all = shared.history().last(count, by_minute);
    Ok(Json(all).into_response())
}

/// `GET /api/log?after=<number>`: returns lines of the server log.
pub(crate) async fn log(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Response> {
    login::required_for_info(&shared, &headers)?;
    let after = query
        .as_deref()
        .and_then(|query| query.strip_prefix("after=")?.parse().ok());
    let lines = shared.figures.log_lines(after.unwrap_or(0)).into_iter();
    let lines: Vec<_> = lines.map(|(number, text)| json!([number, text])).collect();
    Ok(Json(json!({"lines": lines})).into_response())
}

/// `GET /api/spans`: returns the spans sent to the collector, and the state of the export.
pub(crate) async fn spans(
    State(shared): State<Shared>,
    headers: HeaderMap,
) -> Result<Response, Response> {
    login::required_for_info(&shared, &headers)?;
    let [sent, failed, untrusted] = shared.exports();
    let spans: Vec<_> = shared
        .kept_spans()
        .into_iter()
        .map(|span| {
            let attributes: serde_json::Map<_, _> = span
                .attributes
                .into_iter()
                .map(|(name, value)| (name.to_owned(), value.into()))
                .collect();
            json!({
                "name": span.name,
                "begun_unix_us": span.begun_unix_us,
                "us": span.ended_unix_us.saturating_sub(span.begun_unix_us),
                "failure": span.failure,
                "attributes": attributes,
            })
        })
        .collect();
    let all = json!({
        "endpoint": shared.settings().export.endpoint,
        "documents": sent,
        "failed": failed,
        "untrusted": untrusted,
        "dropped": shared.figures.dropped_spans(),
        "spans": spans,
    });
    Ok(Json(all).into_response())
}
