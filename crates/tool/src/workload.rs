//! The requests for a server: which ones, in which order, how fast and how long.

use std::time::Duration;

use crate::keys::KeyOrder;
use crate::template::Template;

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Workload {
    /// Name for people, and for the report's headings.
    pub name: String,
    /// The family: its workloads are points of one plot.
    pub family: String,
    /// Kinds of requests, each with its weight; never empty, weights above 0.
    pub mix: Vec<(Template, u32)>,
    /// Number of keys.
    pub key_space: u64,
    /// How keys are chosen.
    pub key_order: KeyOrder,
    /// Length of `__key__`.
    pub key_bytes: usize,
    /// Length of `__data__`.
    pub value_bytes: ValueBytes,
    /// Number of connections of all threads together.
    pub connections: usize,
    /// Number of requests sent at once on a connection; the next follow when all are answered.
    pub pipeline: usize,
    /// Number of threads of the generator.
    pub threads: usize,
    /// Processors to which the threads are pinned, in turn; empty for any.
    pub cpus: Vec<usize>,
    /// When a batch is sent.
    pub pace: Pace,
    /// When the run ends.
    pub limit: Limit,
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// The seed of all random choices.
    pub seed: u64,
}

/// Requests of one kind that create the data that another reads.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) template: Template,
    pub(crate) requests: u64,
    pub(crate) order: KeyOrder,
}

/// Lengths of values, uniformly distributed over the range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueBytes {
    /// The minimum length.
    pub min: usize,
    /// The maximum length.
    pub max: usize,
}

/// When a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as the preceding batch on its connection is answered.
    Closed,
    /// At times that do not depend on the server. A batch that is late because all connections wait
    /// counts from when it was due, so that a stall of the server affects all batches it would have
    /// hit.
    Open {
        /// Requests per second of all threads together; above 0.
        requests_per_second: f64,
        /// Whether the pauses are random, like those of independent clients, or all equal.
        is_random: bool,
    },
}

/// When a run ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// After this many requests.
    Requests(u64),
    /// After this time.
    Time(Duration),
}

impl Default for Workload {
    fn default() -> Self {
        Self {
            name: "GET".to_owned(),
            family: String::new(),
            mix: vec![(Template::new(&["GET", "__key__"]), 1)],
            key_space: 1,
            key_order: KeyOrder::Uniform,
            key_bytes: 16,
            value_bytes: ValueBytes::exactly(3),
            connections: 50,
            pipeline: 1,
            threads: 1,
            cpus: Vec::new(),
            pace: Pace::Closed,
            limit: Limit::Requests(100_000),
            warm_up: Duration::ZERO,
            seed: 1,
        }
    }
}

impl Workload {
    /// Returns the workload that loads this one's data: sets every key once, in order, with few
    /// connections and long batches.
    #[must_use]
    pub fn preload(&self) -> Self {
        // As many requests at once as fit into a batch of 64 KB.
        let request_bytes = self.value_bytes.max + self.key_bytes + 64;
        Self {
            name: format!("load {} keys", self.key_space),
            family: String::new(),
            mix: vec![(Template::new(&["SET", "__key__", "__data__"]), 1)],
            key_order: KeyOrder::Sequential,
            connections: 4 * self.threads,
            pipeline: (65_536 / request_bytes).clamp(1, 256),
            pace: Pace::Closed,
            limit: Limit::Requests(self.key_space),
            warm_up: Duration::ZERO,
            ..self.clone()
        }
    }

    /// Returns SET and GET in the given shares.
    #[must_use]
    pub fn set_get_mix(set: u32, get: u32) -> Vec<(Template, u32)> {
        let both = [
            (Template::new(&["SET", "__key__", "__data__"]), set),
            (Template::new(&["GET", "__key__"]), get),
        ];
        both.into_iter().filter(|(_, share)| *share > 0).collect()
    }
}

impl ValueBytes {
    /// Creates a range of a single length.
    #[must_use]
    pub fn exactly(bytes: usize) -> Self {
        Self {
            min: bytes,
            max: bytes,
        }
    }
}
