//! Requests between Raft's nodes, as bytes. A carrier, unknown here, transports them.
//!
//! A request is its kind and its fields, and so is an answer. Peers are already authenticated.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use cluster::bytes::{Malformed, Reader, Writer};
use cluster::{Proposal, Unavailable};
use openraft::errors::{RPCError, ReplicationClosed, StreamingError, Unreachable};
use openraft::network::RPCOption;
use openraft::raft::{
    AppendEntriesRequest, AppendEntriesResponse, SnapshotResponse, TransferLeaderRequest,
    TransferLeaderResponse, VoteRequest, VoteResponse,
};
use openraft::{Raft, RaftNetworkFactory, RaftNetworkV2, ReadPolicy, Snapshot};

use crate::codec::{read_entry, read_log_id, read_vote, write_entry, write_log_id, write_vote};
use crate::machine::{Machine, Whole, decode_snapshot, encode_snapshot};
use crate::{Data, Types, Vote};

const APPEND: u8 = 1;
const VOTE: u8 = 2;
const PRE_VOTE: u8 = 3;
const SNAPSHOT: u8 = 4;
/// A node asks its leader to propose an entry.
const PROPOSE: u8 = 5;
/// A node asks its leader for an index that covers every entry committed before.
const BARRIER: u8 = 6;
/// The leader asks a voter to take over leadership.
const TRANSFER: u8 = 7;
/// Upper bound of the entries in one request.
const ENTRIES_MAX: usize = 65_536;

/// Why there is no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unreached(pub String);

/// Carries requests to peers, and returns their answers.
pub trait Carrier: Send + Sync + 'static {
    /// Sends a request to a node and waits up to `time` for the answer.
    fn ask(
        &self,
        to: u64,
        request: Vec<u8>,
        time: Duration,
    ) -> impl Future<Output = Result<Vec<u8>, Unreached>> + Send;
}

/// Creates connections to peers.
#[derive(Debug)]
pub struct Network<K>(pub Arc<K>);

/// The connection to one peer.
#[derive(Debug)]
pub struct Peer<K> {
    carrier: Arc<K>,
    id: u64,
}

impl<C: Types, K: Carrier> RaftNetworkFactory<C> for Network<K> {
    type Network = Peer<K>;

    async fn new_client(&mut self, target: u64, _: &C::Node) -> Peer<K> {
        Peer {
            carrier: Arc::clone(&self.0),
            id: target,
        }
    }
}

impl<K: Carrier> Peer<K> {
    async fn ask<C: Types, R>(
        &self,
        request: Writer,
        time: Duration,
        read: impl Fn(&mut Reader<'_>) -> Result<R, Malformed>,
    ) -> Result<R, Unreachable<C>> {
        let answer = self.carrier.ask(self.id, request.0, time).await;
        let answer = answer.map_err(|why| Unreachable::from_string(why.0))?;
        let mut reader = Reader(&answer);
        let read = read(&mut reader).and_then(|read| reader.end().map(|()| read));
        read.map_err(|what| Unreachable::from_string(format!("a peer's answer: {what}")))
    }
}

impl<C: Types, K: Carrier> RaftNetworkV2<C> for Peer<K> {
    type SnapshotData = Vec<u8>;

    async fn append_entries(
        &mut self,
        rpc: AppendEntriesRequest<C>,
        option: RPCOption,
    ) -> Result<AppendEntriesResponse<C>, RPCError<C>> {
        let mut writer = Writer::default();
        write_vote(writer.u8(APPEND), rpc.vote);
        write_log_id(&mut writer, rpc.prev_log_id);
        write_log_id(&mut writer, rpc.leader_commit);
        writer.count(rpc.entries.len());
        for entry in &rpc.entries {
            write_entry(&mut writer, entry);
        }
        let answer = self.ask(writer, option.hard_ttl(), read_appended).await;
        Ok(answer?)
    }

    async fn vote(
        &mut self,
        rpc: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        let answer = self
            .ask(vote_request(VOTE, &rpc), option.hard_ttl(), read_voted)
            .await;
        Ok(answer?)
    }

    async fn pre_vote(
        &mut self,
        rpc: VoteRequest<C>,
        option: RPCOption,
    ) -> Result<VoteResponse<C>, RPCError<C>> {
        let request = vote_request(PRE_VOTE, &rpc);
        let answer = self.ask(request, option.hard_ttl(), read_voted).await;
        Ok(answer?)
    }

    async fn transfer_leader(
        &mut self,
        rpc: TransferLeaderRequest<C>,
        option: RPCOption,
    ) -> Result<TransferLeaderResponse<C>, RPCError<C>> {
        let mut writer = Writer::default();
        write_vote(writer.u8(TRANSFER), *rpc.from_leader());
        writer.u64(*rpc.to_node_id());
        write_log_id(&mut writer, rpc.last_log_id().copied());
        // It shows when the voter leads.
        self.ask(writer, option.hard_ttl(), |_| Ok(())).await?;
        Ok(Ok(()))
    }

    async fn full_snapshot(
        &mut self,
        vote: Vote,
        snapshot: Whole,
        _cancel: impl Future<Output = ReplicationClosed> + openraft::OptionalSend + 'static,
        option: RPCOption,
    ) -> Result<SnapshotResponse<C>, StreamingError<C>> {
        let mut writer = Writer::default();
        write_vote(writer.u8(SNAPSHOT), vote);
        writer.raw(&encode_snapshot(&snapshot.meta, &snapshot.snapshot));
        let answer = self.ask(writer, option.hard_ttl(), read_vote).await;
        Ok(SnapshotResponse::new(answer?))
    }
}

fn vote_request<C: Types>(kind: u8, rpc: &VoteRequest<C>) -> Writer {
    let mut writer = Writer::default();
    write_vote(writer.u8(kind), rpc.vote);
    write_log_id(&mut writer, rpc.last_log_id);
    writer.u8(u8::from(rpc.leadership_transfer));
    writer
}

fn read_appended<C: Types>(reader: &mut Reader<'_>) -> Result<AppendEntriesResponse<C>, Malformed> {
    Ok(match reader.u8()? {
        0 => AppendEntriesResponse::Success,
        1 => AppendEntriesResponse::PartialSuccess(read_log_id(reader)?),
        2 => AppendEntriesResponse::Conflict,
        3 => AppendEntriesResponse::HigherVote(read_vote(reader)?),
        kind => return Err(Malformed::Kind(kind)),
    })
}

fn read_voted<C: Types>(reader: &mut Reader<'_>) -> Result<VoteResponse<C>, Malformed> {
    Ok(VoteResponse {
        vote: read_vote(reader)?,
        vote_granted: reader.bool()?,
        last_log_id: read_log_id(reader)?,
    })
}

fn write_voted<C: Types>(response: &VoteResponse<C>) -> Writer {
    let mut writer = Writer::default();
    write_vote(&mut writer, response.vote);
    writer.u8(u8::from(response.vote_granted));
    write_log_id(&mut writer, response.last_log_id);
    writer
}

/// Returns the leader, by term and Raft id, that is acknowledged by answering this request.
#[must_use]
pub fn leader_of(request: &[u8]) -> Option<(u64, u64)> {
    let (kind, rest) = request.split_first()?;
    let vote = read_vote(&mut Reader(rest)).ok()?;
    let is_of_leader = matches!(*kind, APPEND | SNAPSHOT) && vote.committed;
    is_of_leader.then_some((vote.leader_id.term, vote.leader_id.node_id))
}

/// Answers a peer's request to this node.
///
/// # Errors
/// If it is malformed, or if this node's Raft has ended.
pub async fn serve<C: Types>(raft: &Raft<C, Machine>, request: &[u8]) -> Result<Vec<u8>, String> {
    let malformed = |what: Malformed| format!("a request of a peer: {what}");
    let (kind, rest) = request.split_first().ok_or("an empty request")?;
    match *kind {
        PROPOSE => {
            Proposal::decode(rest).map_err(malformed)?;
            return Ok(write_led(propose(raft, rest.to_vec()).await).0);
        }
        BARRIER if rest.is_empty() => return Ok(write_led(barrier(raft).await).0),
        _ => {}
    }
    let mut reader = Reader(rest);
    let vote = read_vote(&mut reader).map_err(malformed)?;
    match *kind {
        APPEND => {
            let request = read_append(vote, &mut reader).map_err(malformed)?;
            let answer = raft.append_entries(request).await;
            Ok(write_appended(&answer.map_err(|error| error.to_string())?).0)
        }
        VOTE | PRE_VOTE => {
            let mut read = || {
                let mut request = VoteRequest::new(vote, read_log_id(&mut reader)?);
                request.leadership_transfer = reader.bool()?;
                reader.end().map(|()| request)
            };
            let request = read().map_err(malformed)?;
            let answer = match *kind {
                VOTE => raft.vote(request).await,
                _ => raft.pre_vote(request).await,
            };
            Ok(write_voted(&answer.map_err(|error| error.to_string())?).0)
        }
        TRANSFER => {
            let mut read = || {
                let (to, last) = (reader.u64()?, read_log_id(&mut reader)?);
                reader.end()?;
                Ok(TransferLeaderRequest::new(vote, to, last))
            };
            let request = read().map_err(malformed)?;
            let answer = raft.handle_transfer_leader(request).await;
            let answer = answer.map_err(|error| error.to_string())?;
            answer.map_err(|refusal| refusal.to_string())?;
            Ok(Vec::new())
        }
        SNAPSHOT => {
            let (meta, snapshot) = decode_snapshot(reader.0).map_err(malformed)?;
            let whole = Snapshot { meta, snapshot };
            let answer = raft.install_full_snapshot(vote, whole).await;
            let mut writer = Writer::default();
            write_vote(&mut writer, answer.map_err(|error| error.to_string())?.vote);
            Ok(writer.0)
        }
        kind => Err(malformed(Malformed::Kind(kind))),
    }
}

/// Why this node refuses a leader's task.
pub(crate) type NotLed = Unavailable;

/// Proposes an entry and waits until it is applied here, if this node leads. Returns the result as
/// a number.
pub(crate) async fn propose<C: Types>(
    raft: &Raft<C, Machine>,
    proposal: Vec<u8>,
) -> Result<u64, NotLed> {
    let written = raft.client_write(Data(proposal)).await;
    let written =
        written.map_err(|error| not_led(error.forward_to_leader().map(|to| to.leader_id)))?;
    let applied = written.data.ok_or(NotLed::NoMajority)?;
    Ok(applied as u64)
}

/// Returns the index that a read has to see, if this node leads.
pub(crate) async fn barrier<C: Types>(raft: &Raft<C, Machine>) -> Result<u64, NotLed> {
    match raft.get_read_log_id(ReadPolicy::ReadIndex).await {
        Ok((read, _)) => Ok(read.index()),
        Err(error) => Err(not_led(error.forward_to_leader().map(|to| to.leader_id))),
    }
}

fn not_led(forward: Option<Option<u64>>) -> NotLed {
    forward.map_or(NotLed::NoMajority, NotLed::NotLeader)
}

pub(crate) fn propose_request(proposal: &[u8]) -> Vec<u8> {
    [&[PROPOSE], proposal].concat()
}

pub(crate) fn barrier_request() -> Vec<u8> {
    vec![BARRIER]
}

fn write_led(led: Result<u64, NotLed>) -> Writer {
    let mut writer = Writer::default();
    match led {
        Ok(number) => drop(writer.u8(0).u64(number)),
        Err(NotLed::NotLeader(None)) => drop(writer.u8(1)),
        Err(NotLed::NotLeader(Some(leader))) => drop(writer.u8(2).u64(leader)),
        // The proposer checks levels.
        Err(NotLed::NoMajority | NotLed::Level(_) | NotLed::CannotWrite) => drop(writer.u8(3)),
        Err(NotLed::Ended) => drop(writer.u8(4)),
    }
    writer
}

pub(crate) fn read_led(bytes: &[u8]) -> Result<Result<u64, NotLed>, Malformed> {
    let mut reader = Reader(bytes);
    let led = match reader.u8()? {
        0 => Ok(reader.u64()?),
        1 => Err(NotLed::NotLeader(None)),
        2 => Err(NotLed::NotLeader(Some(reader.u64()?))),
        3 => Err(NotLed::NoMajority),
        4 => Err(NotLed::Ended),
        kind => return Err(Malformed::Kind(kind)),
    };
    reader.end()?;
    Ok(led)
}

fn read_append<C: Types>(
    vote: Vote,
    reader: &mut Reader<'_>,
) -> Result<AppendEntriesRequest<C>, Malformed> {
    let (prev_log_id, leader_commit) = (read_log_id(reader)?, read_log_id(reader)?);
    let count = reader.count()?;
    if count > ENTRIES_MAX {
        return Err(Malformed::Length);
    }
    let entries = (0..count)
        .map(|_| read_entry(reader))
        .collect::<Result<_, _>>()?;
    reader.end()?;
    Ok(AppendEntriesRequest {
        vote,
        prev_log_id,
        entries,
        leader_commit,
    })
}

fn write_appended<C: Types>(response: &AppendEntriesResponse<C>) -> Writer {
    let mut writer = Writer::default();
    match response {
        AppendEntriesResponse::Success => drop(writer.u8(0)),
        AppendEntriesResponse::PartialSuccess(id) => write_log_id(writer.u8(1), *id),
        AppendEntriesResponse::Conflict => drop(writer.u8(2)),
        AppendEntriesResponse::HigherVote(vote) => write_vote(writer.u8(3), *vote),
    }
    writer
}
