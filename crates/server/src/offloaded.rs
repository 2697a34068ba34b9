//! Offloaded requests that wait for other nodes or replicas. Each is passed to a thread of its own,
//! which answers the client, so that the thread for long commands continues. A request in a
//! transaction cannot be answered that way, so it waits where it runs.

use std::sync::Arc;

use engine::cluster::{ClusterOrder, Ordered};
use engine::replication::NodeOrder;
use engine::{SharedChange, ShutdownRequest};

use crate::aside::Queue;
use crate::asker::Asker;
use crate::config::Divided;
use crate::group::{directives, documents};
use crate::job::Job;
use crate::node::Node;

/// The part of a client's port for an offloaded request.
pub(crate) struct Offloaded<'a> {
    node: &'a Arc<Node>,
    /// The next jobs of the thread for long commands.
    pub(crate) queue: &'a Queue,
    /// Number of shutdowns that were aborted before the request was received.
    pub(crate) aborted_stops: u64,
    pub(crate) asker: Asker,
    /// Whether the request is no transaction: its reply is that of one command.
    is_alone: bool,
    /// Whether the request waits elsewhere and is answered from there.
    pub(crate) is_answered_later: bool,
}

impl<'a> Offloaded<'a> {
    pub(crate) fn of(node: &'a Arc<Node>, job: &Job, queue: &'a Queue, is_alone: bool) -> Self {
        Self {
            node,
            queue,
            aborted_stops: job.aborted_stops,
            asker: Asker::of(job),
            is_alone,
            is_answered_later: false,
        }
    }

    /// Calls `hand_over` to pass the request to a thread of its own, if it may be answered from
    /// there. Returns whether that succeeded.
    pub(crate) fn hand_over(&mut self, hand_over: impl FnOnce(&Self) -> bool) -> bool {
        self.is_answered_later = self.is_alone && hand_over(self);
        self.is_answered_later
    }

    /// Carries out a cluster order on another thread. Returns whether it does. Such orders wait for
    /// each other.
    pub(crate) fn order(&self, order: &ClusterOrder) -> bool {
        let (node, asker) = (Arc::clone(self.node), self.asker.clone());
        let order = order.clone();
        self.node.work.waiting.run("cluster-order", move || {
            let _one = node.work.waiting.order();
            let done = node.cluster_mode.order(&node, &order);
            asker.answer(&node, |reply| {
                match done? {
                    Ordered::Done => reply.ok(),
                    Ordered::Said(text) => reply.simple(&text),
                }
                Ok(())
            });
        })
    }

    /// Orders a node to drain or leave, on another thread that waits for the control group's
    /// decision. Returns whether it does.
    pub(crate) fn order_node(&self, named: &[u8], order: NodeOrder) -> bool {
        let (node, asker, named) = (Arc::clone(self.node), self.asker.clone(), named.to_owned());
        self.node.work.waiting.run("node-order", move || {
            let _one = node.work.waiting.order();
            let done = node.control.order_node(&named, order);
            asker.answer(&node, |reply| done.map(|()| reply.ok()));
        })
    }

    /// Changes directives of the control group, on another thread that waits for the group. Returns
    /// whether it does.
    pub(crate) fn change_directives(&self, divided: &Divided, is_local: bool) -> bool {
        let (node, asker, divided) = (Arc::clone(self.node), self.asker.clone(), divided.clone());
        self.node.work.waiting.run("config-set", move || {
            let done = directives::change_with_own(&node, &divided, is_local);
            asker.answer(&node, |reply| done.map(|()| reply.ok()));
        })
    }

    /// Changes users or libraries of the control group, on another thread that waits for the group.
    /// Returns whether it does.
    pub(crate) fn change_shared(&self, change: &Arc<SharedChange>) -> bool {
        let (node, asker, change) = (
            Arc::clone(self.node),
            self.asker.clone(),
            Arc::clone(change),
        );
        self.node.work.waiting.run("shared-change", move || {
            asker.answer(&node, |reply| documents::change(&node, &change, reply));
        })
    }

    /// Makes this node give its offices away, on another thread that waits for that. Returns
    /// whether it does.
    pub(crate) fn leave_for_restart(&self) -> bool {
        let (node, asker) = (Arc::clone(self.node), self.asker.clone());
        self.node.work.waiting.run("give-away", move || {
            let given = node.control.leave_for_restart();
            asker.answer(&node, |reply| given.map(|()| reply.ok()));
            node.control.restart_answered();
        })
    }

    /// Starts a shutdown that waits for replicas on another thread, or joins the present one.
    /// Returns whether it does.
    pub(crate) fn stop(&self, request: ShutdownRequest) -> bool {
        if request.abort || request.now {
            return false;
        }
        let (node, asker) = (Arc::clone(self.node), self.asker.clone());
        let when_over = Box::new(move |stopped| {
            // If the server stops, that is the answer.
            if let Err(error) = stopped {
                asker.answer(&node, |_| Err(error));
            }
        });
        let Ok(begun) = self.node.replication.begin_stop(self.node, when_over) else {
            return false;
        };
        if let Some(number) = begun {
            let node = Arc::clone(self.node);
            let stops = move || node.carry_out_stop(number, request);
            if !self.node.work.waiting.run("shutdown", stops) {
                self.node.carry_out_stop(number, request);
            }
        }
        true
    }
}
