//! `/healthz`, `/readyz` and `/info.json`.

use axum::Json;
use axum::extract::{RawQuery, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse as _, Response};
use serde_json::{Map, Value as Body, json};
use tokio::time::{Duration, Instant, sleep};

use crate::login;
use crate::shared::Shared;

/// Maximum time that a worker may take to run a turn.
const NUDGE_TIME_MAX: Duration = Duration::from_secs(5);
const NUDGE_PAUSE: Duration = Duration::from_millis(5);

/// `GET /healthz`: returns whether every worker runs turns.
pub(crate) async fn health(State(shared): State<Shared>) -> Response {
    let until = Instant::now() + NUDGE_TIME_MAX;
    shared.figures.nudge();
    loop {
        let stuck = shared.figures.stuck();
        if stuck.is_empty() {
            return "ok\n".into_response();
        }
        if Instant::now() >= until {
            let names: Vec<String> = stuck.iter().map(|one| format!("worker-{one}")).collect();
            let text = format!("does not turn: {}\n", names.join(" "));
            return (StatusCode::SERVICE_UNAVAILABLE, text).into_response();
        }
        sleep(NUDGE_PAUSE).await;
    }
}

/// `GET /readyz`: returns whether clients are served.
pub(crate) async fn ready(State(shared): State<Shared>) -> Response {
    match shared.figures.ready() {
        Ok(()) => "ok\n".into_response(),
        Err(why) => {
            let text = format!("{} {}\n", why.word, why.reason);
            (StatusCode::SERVICE_UNAVAILABLE, text).into_response()
        }
    }
}

/// `GET /info.json`: returns the sections of INFO that the query names, with numbers as JSON
/// numbers.
pub(crate) async fn info(
    State(shared): State<Shared>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Response> {
    login::required_for_info(&shared, &headers)?;
    let query = query.unwrap_or_default();
    let asked = query
        .split('&')
        .filter_map(|pair| pair.strip_prefix("section="));
    let asked: Vec<String> = asked.map(str::to_ascii_lowercase).take(32).collect();
    let sections = shared.figures.info(&asked).into_iter().map(|section| {
        let fields = section.fields.into_iter().map(|field| {
            // Integers stay exact, however many digits they have.
            let value = match (field.number, field.text.parse::<i64>()) {
                (Some(_), Ok(whole)) => json!(whole),
                (Some(number), Err(_)) if number.is_finite() => json!(number),
                _ => Body::String(field.text),
            };
            (field.name, value)
        });
        (section.name.to_owned(), Body::Object(fields.collect()))
    });
    let all: Map<String, Body> = sections.collect();
    Ok(Json(Body::Object(all)).into_response())
}
