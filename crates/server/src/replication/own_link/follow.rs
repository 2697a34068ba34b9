//! Following a primary by the own link: whether that is possible, which code may append to the log
//! meanwhile, and how it ends.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::super::applied_log::AppliedLog;
use super::super::following::{Ended, Following};
use super::super::link_dialing::secret_of_replica;
use super::super::own_links::OwnLinks;
use super::super::replica_link;
use super::at_replica::AtReplica;
use super::log_on_disk::own_log;
use crate::node::Node;

/// Whether this node could follow that primary by the own link: it has a log on disk to append to,
/// and the link is allowed.
pub(in super::super) fn can_follow(node: &Node, following: &Following) -> bool {
    let config = node.core.config.current();
    let is_secret = !secret_of_replica(node).is_empty();
    let primary = following.primary();
    let names = &node.replication.host_names;
    let is_near = names
        .resolve(&primary.host, primary.port, &node.core.log)
        .is_ok_and(|all| all.iter().all(|address| address.ip().is_loopback()));
    let is_open = is_near || is_secret || config.replication.links_by_certificate;
    if !is_open && own_log(node).is_some() {
        node.core.log.notice(format_args!(
            "The own link to {}:{} takes cluster-secret or masterauth: PSYNC is used instead",
            primary.host, primary.port
        ));
    }
    // A failover between nodes uses PSYNC.
    own_log(node).is_some() && is_open && !following.fails_over()
}

/// Follows a primary by the own link, at this port of its host, until following has to end.
pub(in super::super) fn follow(following: &Following, port: u16) -> Ended {
    let Some(node) = following.node() else {
        return Ended::Again;
    };
    if own_log(&node).is_none() {
        following.refuse("the own link takes a log on disk here (durability os or above)");
        return Ended::Refused;
    }
    lend_log(&node);
    let home = AtReplica {
        shard: node.replication.fence.shard(),
        following,
        weak: Arc::downgrade(&node),
        node,
        port,
    };
    let own = &home.node.replication.own;
    let own_links = own.links(&home.node);
    own_links.end_term();
    let ended = match AppliedLog::new(&home, home.applier()) {
        Ok(mut data) => {
            let may_discard = following.forces() || following.may_discard();
            let ended = replica_link::follow(&home, &mut data, may_discard);
            own.generation
                .fetch_max(data.generation(), Ordering::Relaxed);
            ended
        }
        Err(reason) => {
            following.refuse(&reason);
            return Ended::Refused;
        }
    };
    match ended {
        replica_link::Ended::Stopped | replica_link::Ended::Unreachable => Ended::Again,
        replica_link::Ended::Refused(refusal) => {
            following.refuse(&refusal.to_string());
            Ended::Refused
        }
    }
}

impl OwnLinks {
    /// Ends all appending of effects to the log.
    pub(in super::super) fn lend(&self, node: &Arc<Node>) {
        if let Some(links) = self.links.get() {
            links.end_term();
        }
        lend_log(node);
    }
}

/// Takes the log from all threads that append effects: from here on only the primary's frames are
/// appended.
fn lend_log(node: &Node) {
    let own = &node.replication.own;
    if own.follows.load(Ordering::Acquire) {
        return;
    }
    // A PSYNC replica may connect before the primary does: no ping of its stream may be appended
    // where the primary's frames go.
    node.replication.stream.set_foreign(true);
    node.replication.stream.let_go(node);
    let log = node.persistence().and_then(|kept| kept.log().lend());
    if let Some(log) = log {
        // Set before any thread makes a cut as a replica.
        own.applied.store(log.tail(), Ordering::Release);
    }
    own.follows.store(true, Ordering::Release);
}
