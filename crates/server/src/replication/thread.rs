//! The thread "follow": carries out orders one after the other. It starts with the first order.

use std::sync::atomic::Ordering;
use std::sync::{Arc, MutexGuard, PoisonError};
use std::time::Duration;

use base::random::Prng;
use engine::TrackingPort as _;

use super::failover::{Failover, Verdict};
use super::following::{Authority, Ended, Following, Link, Primary};
use super::history::History;
use super::replicas::{Kind, Replica, ReplicaState};
use super::role::{self, Event, Role};
use super::{Order, Replication, Standing, log_end, own_link, redis_link};
use crate::config::system_reason;
use crate::node::Node;
use crate::port::Port;

/// The first pause between two connections. Each pause is twice as long as the one before, ...
const PAUSE_MIN: Duration = Duration::from_millis(50);
/// ... up to this.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// Maximum pause if a control group named the primary.
const PAUSE_GROUPED: Duration = Duration::from_millis(250);

/// Pause before the next attempt if the primary's data does not fit here: each attempt receives all
/// of it.
const PAUSE_UNFIT: Duration = Duration::from_secs(300);

/// The protocol that the primary speaks, as far as is known.
#[derive(Clone, Copy)]
enum Speaks {
    Redis,
    OwnLink(u16),
}

impl Replication {
    /// Wakes the thread for the order that was left, and starts it if it does not run. Does nothing
    /// before [`Replication::begin`], which calls this for earlier orders: a node that takes over
    /// must know in which term its log ends.
    #[allow(clippy::disallowed_methods, reason = "the one thread that follows")]
    pub(super) fn wake_thread(&self, mut standing: MutexGuard<'_, Standing>, node: &Node) {
        let own = self.node.get().and_then(std::sync::Weak::upgrade);
        let Some(own) = own.filter(|_| standing.has_begun) else {
            return;
        };
        if !standing.has_thread {
            let thread = std::thread::Builder::new().name("follow".into());
            match thread.spawn(move || own.replication.carry_out(&own)) {
                Ok(_detached) => standing.has_thread = true,
                Err(error) => node.core.log.warning(format_args!(
                    "There is no thread to follow another server: {}",
                    system_reason(&error)
                )),
            }
        }
        drop(standing);
        self.ordered.notify_all();
    }

    fn next_order(&self) -> Order {
        let mut standing = self.standing();
        loop {
            if let Some(order) = standing.order.take() {
                return order;
            }
            let waited = self.ordered.wait(standing);
            standing = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn carry_out(&self, node: &Arc<Node>) {
        loop {
            match self.next_order() {
                Order::Follow(following) => {
                    wait_for_writers(node);
                    self.run(&following);
                    following.show_client(None);
                }
                Order::TakeOver => self.finish_taking_over(node),
                Order::Seal(term, done) => self.finish_sealing(node, term, done),
                Order::Office(shard, term, done) => self.finish_office(node, (shard, term), done),
                Order::FailOver(failover) => self.run_failover(node, &failover),
                Order::Stop => return,
            }
        }
    }

    /// Follows until another order comes.
    fn run(&self, following: &Following) {
        let Some(node) = following.node() else { return };
        let first = match following.link_port() {
            0 => Speaks::Redis,
            port => Speaks::OwnLink(port),
        };
        let mut speaks = first;
        let mut pause = PAUSE_MIN;
        while !following.is_stopping() && !node.is_stopping() {
            // If the node followed without its log, the log's history would differ afterwards.
            if let Err(reason) = own_link::begin_missing_log(&node) {
                following.refuse(&format!("the log here cannot be begun: {reason}"));
                if following.pause(PAUSE_MAX) {
                    continue;
                }
                break;
            }
            let ended = match speaks {
                Speaks::Redis => redis_link::follow(following),
                Speaks::OwnLink(port) => own_link::follow(following, port),
            };
            following.forget_stop();
            let was_connected = following.link() == Link::Connected;
            if following.link() != Link::Refused {
                following.set_link(Link::Connect);
            }
            match ended {
                Ended::OwnLink(port) => {
                    speaks = Speaks::OwnLink(port);
                    continue;
                }
                // The port or the server may have changed: the primary is asked again.
                Ended::NoOwnLink | Ended::Again => speaks = first,
                Ended::Refused => pause = PAUSE_MAX,
                Ended::Unfit => {
                    if !following.pause(PAUSE_UNFIT) {
                        break;
                    }
                    continue;
                }
            }
            // A control group waits for its copies, so pauses are short.
            let pause_max = match node.replication.fence.is_grouped() {
                true => PAUSE_GROUPED,
                false => PAUSE_MAX,
            };
            pause = if was_connected {
                PAUSE_MIN
            } else {
                (pause * 2).min(pause_max)
            };
            if !following.pause(pause) {
                break;
            }
        }
    }

    /// Whether another order waits.
    pub(super) fn has_order(&self) -> bool {
        self.standing().order.is_some()
    }

    /// Becomes a primary. Nothing of another primary is applied any more.
    fn finish_taking_over(&self, node: &Arc<Node>) {
        if self.role() != Role::TakingOver {
            return;
        }
        // The followed stream may not have had any byte yet.
        let id = self.history().id;
        let followed = node.core.env.followed.get();
        let followed = followed
            .filter(|source| source.id == id.as_str().as_bytes())
            .map(|source| source.offset);
        self.begin_term(node, followed);
        if let Some(offset) = followed {
            // Replicas of the followed stream continue with this node's; replicas of this node's
            // former stream cannot. The former primary may have connected already, and waits for
            // the answer to its PSYNC.
            self.replicas
                .stop(|one| one.state() != ReplicaState::Handshake);
            if let Err(reason) = self.stream.begin_at(node, offset) {
                node.core.log.warning(format_args!(
                    "Replicas of the former primary will need a full sync: {reason}"
                ));
                self.set_history(History::new(&mut Prng::from_os()));
            }
        }
        self.own.take_over(node, None);
        redis_link::end_following(node);
        if self.is_emptied() {
            empty(node);
            self.is_emptied.store(false, Ordering::Release);
        }
        let mut standing = self.standing();
        // The role may have been changed meanwhile.
        let Ok(role) = role::next(self.role(), Event::TookOver) else {
            return;
        };
        standing.following = None;
        node.core.store.set_follower(false);
        self.role.set(role);
        drop(standing);
        self.judge_replicas(node);
        self.let_writes_go(node);
    }

    /// Hands the office over to a replica, or keeps it.
    fn run_failover(&self, node: &Arc<Node>, failover: &Arc<Failover>) {
        wait_for_writers(node);
        // No client writes any more.
        let end = log_end(node);
        let verdict =
            failover.wait_for_replica(&self.replicas, end, || node.core.clock.now_unix_ms());
        let outcome = match verdict {
            Verdict::Replica(primary) => {
                node.core.log.notice(format_args!(
                    "Failover target {}:{} is synced, failing over.",
                    primary.host, primary.port
                ));
                let is_own = self.is_own_replica(&primary);
                let by = Authority {
                    fails_over: !is_own,
                    // A replica that takes over with less data than this node gives all of its data
                    // to this node. Refusing that would leave two primaries.
                    may_discard: failover.forces,
                    ..Authority::default()
                };
                let now_unix_ms = node.core.clock.now_unix_ms();
                let weak = Arc::downgrade(node);
                let following = Arc::new(Following::new(weak, primary, by, now_unix_ms));
                if is_own {
                    let handed = self.hand_over_by_own_link(node, failover, &following, end);
                    return self.end_failover(
                        node,
                        failover,
                        handed
                            .then_some(following)
                            .ok_or("the replica did not take over"),
                    );
                }
                self.standing().following = Some(Arc::clone(&following));
                let stop = Arc::clone(&following);
                failover.abort_with(Box::new(move || stop.stop()));
                self.run_until_handed_over(&following)
                    .then_some(following)
                    .ok_or("the replica did not take over")
            }
            Verdict::GivenUp(reason) => Err(reason),
        };
        self.end_failover(node, failover, outcome);
    }

    /// Whether this replica uses the own link.
    fn is_own_replica(&self, primary: &Primary) -> bool {
        let all = self.replicas.all();
        let is_it = |one: &Arc<Replica>| one.host == primary.host && one.port == primary.port;
        all.iter().any(|one| is_it(one) && one.kind == Kind::Own)
    }

    /// Asks an own-link replica, which has all of the log, to take over. Returns whether it may
    /// have taken over. After asking, this node keeps the office only if the replica refuses: two
    /// primaries are worse than none.
    fn hand_over_by_own_link(
        &self,
        node: &Arc<Node>,
        failover: &Failover,
        following: &Arc<Following>,
        end: u64,
    ) -> bool {
        let primary = following.primary();
        let name = format!("{}:{}", primary.host, primary.port);
        if !self.own.ask_to_take_over(&name, end) {
            return false;
        }
        let timeout_s = node.core.config.current().replication.timeout_s;
        let time = Duration::from_secs(timeout_s.into());
        let answer = failover.wait_for_answer(time, || self.is_own_replica(primary));
        if answer == Some(0) {
            return false;
        }
        self.standing().following = Some(Arc::clone(following));
        self.handed_over(node, primary);
        true
    }

    fn end_failover(
        &self,
        node: &Arc<Node>,
        failover: &Arc<Failover>,
        outcome: Result<Arc<Following>, &'static str>,
    ) {
        let mut standing = self.standing();
        // This failover ended when the office was handed over, long before the link ended: the next
        // one may have begun.
        let is_this = |one: &mut Arc<Failover>| Arc::ptr_eq(one, failover);
        standing.failover.take_if(is_this);
        match outcome {
            Ok(following) => {
                // The node follows the new primary like any other.
                if standing.order.is_none() {
                    standing.order = Some(Order::Follow(following));
                }
            }
            Err(reason) => {
                standing.following = None;
                drop(standing);
                self.keep_office(node, reason);
            }
        }
    }

    /// Asks the replica to take over until it has, or the attempt fails. Returns whether it has.
    fn run_until_handed_over(&self, following: &Arc<Following>) -> bool {
        while !following.is_stopping() && self.role() == Role::FailingOver {
            let ended = redis_link::follow(following);
            following.forget_stop();
            if self.role() != Role::FailingOver {
                break;
            }
            let ended = match ended {
                Ended::OwnLink(port) => own_link::follow(following, port),
                other => other,
            };
            following.forget_stop();
            let is_over = self.role() != Role::FailingOver;
            if is_over
                || matches!(ended, Ended::Refused | Ended::Unfit)
                || !following.pause(PAUSE_MIN)
            {
                break;
            }
        }
        self.role() == Role::Following
    }

    fn keep_office(&self, node: &Node, reason: &str) {
        node.core
            .log
            .notice(format_args!("Aborting failover: {reason}"));
        let standing = self.standing();
        if let Ok(role) = role::next(self.role(), Event::KeptOffice) {
            self.role.set(role);
        }
        drop(standing);
        self.let_writes_go(node);
    }
}

/// Removes all keys, and logs that. No other thread writes.
fn empty(node: &Node) {
    let user = node.keeping.log_in_use.join();
    let mut handle = node.handle(&Arc::default());
    let _taken_up = user.take_up(&mut handle);
    Port::new(node, true).tell_flush(&mut handle);
    handle.exclusive(|store| {
        if store.flush(None) > 0 {
            store.effect(0, |effect| effect.command(&[b"FLUSHALL"]));
        }
    });
}

/// Waits until all workers have finished the requests that they had begun. Later writes are
/// refused, or wait at the gate.
pub(super) fn wait_for_writers(node: &Node) {
    node.core.store.handle().exclusive(|_| ());
}
