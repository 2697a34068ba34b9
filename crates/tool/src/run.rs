//! One run: starts threads together, observes them, and combines their measurements.

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::time::Duration;

use base::clock::{Clock, SystemClock};
use base::process::raise_open_files;

use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::histogram::Histogram;
use crate::keys::Keys;
use crate::process::{self, Process, Usage};
use crate::worker::{Board, Harvest, Phase, Setup, Shared, Worker};
use crate::workload::{Limit, Workload};

/// Time between two moments of a run.
const MOMENT: Duration = Duration::from_millis(250);
/// Share of a run spent waiting for a processor above which it counts as disturbed.
const DISTURBED: f64 = 0.1;
/// Number of files that the tool needs besides connections.
const FILES_BESIDE: u64 = 64;

/// The measurements of a run.
#[derive(Clone, Debug, Default)]
pub struct Outcome {
    /// Time from the first request to the last reply, or the requested time.
    pub wall_ns: u64,
    /// Requests answered in that time.
    pub requests: u64,
    /// Replies that are errors.
    pub errors: u64,
    /// Nulls: requests for missing keys.
    pub misses: u64,
    /// The text of the first error.
    pub first_error: Option<String>,
    /// Times from when a request was due to its reply.
    pub latency: Histogram,
    /// Times from when a request was sent to its reply, in an open run.
    pub service: Histogram,
    /// The server's use, if its process is on this machine and visible.
    pub server: Option<Used>,
    /// The generator's use.
    pub generator: Option<Used>,
    /// The course of the run.
    pub moments: Vec<Moment>,
}

/// The resources that a process used in a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Used {
    /// Processor time of all threads.
    pub cpu_ns: u64,
    /// Time for which its threads were ready while other threads had the processor.
    pub waited_ns: u64,
    /// Memory before, in bytes.
    pub rss_bytes_before: u64,
    /// Memory after, in bytes.
    pub rss_bytes_after: u64,
}

/// A part of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Moment {
    /// Time since measuring began; 0 while warming up.
    pub at_ns: u64,
    /// Its length.
    pub lasted_ns: u64,
    /// Requests answered in it.
    pub requests: u64,
    /// Their median latency.
    pub p50_ns: u64,
    /// 99th percentile of their latencies.
    pub p99_ns: u64,
    /// Processor time of the server in it.
    pub server_cpu_ns: Option<u64>,
}

impl Outcome {
    /// Returns the requests answered per second.
    #[must_use]
    pub fn requests_per_second(&self) -> f64 {
        per(self.requests as f64 * 1e9, self.wall_ns)
    }

    /// Returns the server's processor time per request.
    #[must_use]
    pub fn server_ns_per_request(&self) -> Option<f64> {
        self.server
            .map(|used| per(used.cpu_ns as f64, self.requests))
    }

    /// Returns the generator's processor time per request.
    #[must_use]
    pub fn generator_ns_per_request(&self) -> Option<f64> {
        self.generator
            .map(|used| per(used.cpu_ns as f64, self.requests))
    }

    /// Whether threads of the server or the generator waited for a processor for a large part of
    /// the run, so that latency and throughput are distorted.
    #[must_use]
    pub fn is_disturbed(&self) -> bool {
        let waited = |used: Option<Used>| used.map_or(0, |used| used.waited_ns);
        let most = waited(self.server).max(waited(self.generator)) as f64;
        most > DISTURBED * self.wall_ns as f64
    }

    /// Returns how many processors a process kept busy.
    #[must_use]
    pub fn processors(&self, used: Used) -> f64 {
        per(used.cpu_ns as f64, self.wall_ns)
    }
}

fn per(amount: f64, count: u64) -> f64 {
    if count == 0 {
        0.0
    } else {
        amount / count as f64
    }
}

/// Messages from threads to the observing one.
enum Message {
    Ready,
    Ended(Box<Result<Harvest, BenchError>>),
}

/// The readings of a moment.
#[derive(Clone, Copy, Debug, Default)]
struct Reading {
    at_ns: u64,
    replies: u64,
    server: Option<Usage>,
    own: Option<Usage>,
}

/// Runs `workload` on the server at `endpoint`; `watch` is called about four times a second.
///
/// # Errors
/// [`BenchError`]: a thread could not start, or lost its server.
pub fn run(
    endpoint: &Endpoint,
    workload: &Workload,
    watch: &mut dyn FnMut(&Moment),
) -> Result<Outcome, BenchError> {
    let threads = workload.threads.clamp(1, workload.connections.max(1));
    let workload = Workload {
        threads,
        ..workload.clone()
    };
    raise_open_files(workload.connections as u64 + FILES_BESIDE)
        .map_err(|error| BenchError::System("the limit of open files", error))?;
    let server = endpoint.find_pid()?.map(Process::new);
    let keys = Keys::new(workload.key_space, workload.key_order, workload.seed);
    let shared = Shared::new(match workload.limit {
        Limit::Requests(count) => count,
        Limit::Time(_) => u64::MAX,
    });
    let boards: Vec<Board> = (0..threads).map(|_| Board::default()).collect();
    let clock = SystemClock::new();
    let (sender, messages) = mpsc::channel();
    std::thread::scope(|scope| {
        let mut starters = Vec::new();
        for (index, board) in boards.iter().enumerate() {
            let setup = Setup {
                clock,
                endpoint,
                workload: &workload,
                keys: &keys,
                shared: &shared,
                board,
                index,
                connections: share_of(workload.connections.max(1), threads, index),
            };
            let (starter, start) = mpsc::channel();
            starters.push(starter);
            let sender = sender.clone();
            scope.spawn(move || work(&setup, &sender, &start));
        }
        let mut watched = Watch {
            clock,
            shared: &shared,
            boards: &boards,
            server,
            messages: &messages,
            harvests: Vec::new(),
            threads,
            begin: Reading::default(),
            last: Reading::default(),
            moments: Vec::new(),
            watch,
        };
        let outcome = watched.follow(&workload, starters);
        // In any case, all threads stop.
        shared.set_phase(Phase::Stop);
        outcome
    })
}

/// Returns a thread's share of `connections`.
fn share_of(connections: usize, threads: usize, index: usize) -> usize {
    connections / threads + usize::from(index < connections % threads)
}

/// Runs a thread of the generator.
fn work(setup: &Setup<'_>, sender: &Sender<Message>, start: &Receiver<()>) {
    let ended = Worker::new(setup).and_then(|worker| {
        // If the receiver is gone, the run was aborted.
        let _told = sender.send(Message::Ready);
        match start.recv() {
            Ok(()) => worker.run(),
            Err(_) => Ok(Harvest::default()),
        }
    });
    let _told = sender.send(Message::Ended(Box::new(ended)));
}

/// The thread that observes the others.
struct Watch<'a> {
    clock: SystemClock,
    shared: &'a Shared,
    boards: &'a [Board],
    server: Option<Process>,
    messages: &'a Receiver<Message>,
    harvests: Vec<Harvest>,
    threads: usize,
    /// When measuring began.
    begin: Reading,
    /// When the last moment ended.
    last: Reading,
    moments: Vec<Moment>,
    watch: &'a mut dyn FnMut(&Moment),
}

impl Watch<'_> {
    fn follow(
        &mut self,
        workload: &Workload,
        starters: Vec<Sender<()>>,
    ) -> Result<Outcome, BenchError> {
        for _ in 0..self.threads {
            if let Ok(Message::Ended(ended)) = self.messages.recv() {
                self.harvests.push((*ended)?);
            }
        }
        self.begin = self.read();
        self.last = self.begin;
        if workload.warm_up.is_zero() {
            self.shared.set_phase(Phase::Measure);
        }
        for starter in starters {
            // A thread that has ended has reported why, or will.
            let _told = starter.send(());
        }
        if !workload.warm_up.is_zero() {
            self.wait(Some(workload.warm_up), false)?;
            self.begin = self.read();
            self.last = self.begin;
            self.shared.set_phase(Phase::Measure);
        }
        let end = match workload.limit {
            Limit::Requests(_) => {
                self.wait(None, true)?;
                self.read()
            }
            Limit::Time(time) => {
                self.wait(Some(time), true)?;
                let end = self.read();
                self.shared.set_phase(Phase::Stop);
                self.wait(None, false)?;
                end
            }
        };
        Ok(self.outcome(workload.limit, end))
    }

    /// Observes until `time` has passed, or all threads have ended.
    fn wait(&mut self, time: Option<Duration>, is_measuring: bool) -> Result<(), BenchError> {
        let begin_ns = self.clock.monotonic_ns();
        while self.harvests.len() < self.threads {
            let passed = Duration::from_nanos(self.clock.monotonic_ns() - begin_ns);
            let left = match time {
                Some(time) if passed >= time => return Ok(()),
                Some(time) => MOMENT.min(time - passed),
                None => MOMENT,
            };
            match self.messages.recv_timeout(left) {
                Ok(Message::Ended(ended)) => self.harvests.push((*ended)?),
                Ok(Message::Ready) => {}
                Err(RecvTimeoutError::Timeout) => self.take_moment(is_measuring),
                Err(RecvTimeoutError::Disconnected) => return Ok(()),
            }
        }
        Ok(())
    }

    fn take_moment(&mut self, is_measuring: bool) {
        let mut recent = Histogram::default();
        for board in self.boards {
            let mut theirs = board.recent.lock().unwrap_or_else(PoisonError::into_inner);
            recent.merge(&theirs);
            theirs.clear();
        }
        let (last, now) = (self.last, self.read());
        self.last = now;
        let moment = Moment {
            at_ns: if is_measuring {
                now.at_ns - self.begin.at_ns
            } else {
                0
            },
            lasted_ns: now.at_ns - last.at_ns,
            requests: now.replies - last.replies,
            p50_ns: recent.quantile_ns(0.5),
            p99_ns: recent.quantile_ns(0.99),
            server_cpu_ns: cpu_between(last.server, now.server),
        };
        if is_measuring {
            self.moments.push(moment);
        }
        (self.watch)(&moment);
    }

    fn read(&self) -> Reading {
        Reading {
            at_ns: self.clock.monotonic_ns(),
            replies: self
                .boards
                .iter()
                .map(|board| board.replies.load(Ordering::Acquire))
                .sum(),
            server: self.server.as_ref().and_then(Process::usage),
            own: process::own_usage(),
        }
    }

    fn outcome(&mut self, limit: Limit, end: Reading) -> Outcome {
        let mut outcome = Outcome {
            wall_ns: end.at_ns - self.begin.at_ns,
            requests: end.replies - self.begin.replies,
            server: used(self.begin.server, end.server),
            generator: used(self.begin.own, end.own),
            moments: std::mem::take(&mut self.moments),
            ..Outcome::default()
        };
        let mut ended_ns = 0;
        for harvest in &self.harvests {
            outcome.latency.merge(&harvest.latency);
            outcome.service.merge(&harvest.service);
            outcome.errors += harvest.tally.errors;
            outcome.misses += harvest.tally.misses;
            let first = &mut outcome.first_error;
            *first = first.take().or_else(|| harvest.tally.first_error.clone());
            ended_ns = ended_ns.max(harvest.ended_ns);
            if let Some(generator) = &mut outcome.generator {
                generator.waited_ns += harvest.waited_ns;
            }
        }
        if matches!(limit, Limit::Requests(_)) {
            outcome.wall_ns = ended_ns.saturating_sub(self.begin.at_ns);
        }
        outcome
    }
}

fn cpu_between(before: Option<Usage>, after: Option<Usage>) -> Option<u64> {
    Some(after?.cpu_ns.saturating_sub(before?.cpu_ns))
}

fn used(before: Option<Usage>, after: Option<Usage>) -> Option<Used> {
    Some(Used {
        cpu_ns: cpu_between(before, after)?,
        waited_ns: after?.waited_ns.saturating_sub(before?.waited_ns),
        rss_bytes_before: before?.rss_bytes,
        rss_bytes_after: after?.rss_bytes,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_are_shared_out_without_loss() {
        let shares: Vec<usize> = (0..3).map(|index| share_of(50, 3, index)).collect();
        assert_eq!(shares, [17, 17, 16]);
    }

    #[test]
    fn figures_without_requests_are_zero() {
        let outcome = Outcome::default();
        assert_eq!(outcome.requests_per_second().to_bits(), 0.0_f64.to_bits());
        assert_eq!(outcome.server_ns_per_request(), None);
    }
}
