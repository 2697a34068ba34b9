//! Steps over one data set: what the workloads of a letter have in common, and what differs.

use crate::keys::KeyOrder;
use crate::measure::Step;
use crate::options::{Options, RUN, WARM_UP};
use crate::template::Template;
use crate::workload::{Limit, ValueBytes, Workload};

/// The common basis of all workloads of a letter.
pub(super) struct Plan<'a> {
    pub(super) options: &'a Options,
    pub(super) letter: &'static str,
    pub(super) title: &'static str,
}

/// Workloads over one data set, being built.
pub(super) struct Series<'a> {
    plan: &'a Plan<'a>,
    base: Workload,
    is_named_by_keys: bool,
    is_named_by_bytes: bool,
    kinds: Vec<(&'static str, Vec<(Template, u32)>)>,
    connections: Vec<usize>,
    pipelines: Vec<usize>,
    threads: Vec<usize>,
    rate_share: Option<f64>,
}

/// Returns the parameters from the options that apply to every workload of the suite.
pub(super) fn base(options: &Options) -> Workload {
    let shape = &options.shape;
    Workload {
        limit: if options.has_limit {
            shape.limit
        } else {
            Limit::Time(RUN)
        },
        warm_up: if shape.warm_up.is_zero() {
            WARM_UP
        } else {
            shape.warm_up
        },
        threads: threads(options),
        cpus: shape.cpus.clone(),
        seed: shape.seed,
        ..Workload::default()
    }
}

fn threads(options: &Options) -> usize {
    options.threads.first().copied().unwrap_or(1)
}

impl Plan<'_> {
    /// Begins a series over `key_space` keys with values of `value_bytes`.
    pub(super) fn data(&self, key_space: u64, value_bytes: usize) -> Series<'_> {
        Series {
            plan: self,
            base: Workload {
                key_space: key_space.min(self.options.keys_max),
                value_bytes: ValueBytes::exactly(value_bytes),
                ..base(self.options)
            },
            is_named_by_keys: false,
            is_named_by_bytes: false,
            kinds: Vec::new(),
            connections: vec![50],
            pipelines: vec![1],
            threads: vec![threads(self.options)],
            rate_share: None,
        }
    }

    /// Returns `sizes`, each limited to the maximum, without adjacent duplicates.
    pub(super) fn key_spaces(&self, sizes: &[u64]) -> Vec<u64> {
        let max = self.options.keys_max;
        let mut allowed: Vec<u64> = sizes.iter().map(|size| *size.min(&max)).collect();
        allowed.dedup();
        allowed
    }

    /// Returns 1, 2, 4 and so on up to the number of processors of this machine.
    pub(super) fn threads(&self) -> Vec<usize> {
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        // A list of processors for pinning raises the number.
        let most = most.max(self.options.shape.cpus.len());
        (0..10)
            .map(|power| 1 << power)
            .filter(|threads| *threads <= most)
            .collect()
    }
}

impl Series<'_> {
    pub(super) fn mix(mut self, set: u32, get: u32) -> Self {
        self.kinds.push(("", Workload::set_get_mix(set, get)));
        self
    }

    pub(super) fn set(mut self) -> Self {
        self.kinds.push(("SET", Workload::set_get_mix(1, 0)));
        self
    }

    pub(super) fn get(mut self) -> Self {
        self.kinds.push(("GET", Workload::set_get_mix(0, 1)));
        self
    }

    pub(super) fn set_and_get(self) -> Self {
        self.set().get()
    }

    pub(super) fn pipelines(mut self, depths: &[usize]) -> Self {
        self.pipelines = depths.to_vec();
        self
    }

    pub(super) fn connections(mut self, counts: &[usize]) -> Self {
        self.connections = counts.to_vec();
        self
    }

    pub(super) fn threads(mut self, counts: &[usize]) -> Self {
        self.threads = counts.to_vec();
        self
    }

    pub(super) fn key_bytes(mut self, bytes: usize) -> Self {
        self.base.key_bytes = bytes;
        self
    }

    pub(super) fn zipf(mut self, exponent: f64) -> Self {
        self.base.key_order = KeyOrder::Zipf { exponent };
        self
    }

    pub(super) fn at_share(mut self, share: f64) -> Self {
        self.rate_share = Some(share);
        self
    }

    pub(super) fn named_by_keys(mut self) -> Self {
        self.is_named_by_keys = true;
        self
    }

    pub(super) fn named_by_bytes(mut self) -> Self {
        self.is_named_by_bytes = true;
        self
    }

    /// Returns a step for each kind of request and each combination; the first loads the data.
    pub(super) fn steps(self) -> Vec<Step> {
        let mut steps: Vec<Step> = Vec::new();
        for (kind, mix) in &self.kinds {
            for &threads in &self.threads {
                for &connections in &self.connections {
                    for &pipeline in &self.pipelines {
                        let workload = Workload {
                            name: self.name(kind, threads, connections, pipeline),
                            family: self.family(kind),
                            mix: mix.clone(),
                            threads,
                            connections,
                            pipeline,
                            ..self.base.clone()
                        };
                        let is_fresh = steps.is_empty();
                        let rate_share = self.rate_share;
                        steps.push(Step {
                            workload,
                            filled_by: Vec::new(),
                            is_fresh,
                            data: None,
                            rate_share,
                        });
                    }
                }
            }
        }
        steps
    }

    /// Returns the letter, its title, and what distinguishes this data set and kind from others of
    /// the letter.
    fn family(&self, kind: &str) -> String {
        let mut name = format!("{}: {}", self.plan.letter, self.plan.title);
        if self.is_named_by_bytes {
            name += &format!(", {} B", self.base.value_bytes.max);
        }
        if self.is_named_by_keys {
            name += &format!(
                ", {} keys",
                crate::units::short_count(self.base.key_space as f64)
            );
        }
        if self.kinds.len() > 1 {
            name += &format!(", {kind}");
        }
        name
    }

    fn name(&self, kind: &str, threads: usize, connections: usize, pipeline: usize) -> String {
        let mut name = self.family(kind);
        for (values, noun, value) in [
            (&self.threads, "threads", threads),
            (&self.connections, "connections", connections),
            (&self.pipelines, "pipeline", pipeline),
        ] {
            if values.len() > 1 {
                name += &format!(", {noun} {value}");
            }
        }
        name
    }
}
