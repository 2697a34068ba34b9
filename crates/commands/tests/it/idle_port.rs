//! A server around the commands that has nothing and can do nothing.

use std::sync::Arc;

use commands::{
    ClientFilter, ClientRecord, CommandError, Follower, KillCount, Published, Push, ServerMemory,
    ServerPort, Session, ShutdownRequest, Topic, TopicKind,
};
use protocol::Reply;
use store::{Handle, Key};

/// The port of tests that ask it for nothing.
pub(crate) struct IdlePort;

impl ServerPort for IdlePort {
    fn config_get(&mut self, patterns: &[&[u8]], emit: &mut dyn FnMut(&[u8], &[u8])) {
        for pattern in patterns {
            emit(pattern, b"value");
        }
    }

    fn config_set(&mut self, _pairs: &[(&[u8], &[u8])]) -> Result<(), CommandError> {
        Err(CommandError::fixed("ERR no configuration"))
    }

    fn config_rewrite(&mut self) -> Result<(), CommandError> {
        Err(CommandError::fixed("ERR no configuration"))
    }

    fn reset_statistics(&mut self) {}

    fn info(&mut self, _store: &mut Handle, sections: &[String]) -> String {
        sections.join("\r\n")
    }

    fn clients(&mut self, _filter: &ClientFilter) -> String {
        String::new()
    }

    fn kill_clients(&mut self, _session: &Session, _filter: &ClientFilter) -> KillCount {
        KillCount::default()
    }

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

    fn client(&mut self, _id: u64) -> Option<Arc<ClientRecord>> {
        None
    }

    fn answer(&mut self, _client: &ClientRecord, _reply: Vec<u8>) {}
    fn follow(&mut self, _follower: &Arc<Follower>) {}

    fn unfollow(&mut self, _store: &mut Handle, _follower: &Arc<Follower>) {}

    fn track(&mut self, _store: &mut Handle, _follower: &Arc<Follower>, _keys: &[Key<'_>]) {}

    fn tell_flush(&mut self, _store: &mut Handle) {}

    fn push(&mut self, _to: &ClientRecord, _push: &Push) {}

    fn pause_clients(&mut self, _until_unix_ms: u64, _writes_only: bool) {}

    fn unpause_clients(&mut self) {}

    fn shutdown(&mut self, _request: ShutdownRequest) -> Result<(), CommandError> {
        Err(CommandError::fixed("ERR nothing to shut down"))
    }

    fn last_save_unix(&self) -> i64 {
        0
    }

    fn debug_allowed(&self, _session: &Session) -> bool {
        true
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
