//! Distributes connections over workers: each goes to the worker that serves the fewest.
//!
//! Every worker watches the shared listeners. The worker that accepts a connection asks the
//! balancer which worker is to serve it, and puts it into that worker's inbox. One lock serialises
//! this placing. It is taken once per connection and never per request, so counts differ by at most
//! one as long as no connection closes.

use std::collections::VecDeque;
use std::io;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::listener::Listener;
use crate::service::{Endpoint, PeerInfo};
use crate::transport::{Carrier, Transport};
use crate::waker::Waker;

/// The state that all loops of a server share.
#[derive(Debug)]
pub struct Balancer {
    workers: Vec<Seat>,
    placing: Mutex<()>,
    /// Listeners that replace those with which the loops began.
    listeners: Mutex<Arc<[Listener]>>,
    /// How often the listeners were replaced.
    listeners_generation: AtomicUsize,
}

/// The part of a worker that other threads access, on its own cache lines.
#[derive(Debug)]
#[repr(align(128))]
struct Seat {
    connections_count: AtomicUsize,
    inbox: Mutex<VecDeque<Newcomer>>,
    waker: Waker,
}

/// An accepted connection on its way to its worker.
pub(crate) struct Newcomer {
    pub(crate) carrier: Carrier,
    pub(crate) peer: PeerInfo,
}

impl std::fmt::Debug for Newcomer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Newcomer")
            .field("peer", &self.peer)
            .finish_non_exhaustive()
    }
}

impl Balancer {
    /// Creates a balancer for `workers_count` loops (at least one).
    ///
    /// # Errors
    /// If the process may not open more descriptors: one per worker is needed.
    pub fn new(workers_count: usize) -> io::Result<Arc<Self>> {
        let workers = (0..workers_count.max(1)).map(|_| Seat::new());
        Ok(Arc::new(Self {
            workers: workers.collect::<io::Result<_>>()?,
            placing: Mutex::new(()),
            listeners: Mutex::new(Arc::new([])),
            listeners_generation: AtomicUsize::new(0),
        }))
    }

    /// Makes all loops accept from `listeners` instead of their present ones, which close when no
    /// loop watches them any more. Connections stay open.
    pub fn listen(&self, listeners: Arc<[Listener]>) {
        *lock(&self.listeners) = listeners;
        self.listeners_generation.fetch_add(1, Ordering::Release);
        for seat in &self.workers {
            seat.waker.wake();
        }
    }

    /// Returns the listeners and updates `generation` if they changed since `generation`.
    pub(crate) fn listeners_since(&self, generation: &mut usize) -> Option<Arc<[Listener]>> {
        let current = self.listeners_generation.load(Ordering::Acquire);
        if current == *generation {
            return None;
        }
        *generation = current;
        Some(Arc::clone(&lock(&self.listeners)))
    }

    /// Returns the number of workers.
    #[must_use]
    pub fn workers_count(&self) -> usize {
        self.workers.len()
    }

    /// Returns the number of a worker's connections, including those in its inbox.
    #[must_use]
    pub fn connections_count(&self, worker: usize) -> usize {
        self.workers[worker]
            .connections_count
            .load(Ordering::Relaxed)
    }

    /// Returns the waker of a worker's loop.
    #[must_use]
    pub fn waker(&self, worker: usize) -> Waker {
        self.workers[worker].waker.clone()
    }

    /// Gives a connection that no listener accepted to the least loaded worker, without an
    /// admission check.
    pub fn connect(&self, transport: Box<dyn Transport>) {
        let peer = PeerInfo {
            peer: Endpoint::InProcess,
            local: Endpoint::InProcess,
            fd: -1,
            listener: None,
            security: None,
        };
        self.enter(transport, peer);
    }

    /// Gives a connection whose peer was already admitted to the least loaded worker.
    pub fn enter(&self, transport: Box<dyn Transport>, peer: PeerInfo) {
        let carrier = Carrier::Other(transport);
        self.send(self.place(), Newcomer { carrier, peer });
    }

    /// Gives a connection that this process opened to a worker.
    pub fn adopt(&self, worker: usize, socket: OwnedFd, peer: PeerInfo) {
        let carrier = Carrier::Socket(socket);
        self.workers[worker]
            .connections_count
            .fetch_add(1, Ordering::Relaxed);
        self.send(worker, Newcomer { carrier, peer });
    }

    /// Chooses the worker of a new connection and counts it there.
    pub(crate) fn place(&self) -> usize {
        let _placing = lock(&self.placing);
        let counts = self.workers.iter().enumerate();
        let (least, _) = counts
            .min_by_key(|(_, seat)| seat.connections_count.load(Ordering::Relaxed))
            .expect("there is at least one worker");
        self.workers[least]
            .connections_count
            .fetch_add(1, Ordering::Relaxed);
        least
    }

    /// Uncounts a connection of `worker`.
    pub(crate) fn leave(&self, worker: usize) {
        self.workers[worker]
            .connections_count
            .fetch_sub(1, Ordering::Relaxed);
    }

    /// Puts a placed connection into a worker's inbox.
    pub(crate) fn send(&self, worker: usize, newcomer: Newcomer) {
        let seat = &self.workers[worker];
        lock(&seat.inbox).push_back(newcomer);
        seat.waker.wake();
    }

    /// Whether a worker's inbox holds a connection.
    pub(crate) fn has_newcomers(&self, worker: usize) -> bool {
        !lock(&self.workers[worker].inbox).is_empty()
    }

    /// Takes the next connection from a worker's inbox.
    pub(crate) fn take(&self, worker: usize) -> Option<Newcomer> {
        lock(&self.workers[worker].inbox).pop_front()
    }
}

impl Seat {
    fn new() -> io::Result<Self> {
        Ok(Self {
            connections_count: AtomicUsize::new(0),
            inbox: Mutex::default(),
            waker: Waker::new()?,
        })
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // No critical section can panic with the queue half changed.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
