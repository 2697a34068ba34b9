//! The management port. Whatever a connection sends, the answer is HTTP or nothing.
//!
//! The input is everything that the connection sends. The server behind the port refuses every
//! login and opens no session.
#![no_main]

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use base::metrics::Metric;
use console::{
    Admission, Export, Figures, Link, MetricsAuth, Section, Sessions, Settings, Unready, answer,
};
use libfuzzer_sys::fuzz_target;

struct Nothing;

impl Figures for Nothing {
    fn metrics(&self) -> Vec<Metric> {
        Vec::new()
    }

    fn info(&self, _asked: &[String]) -> Vec<Section> {
        Vec::new()
    }

    fn nudge(&self) {}

    fn stuck(&self) -> Vec<usize> {
        Vec::new()
    }

    fn ready(&self) -> Result<(), Unready> {
        Ok(())
    }

    fn log_lines(&self, _after: u64) -> Vec<(u64, String)> {
        Vec::new()
    }
}

impl Sessions for Nothing {
    fn open(
        &self,
        _from: SocketAddr,
        _notify: Arc<dyn Fn() + Send + Sync>,
    ) -> io::Result<Box<dyn Link>> {
        Err(io::ErrorKind::PermissionDenied.into())
    }

    fn may(&self, _user: &[u8], _password: &[u8], _command: &str, _from: SocketAddr) -> Admission {
        Admission::Refused
    }

    fn allows(&self, _user: &[u8], _command: &str) -> bool {
        false
    }

    fn is_open(&self) -> bool {
        false
    }

    fn mark(&self, _user: &[u8]) -> Option<u64> {
        None
    }
}

fuzz_target!(|input: &[u8]| {
    let settings = Settings {
        addresses: Vec::new(),
        metrics_auth: MetricsAuth::Auto,
        metrics_token_file: None,
        allowed_hosts: Vec::new(),
        has_console: true,
        has_commands: true,
        session_ttl: Duration::from_secs(60),
        export: Export::default(),
        is_encrypted: false,
        protected_mode: true,
    };
    let Ok(answered) = answer(input, settings, Arc::new(Nothing), Arc::new(Nothing)) else {
        return;
    };
    assert!(
        answered.is_empty() || answered.starts_with(b"HTTP/1."),
        "{}",
        answered.escape_ascii()
    );
});
