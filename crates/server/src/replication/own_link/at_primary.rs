//! The primary's side of the own link: adapts the node to the links of its replicas. Decides which
//! replica may attach in which term, what a full sync sends, and what is committed.

use std::fmt;
use std::net::SocketAddr;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use durability::checkpoint::Manifest;
use durability::log::{Log, Pin};
use persistence::checkpointer::{CheckpointPin, Why};
use replication::attach::FullReason;
use replication::link::{self, Hello, Message, Source};
use replication::{PrimaryLog, TermId};
use store::Store;

use super::super::following::Link;
use super::super::primary_link::{FullCopy, Kill, Observer, PrimaryHome};
use super::super::replicas::{Kind, NewReplica};
use super::super::role::Role;
use super::super::session::{Identity, Session};
use super::super::verify::VerifyHome;
use super::both_ends::{tell, timeout_ms};
use super::log_on_disk::{own_log, place_of};
use super::observers::{LogCopy, Nobody, Watcher};
use crate::node::Node;

/// How often to check whether a term frame is on disk.
pub(super) const LOOK: Duration = Duration::from_millis(1);

/// A checkpoint is sent to a replica if the log after it has at most this percentage of its bytes.
const LOG_PERCENT_MAX: u64 = 150;
/// A checkpoint followed by at most this many bytes of log is always sent.
const LOG_BYTES_FREE: u64 = 16 << 20;

/// The end of this primary's own log that counts as a copy.
fn counted_end(node: &Node, log: &Log) -> u64 {
    match node.replication.fence.wants_disk() {
        true => log.durable(),
        false => log.written(),
    }
}

/// The sequence up to which all copies of the data have the log, as far as this primary knows.
fn floor(node: &Node, log: &Log) -> Option<u64> {
    node.replication.fence.floor(counted_end(node, log))
}

/// Returns a checkpoint's manifest as a log-only copy gets it: where the log begins, and the terms
/// before that.
fn without_parts(manifest: Manifest) -> Manifest {
    Manifest {
        parts: Vec::new(),
        databases: Default::default(),
        libraries: Vec::new(),
        segments: Vec::new(),
        dictionaries: Vec::new(),
        ..manifest
    }
}

/// The password that replicas must know.
pub(super) fn secret_of_primary(node: &Node) -> Vec<u8> {
    let config = node.core.config.current();
    let replication = &config.replication;
    let own = replication.link_secret.clone();
    own.or_else(|| config.password.clone()).unwrap_or_default()
}

/// A checkpoint that is sent, and the pins that keep it.
struct PinnedCheckpoint {
    manifest: Manifest,
    source: Source,
    files: CheckpointPin,
    log_pin: Pin,
}

/// The node, as the links of its replicas see it.
pub(super) struct AtPrimary {
    pub(super) node: Weak<Node>,
}

impl AtPrimary {
    fn node(&self) -> Result<Arc<Node>, String> {
        self.node
            .upgrade()
            .ok_or_else(|| "the server stops".to_owned())
    }

    /// Returns the checkpoint in force if it is less to send than a new one, otherwise a new one.
    /// The pins keep its files and the log after it.
    fn checkpoint(node: &Node, log: &Arc<Log>) -> Result<PinnedCheckpoint, String> {
        // Values in this node's tier are of no use to a replica. A checkpoint without a term cannot
        // be continued: a replica that lost power before it had the first term's frame would seem
        // to have another history.
        let terms = &node.replication.own.terms;
        let has_values = |manifest: &Manifest| {
            manifest.segments.is_empty()
                && !manifest.history.terms.is_empty()
                && terms.other_history(manifest).is_none()
        };
        let is_good = |manifest: &Manifest| {
            let most = manifest.bytes().saturating_mul(LOG_PERCENT_MAX) / 100;
            manifest.log_sequence.is_some_and(|from| {
                log.tail_complete().saturating_sub(from) <= most.max(LOG_BYTES_FREE)
            })
        };
        let kept = node.persistence().ok_or("nothing is kept")?;
        let is_good = |manifest: &Manifest| has_values(manifest) && is_good(manifest);
        if let Some(found) = Self::pin(node, log)?.filter(|found| is_good(&found.manifest)) {
            return Ok(found);
        }
        let ticket = kept.checkpointer.schedule_with_values(Why::Rewrite);
        let ticket = ticket.map_err(|_| "the server stops".to_owned())?;
        let outcome = kept.checkpointer.wait(ticket);
        outcome.result.map_err(|failure| failure.to_string())?;
        let made =
            Self::pin(node, log)?.ok_or("no checkpoint is in force that the log goes on from")?;
        if !has_values(&made.manifest) {
            return Err(
                "another checkpoint has come into force, which lacks values or terms, or was made while a term began"
                    .to_owned(),
            );
        }
        Ok(PinnedCheckpoint {
            source: Source::NewCheckpoint,
            ..made
        })
    }

    /// Returns the checkpoint at which the log of a log-only copy begins: the one in force. Its
    /// parts are not sent.
    ///
    /// # Errors
    /// Not all copies of the data are known to have the log up to there.
    fn log_begin(node: &Node, log: &Arc<Log>) -> Result<PinnedCheckpoint, String> {
        let floor =
            floor(node, log).ok_or("not all copies of the data have said what they have")?;
        let found = match Self::pin(node, log)? {
            Some(found) if !found.manifest.history.terms.is_empty() => found,
            _ => Self::checkpoint(node, log)?,
        };
        let from = found.manifest.log_sequence.unwrap_or(u64::MAX);
        match floor >= from {
            true => Ok(found),
            false => Err(format!(
                "a copy of the log would begin at sequence {from}, and all copies of the data have it up to {floor} only"
            )),
        }
    }

    /// Returns the checkpoint in force, if the log continues it.
    fn pin(node: &Node, log: &Arc<Log>) -> Result<Option<PinnedCheckpoint>, String> {
        let kept = node.persistence().ok_or("nothing is kept")?;
        let found = kept.checkpointer.pin().map_err(|fault| fault.to_string())?;
        Ok(found.and_then(|(manifest, files)| {
            let log_pin = log.pin("full sync", manifest.log_sequence?);
            (!log_pin.is_broken()).then_some(PinnedCheckpoint {
                manifest,
                source: Source::Checkpoint,
                files,
                log_pin,
            })
        }))
    }
}

impl PrimaryHome for AtPrimary {
    fn identity(&self, address: &str) -> Result<Identity, String> {
        let node = self.node()?;
        let peer = address.parse::<SocketAddr>().map(|peer| peer.ip());
        let own = &node.replication.own;
        Ok(Identity {
            encryption: own.encryption(&node, peer.ok())?,
            ..Identity::new(own.id(), b"", &secret_of_primary(&node))
        })
    }

    fn node_id(&self) -> TermId {
        self.node()
            .map_or_else(|_| TermId::default(), |node| node.replication.own.id())
    }

    fn log(&self) -> Option<Arc<Log>> {
        own_log(&*self.node().ok()?)
    }

    fn view(&self) -> Result<PrimaryLog, String> {
        let node = self.node()?;
        let own = &node.replication.own;
        let log = own_log(&node).ok_or("there is no log on disk")?;
        let following = node
            .replication
            .following()
            .filter(|_| node.replication.follows());
        match following {
            Some(one) if one.link() != Link::Connected => {
                return Err("this replica is not connected with its own primary".to_owned());
            }
            Some(_) => {}
            None if node.replication.fence.is_grouped() => {
                if node.replication.fence.office() == 0 && !node.keeping.keeps_log_alone() {
                    return Err("this node is not in office".to_owned());
                }
            }
            None => own.begin_first_term(&node),
        }
        let lineage = own.terms.lineage();
        let last = lineage.last().copied();
        let last = last.ok_or("no term is known")?;
        while log.durable() <= last.start {
            if node.is_stopping() {
                return Err("the server stops".to_owned());
            }
            if let Some(fault) = log.fault() {
                return Err(fault.to_string());
            }
            log.request_sync(log.tail_complete());
            std::thread::sleep(LOOK);
        }
        let end = log.tail_complete();
        let mut handle = node.core.store.handle();
        let has_keys = (0..node.core.store.databases()).any(|database| handle.len(database) > 0);
        // A log with more than its term frames contained changes at some time.
        let first = lineage.terms().first().map_or(0, |term| term.start);
        let is_more = end.saturating_sub(first) > 256 * lineage.terms().len() as u64;
        Ok(PrimaryLog {
            oldest: log.oldest().max(own.whole_from.load(Ordering::Acquire)),
            end,
            has_data: has_keys || is_more || first > 0 || node.keeping.keeps_log_alone(),
            // A replica gets a checkpoint first, so that it has one to continue from.
            is_whole: false,
            lineage,
        })
    }

    fn full_copy(&self, reason: FullReason, is_log_only: bool) -> Result<FullCopy, String> {
        let node = self.node()?;
        let log = own_log(&node).ok_or("there is no log on disk")?;
        if node.keeping.keeps_log_alone() {
            return Err("this node keeps the log alone: it has no data to give".to_owned());
        }
        let PinnedCheckpoint {
            mut manifest,
            source,
            files,
            log_pin,
        } = match is_log_only {
            true => Self::log_begin(&node, &log)?,
            false => Self::checkpoint(&node, &log)?,
        };
        let from = manifest.log_sequence.unwrap_or(0);
        if is_log_only {
            manifest = without_parts(manifest);
            node.core.log.notice(format_args!(
                "A copy of the log alone is given it from {from} on ({reason:?})"
            ));
        } else {
            let counts = &node.replication.counts;
            counts.full_syncs.fetch_add(1, Ordering::Relaxed);
            node.core.log.notice(format_args!(
                "A replica is given checkpoint {} and the log from {from} on ({reason:?})",
                manifest.generation,
            ));
        }
        let place = place_of(&node);
        Ok(FullCopy {
            disk: Arc::clone(&place.disk),
            directory: place.directory,
            source,
            _pin: Box::new((files, log_pin)),
            manifest,
        })
    }

    fn floor(&self) -> Option<u64> {
        let node = self.node().ok()?;
        let log = own_log(&node)?;
        let floor = floor(&node, &log)?;
        let base = node.persistence()?.log().base_sequence();
        base.filter(|base| *base <= floor)
    }

    fn observe(&self, peer: &Hello, address: &str, kill: Kill) -> Box<dyn Observer> {
        let Ok(node) = self.node() else {
            return Box::new(Nobody);
        };
        if peer.features & link::LOG_ONLY != 0 {
            return Box::new(LogCopy {
                node: Weak::clone(&self.node),
                peer: peer.node,
                name: String::from_utf8_lossy(&peer.name).into_owned(),
            });
        }
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let host = host.trim_start_matches('[').trim_end_matches(']');
        let name = String::from_utf8_lossy(&peer.name);
        let (announced, port) = name.rsplit_once(':').unwrap_or(("", &name));
        let attached = node.replication.replicas.register(NewReplica {
            client: None,
            kind: Kind::Own,
            host: if announced.is_empty() {
                host
            } else {
                announced
            }
            .to_owned(),
            port: port.parse().unwrap_or(0),
        });
        attached.stop_with(kill);
        let shown = if announced.is_empty() {
            host
        } else {
            announced
        };
        Box::new(Watcher {
            node: Weak::clone(&self.node),
            peer: peer.node,
            name: format!("{shown}:{port}"),
            attached: Mutex::new(attached),
        })
    }

    fn serve_control(&self, session: Session, address: &str) -> bool {
        let node = self.node();
        node.is_ok_and(|node| node.control.serve(session, address))
    }

    fn serve_slots(&self, session: Session) {
        if let Ok(node) = self.node() {
            node.migrations.serve(&node, session);
        }
    }

    fn timeout_ms(&self) -> u64 {
        timeout_ms(&self.node)
    }

    fn committed(&self) -> u64 {
        self.node().map_or(0, |node| {
            let fence = &node.replication.fence;
            let log = own_log(&node).filter(|_| fence.is_grouped());
            log.map_or(0, |log| fence.committed(counted_end(&node, &log)))
        })
    }

    fn now_ms(&self) -> u64 {
        self.node().map_or(0, |node| node.core.clock.now_unix_ms())
    }

    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>) {
        tell(&self.node, is_warning, line);
    }
}

impl VerifyHome for AtPrimary {
    fn is_primary(&self) -> bool {
        self.node()
            .is_ok_and(|node| node.replication.role() == Role::Primary)
    }

    fn online_names(&self) -> Vec<String> {
        let Ok(node) = self.node() else {
            return Vec::new();
        };
        let all = node.replication.replicas.all().into_iter();
        let online = all.filter(|one| one.kind == Kind::Own && one.state().is_online());
        online
            .map(|one| format!("{}:{}", one.host, one.port))
            .collect()
    }

    fn broadcast(&self, message: &Message<'static>) {
        if let Ok(node) = self.node()
            && let Some(links) = node.replication.own.links.get()
        {
            links.say(None, message);
        }
    }

    fn store(&self) -> Option<Arc<Store>> {
        Some(Arc::clone(&self.node().ok()?.core.store))
    }

    fn log(&self) -> Option<Arc<Log>> {
        own_log(&*self.node().ok()?)
    }

    fn now_unix_ms(&self) -> u64 {
        PrimaryHome::now_ms(self)
    }

    fn is_stopping(&self) -> bool {
        self.node().map_or(true, |node| node.is_stopping())
    }

    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>) {
        tell(&self.node, is_warning, line);
    }
}
