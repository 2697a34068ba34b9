//! A server that was built without TLS: the interface of `tls.rs` for [`Node`](crate::node::Node),
//! without effect. The configuration refuses everything that would need more.

use std::fmt;
use std::io;
use std::sync::Arc;

use base::clock::Clock;
use reactor::{Balancer, Porter, Security};

use crate::config::{Config, Tls};
use crate::node::Node;

/// See the module documentation. It has a field, so that it is constructed as the other variant is.
#[derive(Debug, Default)]
pub struct TlsSetup(());

/// Never constructed.
#[derive(Debug)]
pub enum Prepared {}

/// Never constructed.
#[derive(Debug)]
pub enum SetupError {}

impl fmt::Display for SetupError {
    fn fmt(&self, _f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {}
    }
}

impl std::error::Error for SetupError {}

#[allow(missing_docs, reason = "see the other form of this module")]
#[allow(clippy::missing_errors_doc, reason = "there are none")]
impl TlsSetup {
    pub fn join(&self, _node: &Arc<Node>) {}

    pub fn prepare(
        &self,
        _clock: &Arc<dyn Clock>,
        _config: &Tls,
    ) -> Result<Option<Prepared>, SetupError> {
        Ok(None)
    }

    pub fn enforce(&self, _prepared: Option<Prepared>) -> io::Result<Option<Arc<dyn Porter>>> {
        Ok(None)
    }

    pub fn start(&self, _balancer: &Arc<Balancer>) -> io::Result<()> {
        Ok(())
    }

    pub fn stop(&self) {}

    #[must_use]
    pub fn info(&self, _now_unix_ms: u64) -> String {
        String::new()
    }
}

/// Returns none.
#[must_use]
pub fn user_names<'a>(_config: &Config, _security: &'a Security) -> Vec<&'a str> {
    Vec::new()
}
