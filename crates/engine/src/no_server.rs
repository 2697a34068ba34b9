//! A server port without a server: nothing is notified and nothing is answered.
//!
//! For commands that are replayed, whose replies and events were sent when they first ran; for
//! tests and for the fuzz targets.

use std::sync::Arc;

use protocol::Reply;
use store::{Handle, Key};

use crate::client_record::ClientRecord;
use crate::error::CommandError;
use crate::port::{
    ClientFilter, ClientsPort, ClusterPort, ConfigPort, KillCount, PersistencePort, ProcessPort,
    PubSubPort, Published, ReplicationPort, ServerMemory, ShutdownRequest, TrackingPort, UsersPort,
};
use crate::push::Push;
use crate::replication::Copies;
use crate::session::Session;
use crate::topic::{Topic, TopicKind};
use crate::tracking::Follower;
use crate::waiting::Progress;

/// The error for a request to the missing server.
const NOT_NOW: CommandError = CommandError::fixed("ERR not allowed without a server");

/// A port with no server behind it.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoServer {
    /// Whether DEBUG is allowed.
    pub allows_debug: bool,
}

impl ReplicationPort for NoServer {}

impl ClusterPort for NoServer {}

impl crate::port::TierPort for NoServer {}

impl Progress for NoServer {
    fn durable(&self) -> u64 {
        0
    }

    fn copies(&self, _sequence: u64) -> Copies {
        Copies::default()
    }
}

impl ConfigPort for NoServer {
    fn config_get(&mut self, _patterns: &[&[u8]], _emit: &mut dyn FnMut(&[u8], &[u8])) {}

    fn config_set(
        &mut self,
        _pairs: &[(&[u8], &[u8])],
        _may_wait: bool,
    ) -> Result<(), CommandError> {
        Err(NOT_NOW)
    }

    fn config_rewrite(&mut self, _all: bool) -> Result<(), CommandError> {
        Err(NOT_NOW)
    }

    fn debug_allowed(&self, _session: &Session) -> bool {
        self.allows_debug
    }
}

impl ClientsPort for NoServer {
    fn clients(&mut self, _filter: &ClientFilter) -> String {
        String::new()
    }

    fn client(&mut self, _id: u64) -> Option<Arc<ClientRecord>> {
        None
    }

    fn answer(&mut self, _client: &ClientRecord, _reply: Vec<u8>) {}

    fn kill_clients(&mut self, _session: &Session, _filter: &ClientFilter) -> KillCount {
        KillCount::default()
    }

    fn push(&mut self, _to: &ClientRecord, _push: &Push) {}

    fn pause_clients(&mut self, _until_unix_ms: u64, _writes_only: bool) {}

    fn unpause_clients(&mut self) {}
}

impl UsersPort for NoServer {}

impl PubSubPort for NoServer {
    fn publish(&mut self, _kind: TopicKind, _channel: &[u8], _message: &[u8]) -> Published {
        Published::default()
    }

    fn subscribe(
        &mut self,
        _session: &mut Session,
        kind: TopicKind,
        name: &[u8],
        _reply: &mut Reply<'_>,
    ) -> Topic {
        let name = Arc::from(name);
        Topic { kind, name }
    }

    fn unsubscribe(&mut self, _session: &mut Session, _topic: &Topic, _reply: &mut Reply<'_>) {}

    fn catch_up(&mut self, _session: &mut Session, _reply: &mut Reply<'_>) {}

    fn channels(&self, _kind: TopicKind) -> Vec<Arc<[u8]>> {
        Vec::new()
    }

    fn subscribers(&self, _kind: TopicKind, _channel: &[u8]) -> usize {
        0
    }

    fn patterns_count(&self) -> usize {
        0
    }
}

impl TrackingPort for NoServer {
    fn follow(&mut self, _follower: &Arc<Follower>) {}

    fn unfollow(&mut self, _store: &mut Handle, _follower: &Arc<Follower>) {}

    fn track(&mut self, _store: &mut Handle, _follower: &Arc<Follower>, _keys: &[Key<'_>]) {}

    fn tell_flush(&mut self, _store: &mut Handle) {}
}

impl PersistencePort for NoServer {
    fn last_save_unix(&self) -> i64 {
        0
    }
}

impl ProcessPort for NoServer {
    fn info(&mut self, _store: &mut Handle, _sections: &[String]) -> String {
        String::new()
    }

    fn reset_statistics(&mut self) {}

    fn shutdown(&mut self, _request: ShutdownRequest) -> Result<(), CommandError> {
        Err(NOT_NOW)
    }

    fn now_unix_us(&self) -> u64 {
        0
    }

    fn sleep_seconds(&mut self, _seconds: f64) {}

    fn set_active_expire(&mut self, _on: bool) {}

    fn memory(&mut self) -> ServerMemory {
        ServerMemory::default()
    }

    fn purge_memory(&mut self, _store: &mut Handle) {}
}
