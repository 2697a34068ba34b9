//! Runs in the order of a page: by workload, by series in which one number differs, by server.

use crate::metric::{Metric, Ratio, median};
use crate::record::{Memory, Record, Run, Server, Shape};

/// The runs of one workload on all servers.
pub(super) struct Workload<'a> {
    pub(super) shape: &'a Shape,
    pub(super) runs: Vec<&'a Run>,
}

/// Workloads in which one number differs.
pub(super) struct Sweep<'a> {
    pub(super) title: String,
    pub(super) axis: Axis,
    pub(super) workloads: Vec<&'a Workload<'a>>,
}

/// The number that differs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Axis {
    Pipeline,
    Threads,
    Connections,
}

/// Memory per key on one server.
pub(super) struct KeyCost<'a> {
    pub(super) memory: &'a Memory,
    pub(super) bytes: f64,
}

/// All figures of a record.
pub(super) struct Figures<'a> {
    pub(super) record: &'a Record,
    pub(super) workloads: Vec<Workload<'a>>,
}

impl Axis {
    const ALL: [Self; 3] = [Self::Pipeline, Self::Threads, Self::Connections];

    pub(super) fn of(self, shape: &Shape) -> u64 {
        match self {
            Self::Pipeline => shape.pipeline,
            Self::Threads => shape.threads,
            Self::Connections => shape.connections,
        }
    }

    pub(super) fn title(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline depth",
            Self::Threads => "threads of the generator",
            Self::Connections => "connections",
        }
    }

    fn noun(self) -> &'static str {
        match self {
            Self::Pipeline => "pipeline",
            Self::Threads => "threads",
            Self::Connections => "connections",
        }
    }
}

impl Workload<'_> {
    /// Returns the median of a figure over the rounds of a server.
    pub(super) fn median(&self, metric: Metric, server: &str) -> Option<f64> {
        metric.median(self.of(server))
    }

    /// Returns the minimum and maximum of a figure over the rounds of a server, if there are
    /// several.
    pub(super) fn spread(&self, metric: Metric, server: &str) -> Option<(f64, f64)> {
        let figures: Vec<f64> = self.of(server).filter_map(|run| metric.of(run)).collect();
        let low = figures.iter().copied().reduce(f64::min)?;
        let high = figures.iter().copied().reduce(f64::max)?;
        (figures.len() > 1).then_some((low, high))
    }

    /// Compares a server with the first.
    pub(super) fn ratio(&self, metric: Metric, server: &str, base: &str) -> Option<Ratio> {
        metric.ratio(self.runs.iter().copied(), server, base)
    }

    /// Returns the median over the rounds of a quantile of a server's latencies.
    pub(super) fn quantile_ns(&self, server: &str, share: f64) -> Option<f64> {
        let of_runs = self
            .of(server)
            .filter(|run| run.outcome.latency.count() > 0);
        median(
            of_runs
                .map(|run| run.outcome.latency.quantile_ns(share) as f64)
                .collect(),
        )
    }

    /// Returns the fewest samples among a server's rounds: quantiles beyond them are meaningless.
    pub(super) fn samples(&self, server: &str) -> u64 {
        self.of(server)
            .map(|run| run.outcome.latency.count())
            .min()
            .unwrap_or(0)
    }

    fn of<'b>(&'b self, server: &'b str) -> impl Iterator<Item = &'b Run> + Clone {
        self.runs
            .iter()
            .copied()
            .filter(move |run| run.server == server)
    }
}

impl<'a> Figures<'a> {
    pub(super) fn new(record: &'a Record) -> Self {
        let mut workloads: Vec<Workload<'a>> = Vec::new();
        for run in record.runs.iter().filter(|run| run.outcome.requests > 0) {
            let is_same = |known: &&mut Workload<'_>| is_same_workload(known.shape, &run.shape);
            match workloads.iter_mut().find(is_same) {
                Some(known) => known.runs.push(run),
                None => workloads.push(Workload {
                    shape: &run.shape,
                    runs: vec![run],
                }),
            }
        }
        Self { record, workloads }
    }

    pub(super) fn servers(&self) -> &'a [Server] {
        &self.record.servers
    }

    /// Returns the server to which ratios refer.
    pub(super) fn base(&self) -> &'a str {
        self.record
            .servers
            .first()
            .map_or("", |server| &server.name)
    }

    /// Returns series of at least two workloads, in the order of the record.
    pub(super) fn sweeps(&self) -> Vec<Sweep<'_>> {
        let mut families: Vec<&str> = Vec::new();
        for workload in &self.workloads {
            if !families.contains(&workload.shape.family.as_str()) {
                families.push(&workload.shape.family);
            }
        }
        families
            .into_iter()
            .flat_map(|family| self.sweeps_of(family))
            .collect()
    }

    fn sweeps_of(&self, family: &str) -> Vec<Sweep<'_>> {
        let members: Vec<&Workload<'_>> = self
            .workloads
            .iter()
            .filter(|workload| workload.shape.family == family)
            .collect();
        let differs = |axis: &Axis| {
            members
                .iter()
                .any(|member| axis.of(member.shape) != axis.of(members[0].shape))
        };
        let differing: Vec<Axis> = Axis::ALL.into_iter().filter(differs).collect();
        let Some((&axis, others)) = differing.split_first() else {
            return Vec::new();
        };
        let mut sweeps: Vec<Sweep<'_>> = Vec::new();
        for member in members {
            let mut title = family.to_owned();
            for other in others {
                title += &format!(", {} {}", other.noun(), other.of(member.shape));
            }
            match sweeps.iter_mut().find(|sweep| sweep.title == title) {
                Some(sweep) => sweep.workloads.push(member),
                None => sweeps.push(Sweep {
                    title,
                    axis,
                    workloads: vec![member],
                }),
            }
        }
        for sweep in &mut sweeps {
            sweep
                .workloads
                .sort_by_key(|workload| axis.of(workload.shape));
        }
        sweeps.retain(|sweep| sweep.workloads.len() > 1);
        sweeps
    }

    /// Returns the memory per key: for each kind of data its cost on each server, from the last of
    /// several measurements.
    pub(super) fn memory(&self) -> Vec<Vec<KeyCost<'a>>> {
        let mut kinds: Vec<Vec<KeyCost<'a>>> = Vec::new();
        for memory in &self.record.memory {
            let key = |memory: &Memory| {
                let sizes = (memory.keys, memory.key_bytes, memory.value_bytes);
                (memory.data.clone(), sizes)
            };
            let cost = KeyCost {
                memory,
                bytes: memory.bytes_per_key(),
            };
            match kinds
                .iter_mut()
                .find(|kind| key(kind[0].memory) == key(memory))
            {
                Some(kind) => {
                    kind.retain(|known| known.memory.server != memory.server);
                    kind.push(cost);
                }
                None => kinds.push(vec![cost]),
            }
        }
        // Few keys are not meaningful: the server's own growth would outweigh them.
        kinds.retain(|kind| kind[0].memory.keys >= KEYS_MIN);
        kinds.sort_by_key(|kind| {
            let memory = kind[0].memory;
            (memory.keys, memory.key_bytes, memory.value_bytes)
        });
        kinds
    }
}

/// Minimum number of keys for which the memory per key is shown.
const KEYS_MIN: u64 = 200_000;

/// Whether runs are rounds of one workload; the rate of an open run differs between series.
fn is_same_workload(one: &Shape, other: &Shape) -> bool {
    let without_rate = |shape: &Shape| Shape {
        rate: None,
        ..shape.clone()
    };
    one.rate.is_some() == other.rate.is_some() && without_rate(one) == without_rate(other)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::Outcome;

    fn run(family: &str, connections: u64, pipeline: u64) -> Run {
        Run {
            server: "a".to_owned(),
            shape: Shape {
                workload: format!("{family} {connections} {pipeline}"),
                family: family.to_owned(),
                connections,
                pipeline,
                ..Shape::default()
            },
            round: 0,
            outcome: Outcome {
                requests: 1,
                ..Outcome::default()
            },
        }
    }

    #[test]
    fn series_differ_in_one_number() {
        let mut runs = vec![run("alone", 50, 1)];
        for connections in [1, 16] {
            for pipeline in [64, 1] {
                runs.push(run("m", connections, pipeline));
            }
        }
        runs.push(run("t", 1, 1));
        runs.push(run("t", 9, 1));
        let record = Record {
            runs,
            ..Record::default()
        };
        let figures = Figures::new(&record);
        let sweeps = figures.sweeps();
        let titles: Vec<&str> = sweeps.iter().map(|sweep| sweep.title.as_str()).collect();
        assert_eq!(titles, ["m, connections 1", "m, connections 16", "t"]);
        assert_eq!(sweeps[0].axis, Axis::Pipeline);
        let depths: Vec<u64> = sweeps[0]
            .workloads
            .iter()
            .map(|workload| workload.shape.pipeline)
            .collect();
        assert_eq!(depths, [1, 64]);
        assert_eq!(sweeps[2].axis, Axis::Connections);
    }

    #[test]
    fn memory_keeps_the_last_of_each_server_and_kind() {
        let memory = |server: &str, keys: u64, full_bytes: u64| Memory {
            server: server.to_owned(),
            keys,
            full_bytes,
            ..Memory::default()
        };
        let record = Record {
            memory: vec![
                memory("a", 1_000_000, 60_000_000),
                memory("b", 1_000_000, 50_000_000),
                memory("a", 1_000_000, 70_000_000),
                memory("a", 10, 10_000),
            ],
            ..Record::default()
        };
        let kinds = Figures::new(&record).memory();
        assert_eq!(kinds.len(), 1);
        let costs: Vec<(&str, f64)> = kinds[0]
            .iter()
            .map(|cost| (cost.memory.server.as_str(), cost.bytes))
            .collect();
        assert_eq!(costs, [("b", 50.0), ("a", 70.0)]);
    }
}
