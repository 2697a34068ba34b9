//! The workloads for which RapidKV, VortexKV and dist-KV published figures, each with its letter,
//! and three more: latency at a fixed share of the load (p), reads beside writes of the same data
//! (r), and memory per key (s).

use super::series::Plan;
use crate::measure::Step;
use crate::options::Options;

/// A published workload.
pub(super) struct Entry {
    pub(super) letter: &'static str,
    title: &'static str,
    steps: fn(&Plan<'_>) -> Vec<Step>,
}

pub(super) const ENTRIES: &[Entry] = &[
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

impl Entry {
    pub(super) fn steps(&self, options: &Options) -> Vec<Step> {
        let plan = Plan {
            options,
            letter: self.letter,
            title: self.title,
        };
        (self.steps)(&plan)
    }
}
