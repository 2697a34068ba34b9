//! Serves a replica that speaks PSYNC: one thread for each, from the moment its connection leaves
//! its worker.
//!
//! ```text
//!   PSYNC id offset ──► is that in the log? ──► +CONTINUE ─────────────────────────────► the stream from there
//!                           │ no
//!                           └──► +FULLRESYNC id offset ──► a checkpoint as an RDB file ──► the stream after it
//! ```
//!
//! Invariants
//!  1. The thread holds a cursor, one piece of the log and that piece as commands: a slow replica
//!     delays only itself. Only a frame that is longer than a piece is held as a whole.
//!  2. A replica's acknowledgements count only after it has loaded the data of its full sync:
//!     before that it is not online.
//!  3. An offset is acknowledged as the sequence of the last frame whose bytes all lie below it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use base::random::Prng;
use durability::log::{Log, Waker as LogWaker};
use engine::{ClientRecord, SyncRequest};
use persistence::rdb_stream::{StreamOptions, stream_checkpoint};
use protocol::{Batch, Decoder, Limits};
use reactor::{Detached, Waker};
use replication::psync::{Asked, Decision, FullCause, History, ReplicationId, decide};
use replication::transcode::{Form, Peer, Skip, Transcoder};

use super::history::new_id;
use super::replicas::{Ack, Attached, Kind, NewReplica, ReplicaState};
use super::role::Role;
use super::state::Replication;
use super::stream::{Frames, Obstacle, put};
use super::sync_source::{Making, Progress, Source};
use crate::config::system_reason;
use crate::identity;
use crate::node::Node;

/// Period of the empty lines that a waiting replica is sent: it accepts nothing else as a sign of
/// life.
const ALIVE: Duration = Duration::from_secs(1);
/// How often the thread checks whether a checkpoint is ready.
const LOOK: Duration = Duration::from_millis(20);
/// The longest sleep of a thread with nothing to send.
const SLEEP: Duration = Duration::from_secs(1);
/// Number of bytes that are read from a replica at a time: acknowledgements are short.
const INPUT_BYTES: usize = 4096;
/// Maximum number of unconsumed input bytes: no replica sends longer requests.
const INPUT_BYTES_MAX: usize = 64 << 10;
/// Maximum number of ends of pieces that wait for an acknowledgement. Beyond it every second one is
/// dropped.
const MARKS_MAX: usize = 4096;
/// Number of bytes that are written to the socket at a time.
const WRITE_BYTES: usize = 64 << 10;

/// Why a link ended.
enum Ended {
    /// Normally: another thread ended it, or the replica closed it.
    Done,
    /// The connection is lost.
    Lost(io::Error),
    /// The replica sent nothing for too long.
    Silent,
    /// The replica sent something that is not part of the protocol.
    Garbage,
    /// The replica cannot be served.
    Unable(String),
}

impl From<io::Error> for Ended {
    fn from(error: io::Error) -> Self {
        Self::Lost(error)
    }
}

/// Begins to serve a connection.
#[allow(clippy::disallowed_methods, reason = "a thread for each replica")]
pub(super) fn serve(
    node: &Arc<Node>,
    client: Arc<ClientRecord>,
    request: SyncRequest,
    connection: Detached,
) {
    let (own, name) = (Arc::clone(node), format!("replica-{}", client.id));
    let spawned = std::thread::Builder::new().name(name).spawn(move || {
        client.set_flag(ClientRecord::REPLICA, true);
        own.sessions.clients.add_foreign(Arc::clone(&client));
        let id = client.id;
        let (host, port) = announced(&client, &request);
        let ended = Link::open(&own, client, request, connection)
            .and_then(|mut link| link.run())
            .err()
            .unwrap_or(Ended::Done);
        own.sessions.clients.leave_foreign(id);
        tell(&own, (&host, port), &ended);
    });
    if let Err(error) = spawned {
        node.core.log.warning(format_args!(
            "There is no thread to serve a replica: {}",
            system_reason(&error)
        ));
    }
}

/// Returns where a replica serves clients.
fn announced(client: &ClientRecord, request: &SyncRequest) -> (String, u16) {
    let host = request.hello.ip_address.clone();
    let host = host.unwrap_or_else(|| client.host().trim_matches(['[', ']']).to_owned());
    (host, request.hello.listening_port)
}

/// Logs how a link ended.
fn tell(node: &Node, (host, port): (&str, u16), ended: &Ended) {
    let log = &node.core.log;
    match ended {
        Ended::Done => log.notice(format_args!("Connection with replica {host}:{port} ended.")),
        Ended::Lost(error) => log.notice(format_args!(
            "Connection with replica {host}:{port} lost: {}",
            system_reason(error)
        )),
        Ended::Silent => log.warning(format_args!(
            "Disconnecting timedout replica: {host}:{port}"
        )),
        Ended::Garbage => log.warning(format_args!(
            "Disconnecting replica {host}:{port}, which sent what no replica sends"
        )),
        Ended::Unable(why) => {
            log.warning(format_args!("Disconnecting replica {host}:{port}: {why}"));
        }
    }
}

/// One replica's link.
struct Link {
    node: Arc<Node>,
    client: Arc<ClientRecord>,
    request: SyncRequest,
    connection: Detached,
    attached: Attached,
    bell: Waker,
    peer: Peer,
    form: Form,
    decoder: Decoder,
    batch: Batch,
    input: Vec<u8>,
    output: Vec<u8>,
    /// Number of bytes of the output that were sent.
    sent: usize,
    /// Ends of sent pieces: offset and sequence, both ascending.
    marks: VecDeque<(u64, u64)>,
    acked: Ack,
    heard_ms: u64,
    /// Whether it has acknowledged something since the data was sent.
    has_acked: bool,
}

impl Link {
    fn open(
        node: &Arc<Node>,
        client: Arc<ClientRecord>,
        request: SyncRequest,
        mut connection: Detached,
    ) -> Result<Self, Ended> {
        let (host, port) = announced(&client, &request);
        let attached = node.replication.replicas.register(NewReplica {
            client: Some(Arc::clone(&client)),
            kind: Kind::Redis,
            host,
            port,
        });
        let bell = Waker::new()?;
        let (rung, breaker) = (bell.clone(), connection.breaker()?);
        attached.stop_with(Box::new(move || {
            if let Some(breaker) = &breaker {
                breaker.break_off();
            }
            rung.wake();
        }));
        let version = request.hello.version.as_deref().unwrap_or_default();
        let config = &node.core.config.current().replication;
        let peer = Peer::of_version_sent(version.as_bytes()).unwrap_or(config.peer);
        let form = Form {
            allows_loss: config.allows_loss,
            ..Form::of(peer)
        };
        let mut link = Self {
            input: connection.take_input(),
            client,
            request,
            connection,
            attached,
            bell,
            peer,
            form,
            decoder: Decoder::default(),
            batch: Batch::new(),
            output: Vec::new(),
            sent: 0,
            marks: VecDeque::new(),
            acked: Ack::default(),
            heard_ms: 0,
            has_acked: false,
            node: Arc::clone(node),
        };
        link.heard();
        Ok(link)
    }

    fn run(&mut self) -> Result<(), Ended> {
        let (node, replication) = (Arc::clone(&self.node), &self.node.replication);
        // The stream continues from the end of the former primary's, as soon as that is known.
        while replication.role() == Role::TakingOver {
            if self.attached.is_stopping() {
                return Err(Ended::Done);
            }
            std::thread::sleep(LOOK);
        }
        let all = replication.replicas.all();
        let of_kind = all.iter().filter(|one| one.kind == Kind::Redis).count();
        let stream = &replication.stream;
        let log = stream
            .begin(&node, self.form, of_kind <= 1)
            .map_err(Ended::Unable)?;
        let asked = self.request.from.as_ref();
        let wants_part = asked.is_some() && !self.request.is_old;
        match self.decide() {
            Decision::Continue(offset) => {
                let counts = &replication.counts;
                counts.partial_syncs.fetch_add(1, Ordering::Relaxed);
                let id = replication.stream.names(&node).id;
                node.core.log.notice(format_args!(
                    "Partial resynchronization request from {} accepted, from offset {}",
                    self.client.address,
                    offset + 1
                ));
                let line = if self.request.hello.takes_new_id {
                    format!("+CONTINUE {id}\r\n")
                } else {
                    "+CONTINUE\r\n".to_owned()
                };
                self.output.extend_from_slice(line.as_bytes());
                let start = replication.stream.find(offset);
                let start = start.ok_or_else(|| Ended::Unable("its offset is gone".to_owned()))?;
                let transcoder = Transcoder::new(self.form, start.place).for_reader(self.peer);
                self.stream(&log, transcoder, start.surplus_bytes)
            }
            Decision::Full(cause) => {
                if wants_part {
                    let counts = &replication.counts;
                    counts.refused_partial_syncs.fetch_add(1, Ordering::Relaxed);
                }
                let transcoder = self.give_everything(&log, cause)?;
                if self.request.hello.only_rdb || self.request.hello.only_functions {
                    self.drain()?;
                    self.connection.shut_down();
                    return Ok(());
                }
                self.stream(&log, transcoder, 0)
            }
        }
    }

    /// Whether the offsets of its form of the stream are known.
    fn is_counted(&self) -> bool {
        self.form == self.node.replication.stream.form(&self.node)
    }

    /// Decides whether the replica's position is part of the stream.
    fn decide(&self) -> Decision {
        let replication = &self.node.replication;
        // Another form of the stream has other offsets.
        let Some((oldest, end)) = replication.stream.reach().filter(|_| self.is_counted()) else {
            return Decision::Full(FullCause::Asked);
        };
        if self.request.is_old {
            return Decision::Full(FullCause::Asked);
        }
        let own = replication.stream.names(&self.node);
        let from = self.request.from.as_ref().and_then(|(id, next)| {
            let offset = next.checked_sub(1).and_then(|it| u64::try_from(it).ok());
            ReplicationId::parse(id).zip(offset)
        });
        let history = History {
            id: own.id,
            second: own.second.map(|(id, next)| (id, next.saturating_sub(1))),
            oldest,
            end,
        };
        let asked = Asked {
            from,
            is_failover: self.request.takes_over,
        };
        decide(&history, &asked)
    }

    /// Sends a checkpoint. Returns a transcoder that is placed where the stream continues after it.
    fn give_everything(&mut self, log: &Arc<Log>, cause: FullCause) -> Result<Transcoder, Ended> {
        let node = Arc::clone(&self.node);
        node.core.log.notice(format_args!(
            "Full resync for replica {} ({cause})",
            self.client.address
        ));
        self.attached.set_state(ReplicaState::Cutting);
        let making = node.replication.sources.obtain(&node, log);
        let source = self.wait_for(&making)?;
        drop(making);
        node.replication
            .counts
            .full_syncs
            .fetch_add(1, Ordering::Relaxed);
        let place = source.place;
        if !self.request.is_old {
            let id = match self.is_counted() {
                true => node.replication.stream.names(&node).id,
                // No node keeps these offsets, so a new ID prevents the replica from reconnecting
                // with them.
                false => new_id(&mut Prng::from_os()),
            };
            let line = format!("+FULLRESYNC {id} {}\r\n", place.offset);
            self.output.extend_from_slice(line.as_bytes());
        }
        self.attached.set_state(ReplicaState::Sending);
        self.drain()?;
        self.send_data(&source)?;
        let mut transcoder = Transcoder::new(self.form, place).for_reader(self.peer);
        // Every thread that read the time before the cut has written by now.
        transcoder.hide(source.manifest.overlap().up_to(log.tail()));
        self.marks.push_back((place.offset, place.sequence));
        Ok(transcoder)
    }

    /// Waits until the checkpoint is ready, and sends empty lines to the replica meanwhile.
    fn wait_for(&mut self, making: &Arc<Making>) -> Result<Arc<Source>, Ended> {
        let mut alive_ms = self.now_ms();
        loop {
            match making.progress() {
                Progress::Made(source) => return Ok(source),
                Progress::Failed(why) => return Err(Ended::Unable(why)),
                Progress::Going => {}
            }
            if self.attached.is_stopping() {
                return Err(Ended::Done);
            }
            let now_ms = self.now_ms();
            if now_ms.saturating_sub(alive_ms) >= millis(ALIVE) {
                alive_ms = now_ms;
                self.output.push(b'\n');
            }
            self.push()?;
            self.connection.wait(false, Some(&self.bell), LOOK)?;
            self.receive()?;
        }
    }

    /// Sends a checkpoint as an RDB file.
    fn send_data(&mut self, source: &Source) -> Result<(), Ended> {
        let node = Arc::clone(&self.node);
        let options = StreamOptions {
            version: self.peer.rdb_version(),
            compresses: node.core.config.current().compresses_dumps,
            sums_up: true,
            origin: origin(&node, source),
            has_data: !self.request.hello.only_functions,
            has_functions: self.peer.has_functions(),
            allows_loss: self.form.allows_loss,
        };
        let limits = node.core.shared.settings.value_limits();
        let write = |sink: &mut dyn Write| {
            let written = stream_checkpoint(
                &*source.disk,
                &source.directory,
                &source.manifest,
                &options,
                &limits,
                sink,
            );
            written.map_err(|fault| fault.to_string())
        };
        let waits_for_ack = self.request.hello.reads_to_mark;
        let mark = Prng::from_os().hex_id();
        if waits_for_ack {
            self.output
                .extend_from_slice(format!("$EOF:{mark}\r\n").as_bytes());
        } else {
            // The file is first written to nowhere to learn its length. It is the same each time.
            let counted = write(&mut io::sink()).map_err(Ended::Unable)?;
            let line = format!("${}\r\n", counted.bytes);
            self.output.extend_from_slice(line.as_bytes());
        }
        let mut lost = None;
        let mut writer = ToReplica {
            link: self,
            lost: &mut lost,
        };
        let written = write(&mut writer);
        if let Some(ended) = lost {
            return Err(ended);
        }
        let written = written.map_err(Ended::Unable)?;
        if waits_for_ack {
            self.output.extend_from_slice(mark.as_bytes());
        }
        self.drain()?;
        let counts = &node.replication.counts;
        counts
            .output_bytes
            .fetch_add(written.bytes, Ordering::Relaxed);
        // If the file ends with a mark, the stream begins when the replica acknowledges that it has
        // loaded the data.
        self.has_acked = !waits_for_ack;
        self.heard();
        Ok(())
    }

    /// Sends the stream until the link ends.
    fn stream(
        &mut self,
        log: &Arc<Log>,
        mut transcoder: Transcoder,
        surplus_bytes: u64,
    ) -> Result<(), Ended> {
        let node = Arc::clone(&self.node);
        let rung = self.bell.clone();
        let woken: LogWaker = log.on_appended(move || rung.wake());
        let mut frames = Frames::new(log, transcoder.place().sequence);
        let mut skip = surplus_bytes;
        let mut is_at_tail = false;
        if self.request.from.is_some() && self.marks.is_empty() {
            self.has_acked = true;
        }
        if self.has_acked {
            self.attached.set_state(ReplicaState::CatchingUp);
        }
        loop {
            if self.attached.is_stopping() {
                return Err(Ended::Done);
            }
            self.receive()?;
            self.check_silence()?;
            let config = node.core.config.current();
            let now_unix_ms = node.core.clock.now_unix_ms();
            let period_ms = u64::from(config.replication.ping_period_s) * 1000;
            node.replication.stream.ping(now_unix_ms, period_ms);
            node.replication.stream.save_now_and_then(&node);
            if self.has_acked && self.sent == self.output.len() {
                self.output.clear();
                self.sent = 0;
                if is_at_tail {
                    woken.arm();
                }
                let mut sink = Skip::new(std::mem::take(&mut self.output), skip);
                let read = frames.read(|frame| put(&mut transcoder, frame, &mut sink));
                skip = sink.left();
                self.output = std::mem::take(sink.sink_mut());
                match read {
                    Ok(there_was) => {
                        if !there_was && is_at_tail {
                            self.settle(&node, log)?;
                        }
                        is_at_tail = !there_was;
                    }
                    Err(Obstacle::Lapped) => {
                        self.attached.set_state(ReplicaState::Recovery);
                        return Err(Ended::Unable(Obstacle::Lapped.to_string()));
                    }
                    Err(other) => return Err(Ended::Unable(other.to_string())),
                }
                let place = transcoder.place();
                self.note_mark(place.offset, place.sequence);
            }
            self.push()?;
            let has_output = self.sent < self.output.len();
            if has_output || is_at_tail || !self.has_acked {
                self.connection.wait(has_output, Some(&self.bell), SLEEP)?;
            }
        }
    }

    /// Marks the replica as online, because the whole log was sent.
    fn settle(&self, node: &Arc<Node>, log: &Arc<Log>) -> Result<(), Ended> {
        if self.attached.replica().state() != ReplicaState::Online {
            self.attached.set_state(ReplicaState::Online);
        }
        // Another log is in use, and nothing is appended to this one any more.
        if !node.replication.stream.is_of(node, log) {
            return Err(Ended::Unable(
                "the log it is served from has ended".to_owned(),
            ));
        }
        Ok(())
    }

    fn note_mark(&mut self, offset: u64, sequence: u64) {
        self.attached.note_sent(sequence);
        match self.marks.back_mut() {
            // A frame without bytes has the offset of the frame before it.
            Some(last) if last.0 == offset => {
                last.1 = sequence;
                // The replica has acknowledged this offset already, and will not do so again.
                if self.acked.offset >= offset {
                    self.note_ack(self.acked.offset, None);
                }
            }
            _ => {
                if self.marks.len() == MARKS_MAX {
                    let mut at = 0;
                    self.marks.retain(|_| {
                        at += 1;
                        at % 2 == 0
                    });
                }
                self.marks.push_back((offset, sequence));
            }
        }
    }

    /// Notes up to which offset the replica has applied the stream, and has it on its disk.
    fn note_ack(&mut self, offset: u64, on_disk: Option<u64>) {
        let place_of = |offset: u64| {
            let after = self.marks.partition_point(|(end, _)| *end <= offset);
            let found = after.checked_sub(1).and_then(|at| self.marks.get(at));
            found.map(|(_, sequence)| *sequence)
        };
        let applied = place_of(offset).unwrap_or(0).max(self.acked.applied);
        let durable = on_disk
            .and_then(place_of)
            .unwrap_or(0)
            .max(self.acked.durable);
        self.acked = Ack {
            applied,
            durable,
            offset: offset.max(self.acked.offset),
        };
        // The mark that was reached stays: frames without bytes may follow it.
        let kept = offset.min(on_disk.unwrap_or(u64::MAX));
        while self.marks.get(1).is_some_and(|(end, _)| *end <= kept) {
            self.marks.pop_front();
        }
        let now_unix_ms = self.node.core.clock.now_unix_ms();
        self.attached.ack(self.acked, now_unix_ms);
    }

    /// Receives and handles what the replica sent.
    fn receive(&mut self) -> Result<(), Ended> {
        let mut buffer = [0; INPUT_BYTES];
        while let Some(count) = self.connection.receive(&mut buffer)? {
            if count == 0 {
                return Err(Ended::Done);
            }
            self.input.extend_from_slice(&buffer[..count]);
            if self.input.len() > INPUT_BYTES_MAX {
                return Err(Ended::Garbage);
            }
            if count < buffer.len() {
                break;
            }
        }
        if self.input.is_empty() {
            return Ok(());
        }
        self.heard();
        let input = std::mem::take(&mut self.input);
        let limits = Limits::default();
        let mut acks = Vec::new();
        let decoded = self
            .decoder
            .decode(&input, &limits, engine::BATCH_MAX, &mut self.batch);
        for run in self.batch.runs(&input) {
            for request in run.requests {
                if let Some(ack) = acknowledged(&request) {
                    acks.push(ack);
                }
            }
        }
        if decoded.error.is_some() {
            return Err(Ended::Garbage);
        }
        self.input = input[decoded.consumed..].to_vec();
        self.decoder.reset();
        for (offset, on_disk) in acks {
            if !self.has_acked {
                self.has_acked = true;
                self.attached.set_state(ReplicaState::CatchingUp);
            }
            self.note_ack(offset, on_disk);
        }
        if decoded.consumed > 0 && !self.input.is_empty() {
            return self.receive();
        }
        Ok(())
    }

    fn heard(&mut self) {
        self.heard_ms = self.now_ms();
    }

    /// Ends the link if the replica sent nothing for too long. A replica that connected with SYNC
    /// never sends anything.
    fn check_silence(&self) -> Result<(), Ended> {
        let timeout_s = self.node.core.config.current().replication.timeout_s;
        let silent_ms = self.now_ms().saturating_sub(self.heard_ms);
        if !self.request.is_old && silent_ms > u64::from(timeout_s) * 1000 {
            return Err(Ended::Silent);
        }
        Ok(())
    }

    /// Sends as much as the socket accepts.
    fn push(&mut self) -> Result<(), Ended> {
        while self.sent < self.output.len() {
            let count = self.connection.send(&self.output[self.sent..])?;
            if count == 0 {
                return Ok(());
            }
            self.sent += count;
            let counts = &self.node.replication.counts;
            counts
                .output_bytes
                .fetch_add(count as u64, Ordering::Relaxed);
        }
        self.output.clear();
        self.sent = 0;
        Ok(())
    }

    /// Sends the whole output. The time without progress is limited.
    fn drain(&mut self) -> Result<(), Ended> {
        let mut moved_ms = self.now_ms();
        let timeout_s = self.node.core.config.current().replication.timeout_s;
        loop {
            let before = self.sent;
            self.push()?;
            if self.output.is_empty() {
                return Ok(());
            }
            if self.attached.is_stopping() {
                return Err(Ended::Done);
            }
            let now_ms = self.now_ms();
            if self.sent > before {
                moved_ms = now_ms;
            } else if now_ms.saturating_sub(moved_ms) > u64::from(timeout_s) * 1000 {
                return Err(Ended::Silent);
            }
            self.connection.wait(true, Some(&self.bell), SLEEP)?;
        }
    }

    fn now_ms(&self) -> u64 {
        self.node.core.clock.monotonic_ms()
    }
}

/// Returns what a replica's request acknowledges: `REPLCONF ACK offset [FACK offset]`.
fn acknowledged(request: &protocol::Request<'_>) -> Option<(u64, Option<u64>)> {
    let is = |at: usize, word: &str| {
        let arg = request.arg(at);
        arg.is_some_and(|arg| arg.eq_ignore_ascii_case(word.as_bytes()))
    };
    let number = |at: usize| {
        let number = base::number::parse_i64(request.arg(at)?)?;
        u64::try_from(number).ok()
    };
    if !is(0, "REPLCONF") || !is(1, "ACK") {
        return None;
    }
    let on_disk = if is(3, "FACK") { number(4) } else { None };
    Some((number(2)?, on_disk))
}

/// Returns the fields of the RDB file that describe its writer.
fn origin(node: &Node, source: &Source) -> Vec<(&'static str, Vec<u8>)> {
    let seconds = source.manifest.created_unix_ms / 1000;
    let history = node.replication.stream.names(node);
    // If there is none, the next command is preceded by a SELECT.
    let database = source.place.database.unwrap_or(0);
    vec![
        ("redis-ver", identity::redis_version().as_bytes().to_vec()),
        ("redis-bits", usize::BITS.to_string().into_bytes()),
        ("ctime", seconds.to_string().into_bytes()),
        ("repl-stream-db", database.to_string().into_bytes()),
        ("repl-id", history.id.as_str().as_bytes().to_vec()),
        ("repl-offset", source.place.offset.to_string().into_bytes()),
        ("aof-base", b"0".to_vec()),
    ]
}

/// Writes the RDB file to the link.
struct ToReplica<'l> {
    link: &'l mut Link,
    lost: &'l mut Option<Ended>,
}

impl Write for ToReplica<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.link.output.extend_from_slice(bytes);
        if self.link.output.len() >= WRITE_BYTES {
            self.flush()?;
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.drain().map_err(|ended| {
            *self.lost = Some(ended);
            io::Error::from(io::ErrorKind::BrokenPipe)
        })
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

impl Replication {
    /// Asks replicas that speak PSYNC how far they are.
    pub(super) fn ask_replicas(&self, node: &Node) {
        let mut all = self.replicas.all().into_iter();
        if all.any(|one| one.kind == Kind::Redis && one.state().is_online()) {
            self.stream.ask(node.core.clock.now_unix_ms());
        }
    }
}
