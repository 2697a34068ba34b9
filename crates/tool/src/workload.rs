//! What is asked of a server: which requests, in which order, how fast and how long.

use std::time::Duration;

use crate::keys::KeyOrder;
use crate::template::Template;

/// A run to be made.
#[derive(Clone, Debug)]
pub struct Workload {
    /// For people and for the report's headings.
    pub name: String,
    /// Workloads of one family are points of one plot.
    pub family: String,
    /// Kinds of requests, each with its share; never empty, weights above 0.
    pub mix: Vec<(Template, u32)>,
    /// Keys there are.
    pub key_space: u64,
    /// How they are chosen.
    pub key_order: KeyOrder,
    /// Length of `__key__`.
    pub key_bytes: usize,
    /// Length of `__data__`.
    pub value_bytes: ValueBytes,
    /// Connections of all threads together.
    pub connections: usize,
    /// Requests sent at once on a connection; the next follow when all are answered.
    pub pipeline: usize,
    /// Threads of the generator.
    pub threads: usize,
    /// Processors the threads are pinned to, in turn; empty for any.
    pub cpus: Vec<usize>,
    /// When a batch is sent.
    pub pace: Pace,
    /// When the run ends.
    pub limit: Limit,
    /// Time before measuring begins.
    pub warm_up: Duration,
    /// What all random choices follow from.
    pub seed: u64,
}

/// Requests of one kind that fill what another reads.
#[derive(Clone, Debug)]
pub(crate) struct Fill {
    pub(crate) template: Template,
    pub(crate) requests: u64,
    pub(crate) order: KeyOrder,
}

/// Lengths of values, each in the range with the same chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValueBytes {
    /// The shortest.
    pub min: usize,
    /// The longest.
    pub max: usize,
}

/// When a batch is sent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Pace {
    /// As soon as the one before it on its connection is answered.
    Closed,
    /// At times that do not depend on the server. A batch that is late because all connections wait
    /// counts from when it was due, so that a stall of the server is seen by all it would have hit.
    Open {
        /// Requests a second, of all threads together; above 0.
        requests_per_second: f64,
        /// Whether the pauses are random, as those of independent clients, or all equal.
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
    /// This workload's data: every key set once, in order, by few connections and long batches.
    #[must_use]
    pub fn preload(&self) -> Self {
        // As many requests at once as fill a batch of 64 KB.
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

    /// SET and GET in the given shares.
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
    /// Values of one length.
    #[must_use]
    pub fn exactly(bytes: usize) -> Self {
        Self {
            min: bytes,
            max: bytes,
        }
    }
}
