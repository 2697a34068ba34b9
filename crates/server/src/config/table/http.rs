//! Directives of the management port.

use super::super::directive::Directive;
use super::super::http::MetricsAuth;
use super::super::value::Kind;
use super::works::spellings;
use super::{PORT_MAX, SWITCH, TEXT, integer, words};

/// Spellings of [`MetricsAuth`].
pub(crate) const METRICS_AUTH: [(&str, MetricsAuth); 3] = [
    ("auto", MetricsAuth::Auto),
    ("no", MetricsAuth::No),
    ("yes", MetricsAuth::Yes),
];
const AUTH: Kind = Kind::Choice(&spellings(METRICS_AUTH));
/// Addresses and host names.
const NAMES: Kind = words(64);
/// Half a day; the maximum is a month.
const TTL_DEFAULT: &str = "43200";
const TTL_S_MAX: i128 = 2_592_000;
/// A day.
const OTLP_S_MAX: i128 = 86_400;

const PORT: Directive = Directive::new("http-port", integer(0, PORT_MAX), "0").at_start();
const TLS: Directive = Directive::new("http-tls", SWITCH, "no").at_start();
#[cfg(not(feature = "http"))]
const NOT_BUILT: &str = "was built without the management port";

#[rustfmt::skip] // One row, one directive.
pub(super) const ROWS: &[Directive] = &[
    #[cfg(feature = "http")]
    PORT,
    #[cfg(not(feature = "http"))]
    PORT.fixed(NOT_BUILT),
    Directive::new("http-bind", NAMES, "127.0.0.1 -::1").at_start(),
    #[cfg(feature = "tls")]
    TLS,
    #[cfg(not(feature = "tls"))]
    TLS.fixed("was built without TLS"),
    Directive::new("http-metrics-auth", AUTH, "auto"),
    Directive::new("http-metrics-token-file", TEXT, ""),
    Directive::new("http-allowed-hosts", NAMES, ""),
    Directive::new("http-console", SWITCH, "yes"),
    Directive::new("http-commands", SWITCH, "no"),
    Directive::new("http-session-ttl", integer(60, TTL_S_MAX), TTL_DEFAULT),
    Directive::new("otlp-endpoint", TEXT, ""),
    Directive::new("otlp-interval", integer(1, OTLP_S_MAX), "60"),
    Directive::new("otlp-headers-file", TEXT, ""),
    Directive::new("otlp-ca-cert-file", TEXT, ""),
];
