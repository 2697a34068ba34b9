//! The workloads that RapidKV, VortexKV and dist-KV published figures for, each with its letter, and
//! three more: latency at a fixed share of the load (p), reads beside writes of the same data (r), and
//! memory of a key (s).

use crate::error::BenchError;
use crate::keys::KeyOrder;
use crate::measure::Step;
use crate::options::{Options, RUN, WARM_UP};
use crate::template::Template;
use crate::workload::{Limit, ValueBytes, Workload};

/// A published workload.
struct Entry {
    letter: &'static str,
    title: &'static str,
    steps: fn(&Plan<'_>) -> Vec<Step>,
}

const ENTRIES: &[Entry] = &[
    Entry {
        letter: "a",
        title: "SET:GET 1:1, pipeline 1, 8 B, 100 K keys",
        steps: |plan| plan.data(100_000, 8).mix(1, 1).steps(),
    },
    Entry {
        letter: "b",
        title: "SET:GET 1:9, pipeline 16, 64 B, 200 K keys",
        steps: |plan| plan.data(200_000, 64).mix(1, 9).pipelines(&[16]).steps(),
    },
    Entry {
        letter: "c",
        title: "SET:GET 1:9, 8 B, 1 M keys",
        steps: |plan| {
            let depths = [1, 10, 100, 200, 500];
            plan.data(1_000_000, 8).mix(1, 9).pipelines(&depths).steps()
        },
    },
    Entry {
        letter: "d",
        title: "SET:GET 1:1, pipeline 64, 2 KB, 100 K keys",
        steps: |plan| plan.data(100_000, 2_048).mix(1, 1).pipelines(&[64]).steps(),
    },
    Entry {
        letter: "e",
        title: "pipeline 30, 256 B",
        steps: |plan| {
            let sizes = plan.key_spaces(&[1_000_000, 10_000_000]);
            let each = sizes.into_iter().flat_map(|keys| {
                plan.data(keys, 256)
                    .named_by_keys()
                    .set_and_get()
                    .pipelines(&[30])
                    .steps()
            });
            each.collect()
        },
    },
    Entry {
        letter: "f",
        title: "pipeline 16, 67 B, 1 M random keys",
        steps: |plan| {
            plan.data(1_000_000, 67)
                .set_and_get()
                .pipelines(&[16])
                .steps()
        },
    },
    Entry {
        letter: "g",
        title: "GET of one key, pipeline 16",
        steps: |plan| {
            let threads = plan.threads();
            plan.data(1, 64)
                .get()
                .pipelines(&[16])
                .threads(&threads)
                .steps()
        },
    },
    Entry {
        letter: "h",
        title: "SET, pipeline 16, 42 B keys, 128 B values",
        steps: |plan| {
            plan.data(1_000_000, 128)
                .key_bytes(42)
                .set()
                .pipelines(&[16])
                .steps()
        },
    },
    Entry {
        letter: "i",
        title: "SET:GET 1:9, pipeline 16, 64 B, 1 M keys",
        steps: |plan| {
            let threads = plan.threads();
            plan.data(1_000_000, 64)
                .mix(1, 9)
                .pipelines(&[16])
                .threads(&threads)
                .steps()
        },
    },
    Entry {
        letter: "j",
        title: "GET, pipeline 16, 8 B, 500 K keys",
        steps: |plan| plan.data(500_000, 8).get().pipelines(&[16]).steps(),
    },
    Entry {
        letter: "k",
        title: "pipeline 1, 640 connections, 256 B, 10 M keys",
        steps: |plan| {
            plan.data(10_000_000, 256)
                .set_and_get()
                .connections(&[640])
                .steps()
        },
    },
    Entry {
        letter: "l",
        title: "SET, pipeline 16, 64 B, 1 M keys, Zipf 0.9",
        steps: |plan| {
            plan.data(1_000_000, 64)
                .zipf(0.9)
                .set()
                .pipelines(&[16])
                .steps()
        },
    },
    Entry {
        letter: "m",
        title: "SET:GET 1:4, 1,024 keys",
        steps: |plan| {
            let each = [64, 512, 2_048].into_iter().flat_map(|bytes| {
                let data = plan.data(1_024, bytes).named_by_bytes().mix(1, 4);
                data.connections(&[1, 16, 128])
                    .pipelines(&[1, 16, 64])
                    .steps()
            });
            each.collect()
        },
    },
    Entry {
        letter: "p",
        title: "GET at half load, 64 B, 100 K keys",
        steps: |plan| {
            let depths = [1, 16, 64, 500];
            plan.data(100_000, 64)
                .get()
                .pipelines(&depths)
                .at_share(0.5)
                .steps()
        },
    },
    Entry {
        letter: "r",
        title: "256 B, pipeline 16, 100 K keys",
        steps: |plan| {
            plan.data(100_000, 256)
                .set_and_get()
                .pipelines(&[16])
                .steps()
        },
    },
    Entry {
        letter: "s",
        title: "GET, pipeline 16, 16 B keys",
        steps: |plan| {
            let sizes = plan.key_spaces(&[1_000_000, 10_000_000]);
            let each = sizes.into_iter().flat_map(|keys| {
                [8, 100].into_iter().flat_map(move |bytes| {
                    plan.data(keys, bytes)
                        .named_by_keys()
                        .named_by_bytes()
                        .get()
                        .pipelines(&[16])
                        .steps()
                })
            });
            each.collect()
        },
    },
];

/// The steps of the suite, or of the letters that were asked for.
///
/// # Errors
/// A letter that there is not.
pub(crate) fn steps(options: &Options) -> Result<Vec<Step>, BenchError> {
    if let Some(letter) = options.only.iter().find(|letter| entry(letter).is_none()) {
        let letters: Vec<&str> = ENTRIES.iter().map(|entry| entry.letter).collect();
        let letters = letters.join(" ");
        return Err(BenchError::Usage(format!(
            "No workload is called '{letter}'; there are {letters}"
        )));
    }
    let is_wanted = |entry: &&Entry| {
        options.only.is_empty() || options.only.iter().any(|letter| letter == entry.letter)
    };
    let of_entry = |entry: &Entry| {
        let plan = Plan {
            options,
            letter: entry.letter,
            title: entry.title,
        };
        (entry.steps)(&plan)
    };
    Ok(ENTRIES
        .iter()
        .filter(is_wanted)
        .flat_map(of_entry)
        .collect())
}

fn entry(letter: &str) -> Option<&'static Entry> {
    ENTRIES.iter().find(|entry| entry.letter == letter)
}

/// What all workloads of a letter start from.
struct Plan<'a> {
    options: &'a Options,
    letter: &'static str,
    title: &'static str,
}

/// Workloads over one data set, on their way.
struct Series<'a> {
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

impl Plan<'_> {
    /// `key_space` keys with values of `value_bytes`.
    fn data(&self, key_space: u64, value_bytes: usize) -> Series<'_> {
        let shape = &self.options.shape;
        let is_limited = self.options.has_limit;
        Series {
            plan: self,
            base: Workload {
                key_space: key_space.min(self.options.keys_max),
                value_bytes: ValueBytes::exactly(value_bytes),
                limit: if is_limited {
                    shape.limit
                } else {
                    Limit::Time(RUN)
                },
                warm_up: if shape.warm_up.is_zero() {
                    WARM_UP
                } else {
                    shape.warm_up
                },
                cpus: shape.cpus.clone(),
                seed: shape.seed,
                ..Workload::default()
            },
            is_named_by_keys: false,
            is_named_by_bytes: false,
            kinds: Vec::new(),
            connections: vec![50],
            pipelines: vec![1],
            threads: vec![self.options.threads.first().copied().unwrap_or(1)],
            rate_share: None,
        }
    }

    /// Those of `sizes` that are allowed; the smallest that is, if none.
    fn key_spaces(&self, sizes: &[u64]) -> Vec<u64> {
        let max = self.options.keys_max;
        let mut allowed: Vec<u64> = sizes.iter().map(|size| *size.min(&max)).collect();
        allowed.dedup();
        allowed
    }

    /// 1, 2, 4 and so on up to the processors of this machine.
    fn threads(&self) -> Vec<usize> {
        let most = std::thread::available_parallelism().map_or(1, usize::from);
        // Pinned threads say how many there may be.
        let most = most.max(self.options.shape.cpus.len());
        (0..10)
            .map(|power| 1 << power)
            .filter(|threads| *threads <= most)
            .collect()
    }
}

impl Series<'_> {
    fn mix(mut self, set: u32, get: u32) -> Self {
        self.kinds.push(("", Workload::set_get_mix(set, get)));
        self
    }

    fn set(mut self) -> Self {
        self.kinds.push(("SET", Workload::set_get_mix(1, 0)));
        self
    }

    fn get(mut self) -> Self {
        self.kinds.push(("GET", Workload::set_get_mix(0, 1)));
        self
    }

    fn set_and_get(self) -> Self {
        self.set().get()
    }

    fn pipelines(mut self, depths: &[usize]) -> Self {
        self.pipelines = depths.to_vec();
        self
    }

    fn connections(mut self, counts: &[usize]) -> Self {
        self.connections = counts.to_vec();
        self
    }

    fn threads(mut self, counts: &[usize]) -> Self {
        self.threads = counts.to_vec();
        self
    }

    fn key_bytes(mut self, bytes: usize) -> Self {
        self.base.key_bytes = bytes;
        self
    }

    fn zipf(mut self, exponent: f64) -> Self {
        self.base.key_order = KeyOrder::Zipf { exponent };
        self
    }

    fn at_share(mut self, share: f64) -> Self {
        self.rate_share = Some(share);
        self
    }

    fn named_by_keys(mut self) -> Self {
        self.is_named_by_keys = true;
        self
    }

    fn named_by_bytes(mut self) -> Self {
        self.is_named_by_bytes = true;
        self
    }

    /// A step for each kind of request and each combination; the first loads the data.
    fn steps(self) -> Vec<Step> {
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
                            filled_by: None,
                            is_fresh,
                            rate_share,
                        });
                    }
                }
            }
        }
        steps
    }

    /// The letter, its title, and what tells this data set and kind from others of the letter.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn letters(only: &[&str]) -> Options {
        Options {
            only: only.iter().map(|letter| (*letter).to_owned()).collect(),
            ..Options::default()
        }
    }

    #[test]
    fn names_are_unique_and_each_data_set_is_loaded_once() {
        let steps = steps(&letters(&[])).unwrap();
        let mut names: Vec<&str> = steps
            .iter()
            .map(|step| step.workload.name.as_str())
            .collect();
        names.sort_unstable();
        let count = names.len();
        names.dedup();
        assert_eq!(names.len(), count);
        assert!(steps.first().is_some_and(|step| step.is_fresh));
        for pair in steps.windows(2) {
            let data = |step: &Step| {
                let workload = &step.workload;
                (workload.key_space, workload.value_bytes, workload.key_bytes)
            };
            assert!(pair[1].is_fresh || data(&pair[0]) == data(&pair[1]));
        }
    }

    #[test]
    fn key_spaces_stay_below_the_limit() {
        let options = Options {
            keys_max: 1_000_000,
            ..letters(&["e", "k"])
        };
        let steps = steps(&options).unwrap();
        assert!(
            steps
                .iter()
                .all(|step| step.workload.key_space <= 1_000_000)
        );
        // Two kinds of (e) over one key space, and two of (k).
        assert_eq!(steps.len(), 4);
    }

    #[test]
    fn published_shapes_are_kept() {
        let steps = steps(&letters(&["c", "h"])).unwrap();
        let pipelines: Vec<usize> = steps.iter().map(|step| step.workload.pipeline).collect();
        assert_eq!(pipelines, [1, 10, 100, 200, 500, 16]);
        assert_eq!(steps[5].workload.key_bytes, 42);
        assert_eq!(steps[5].workload.value_bytes, ValueBytes::exactly(128));
    }

    #[test]
    fn an_unknown_letter_is_refused() {
        assert!(steps(&letters(&["z"])).is_err());
    }
}
