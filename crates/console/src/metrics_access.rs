//! Access to metrics, and `/metrics` itself.

use std::net::SocketAddr;

use access::Digest;
use axum::extract::{ConnectInfo, RawQuery, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse as _, Response};

use crate::json::decode;
use crate::login;
use crate::ports::Admission;
use crate::settings::MetricsAuth;
use crate::shared::Shared;
use crate::text::{Format, write};

/// Maximum size of a token file.
const TOKEN_BYTES_MAX: u64 = 4096;
/// Maximum number of names that a request may ask for.
const NAMES_MAX: usize = 256;

/// `GET /metrics`.
pub(crate) async fn metrics(
    State(shared): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Response {
    if !may_read(&shared, from, &headers) {
        let ask = [(
            header::WWW_AUTHENTICATE,
            "Basic realm=\"iolite\", charset=\"UTF-8\"",
        )];
        return (StatusCode::UNAUTHORIZED, ask, "say who you are\n").into_response();
    }
    let accept = headers
        .get(header::ACCEPT)
        .and_then(|value| value.to_str().ok());
    let format = Format::of_accept(accept.unwrap_or_default());
    let text = write(
        &shared.all_metrics(),
        format,
        &names(&query.unwrap_or_default()),
    );
    ([(header::CONTENT_TYPE, format.content_type())], text).into_response()
}

/// Returns the values of `name[]`.
fn names(query: &str) -> Vec<String> {
    let pairs = query.split('&').filter_map(|pair| pair.split_once('='));
    let names = pairs.filter(|(name, _)| matches!(*name, "name[]" | "name%5B%5D" | "name%5b%5d"));
    names
        .map(|(_, value)| value.to_owned())
        .take(NAMES_MAX)
        .collect()
}

fn may_read(shared: &Shared, from: SocketAddr, headers: &HeaderMap) -> bool {
    let settings = shared.settings();
    let is_free = match settings.metrics_auth {
        MetricsAuth::No => true,
        MetricsAuth::Yes => false,
        MetricsAuth::Auto => from.ip().to_canonical().is_loopback(),
    };
    is_free || login::who(shared, headers).is_some() || is_proved(shared, from, headers)
}

/// Returns whether a request has the token of the file, or the name and password of a user who may
/// run INFO.
fn is_proved(shared: &Shared, from: SocketAddr, headers: &HeaderMap) -> bool {
    let given = headers
        .get(header::AUTHORIZATION)
        .and_then(|value| value.to_str().ok());
    let Some((scheme, rest)) = given.and_then(|given| given.split_once(' ')) else {
        return false;
    };
    if scheme.eq_ignore_ascii_case("bearer") {
        let token = token(shared);
        // The hashes are compared, in a time that does not depend on where they differ.
        return token
            .is_some_and(|token| Digest::of(&token).is_same(&Digest::of(rest.trim().as_bytes())));
    }
    let pair = scheme
        .eq_ignore_ascii_case("basic")
        .then(|| decode(rest.trim()))
        .flatten();
    let Some(pair) = pair else { return false };
    let at = pair
        .iter()
        .position(|&byte| byte == b':')
        .unwrap_or(pair.len());
    let (user, password) = (&pair[..at], pair.get(at + 1..).unwrap_or_default());
    shared.sessions.may(user, password, "info", from) == Admission::Admitted
}

#[allow(
    clippy::disallowed_methods,
    reason = "a short file, on the thread of the management port"
)]
fn token(shared: &Shared) -> Option<Vec<u8>> {
    let path = shared.settings().metrics_token_file.clone()?;
    let length = std::fs::metadata(&path).ok()?.len();
    let token = (length <= TOKEN_BYTES_MAX)
        .then(|| std::fs::read(&path).ok())
        .flatten()?;
    let token = token.trim_ascii().to_vec();
    (!token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests {
    #[test]
    fn names_are_taken_from_the_query() {
        assert_eq!(super::names("name[]=a&x=1&name%5B%5D=b&name=c"), ["a", "b"]);
        assert!(super::names("").is_empty());
    }
}
