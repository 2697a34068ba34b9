//! Checks before any handler runs: they refuse requests that a foreign page made a browser send.
//!
//! `Host` must name this machine or an allowed name. A name that a foreign page owns and that
//! resolves to this machine (DNS rebinding) is neither. A change must be a POST of JSON with a
//! header that no form and no plain cross-origin request can carry, and its `Origin`, if present,
//! must be the host that the request was sent to.

use std::net::{IpAddr, SocketAddr};

use axum::extract::{ConnectInfo, Request, State};
use axum::http::header::{self, HeaderName, HeaderValue};
use axum::http::{HeaderMap, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse as _, Response};

use crate::rest;
use crate::shared::Shared;

/// The header that every change must have.
const OWN_HEADER: &str = "x-iolite";

/// The policy for what pages may load and which pages may embed them.
const CONTENT_POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; \
     connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

/// Refuses requests that no honest client sends, and adds the headers that restrict browsers.
pub(crate) async fn check(
    State(shared): State<Shared>,
    ConnectInfo(from): ConnectInfo<SocketAddr>,
    request: Request,
    next: Next,
) -> Response {
    let settings = shared.settings();
    let is_foreign = !from.ip().to_canonical().is_loopback();
    let fault = if settings.protected_mode && is_foreign && shared.sessions.is_open() {
        Some("no password is set, and protected mode is on: only this machine may ask")
    } else if !host_is_known(request.headers(), &settings.allowed_hosts) {
        Some("the header Host names neither this machine nor one of http-allowed-hosts")
    } else if request.method() == Method::POST {
        if settings.has_commands && is_command_without_token(&request) {
            shared.count_refusal();
            return rest::unauthorized();
        }
        fault_of_change(&request)
    } else if request.method() != Method::GET && request.method() != Method::HEAD {
        Some("only GET, HEAD and POST are served")
    } else {
        None
    };
    let mut response = match fault {
        Some(reason) => {
            shared.count_refusal();
            (StatusCode::FORBIDDEN, format!("{reason}\n")).into_response()
        }
        None => next.run(request).await,
    };
    bind(response.headers_mut());
    response
}

fn bind(headers: &mut HeaderMap) {
    for (name, value) in [
        (header::CONTENT_SECURITY_POLICY, CONTENT_POLICY),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
        (
            HeaderName::from_static("cross-origin-resource-policy"),
            "same-origin",
        ),
        (
            HeaderName::from_static("cross-origin-opener-policy"),
            "same-origin",
        ),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    let no_store = HeaderValue::from_static("no-store");
    headers.entry(header::CACHE_CONTROL).or_insert(no_store);
}

/// Returns whether a request may only be served with a token and has none. Programs know the
/// response to that. The request runs nothing, so no foreign page gains by it.
fn is_command_without_token(request: &Request) -> bool {
    let headers = request.headers();
    let path = request.uri().path();
    let is_of_console = path.starts_with("/api/") || path == "/login" || path == "/logout";
    !is_of_console
        && !headers.contains_key(header::AUTHORIZATION)
        && !headers.contains_key(OWN_HEADER)
}

fn fault_of_change(request: &Request) -> Option<&'static str> {
    let headers = request.headers();
    let text = |name: HeaderName| headers.get(name).and_then(|value| value.to_str().ok());
    let kind = text(header::CONTENT_TYPE).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default().trim();
    // A program that sends its own token is not a misled browser.
    let has_token = text(header::AUTHORIZATION).is_some_and(|value| value.starts_with("Bearer "));
    if !has_token && !kind.eq_ignore_ascii_case("application/json") {
        return Some("a change is sent as application/json");
    }
    if !has_token && !headers.contains_key(OWN_HEADER) {
        return Some("a change has the header X-Iolite");
    }
    let origin = headers.get(header::ORIGIN)?;
    let host = text(header::HOST).unwrap_or_default();
    let origin = origin.to_str().unwrap_or_default();
    let of_origin = origin.split_once("://").map(|(_, host)| host);
    (of_origin != Some(host)).then_some("the header Origin is of another page")
}

/// Returns whether a request was sent to this machine by a name or address that no foreign page can
/// own.
fn host_is_known(headers: &HeaderMap, allowed: &[String]) -> bool {
    let mut hosts = headers.get_all(header::HOST).iter();
    let (Some(host), None) = (hosts.next(), hosts.next()) else {
        return false;
    };
    let Ok(host) = host.to_str() else {
        return false;
    };
    let name = without_port(host);
    name.eq_ignore_ascii_case("localhost")
        || name.to_ascii_lowercase().ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok()
        || allowed
            .iter()
            .any(|one| one == "*" || one.eq_ignore_ascii_case(name))
}

/// Returns the host of `host`, `host:port`, `[address]` or `[address]:port`.
fn without_port(host: &str) -> &str {
    if let Some(rest) = host.strip_prefix('[') {
        return rest.split_once(']').map_or("", |(address, _)| address);
    }
    host.rsplit_once(':').map_or(host, |(name, _)| name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn known(host: &str, allowed: &[&str]) -> bool {
        let mut headers = HeaderMap::new();
        headers.insert(header::HOST, HeaderValue::from_str(host).unwrap());
        let allowed: Vec<String> = allowed.iter().map(|&name| name.to_owned()).collect();
        host_is_known(&headers, &allowed)
    }

    #[test]
    fn hosts_are_this_machine_addresses_or_allowed_names() {
        for host in [
            "localhost:9121",
            "127.0.0.1:9121",
            "[::1]:9121",
            "10.1.2.3",
            "LOCALHOST",
            "a.localhost",
        ] {
            assert!(known(host, &[]), "{host}");
        }
        for host in [
            "evil.example",
            "evil.example:9121",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "[evil",
            "",
        ] {
            assert!(!known(host, &[]), "{host}");
        }
        assert!(known("cache.example:9121", &["cache.example"]));
        assert!(!host_is_known(&HeaderMap::new(), &[]));
    }

    fn change(headers: &[(&'static str, &str)]) -> Option<&'static str> {
        let mut request = Request::builder().method(Method::POST).uri("/api/command");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        fault_of_change(&request.body(axum::body::Body::empty()).unwrap())
    }

    #[test]
    fn changes_are_json_with_the_own_header_from_the_own_page() {
        let host = ("host", "localhost:9121");
        let json = ("content-type", "application/json; charset=utf-8");
        let own = ("x-iolite", "1");
        assert_eq!(change(&[host, json, own]), None);
        assert_eq!(
            change(&[host, json, own, ("origin", "http://localhost:9121")]),
            None
        );
        assert!(change(&[host, json, own, ("origin", "http://evil.example")]).is_some());
        assert!(change(&[host, json, own, ("origin", "null")]).is_some());
        assert!(change(&[host, json]).is_some());
        assert!(change(&[host, own, ("content-type", "text/plain")]).is_some());
        assert!(
            change(&[
                host,
                own,
                ("content-type", "application/x-www-form-urlencoded")
            ])
            .is_some()
        );
        assert!(change(&[host, own]).is_some());
    }
}
