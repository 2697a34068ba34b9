//! From options to runs: what to measure, on which servers, in which order.
//!
//! Servers take turns. In odd rounds their order is reversed, so that no server always follows the
//! same one, and other load on the machine affects all of them.

use std::io::Write;

use base::clock::{Clock as _, SystemClock};

use crate::contestant::Contestant;
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::keys::KeyOrder;
use crate::options::Options;
use crate::output;
use crate::process::Process;
use crate::progress::Progress;
use crate::record::{Machine, Memory, Record, Run, Server, Shape};
use crate::run::run;
use crate::template::Template;
use crate::workload::{Fill, Limit, Pace, Workload};

/// A workload, and the requests that must precede it.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) workload: Workload,
    /// Requests that create the data it reads, one kind after the other; none to set every key.
    pub(crate) filled_by: Vec<Fill>,
    /// Whether the data must be loaded again into an emptied server.
    pub(crate) is_fresh: bool,
    /// The data that a fresh step loads, if it is not keys with strings.
    pub(crate) data: Option<Data>,
    /// For an open run: its rate as a share of the first server's throughput in a closed run.
    pub(crate) rate_share: Option<f64>,
}

/// The unit for counting memory.
#[derive(Clone, Debug)]
pub(crate) struct Data {
    /// For people, such as `one set of 1 M members`.
    pub(crate) name: String,
    pub(crate) elements: u64,
}

/// A series of runs in progress.
pub(crate) struct Measurement<'a> {
    options: &'a Options,
    contestants: Vec<Contestant>,
    record: Record,
    progress: Progress,
    out: &'a mut dyn Write,
}

impl<'a> Measurement<'a> {
    pub(crate) fn new(
        options: &'a Options,
        command: &[String],
        out: &'a mut dyn Write,
    ) -> Result<Self, BenchError> {
        let contestants = Contestant::all(options)?;
        let record = Record {
            started_unix_ms: SystemClock::new().now_unix_ms(),
            command: command.to_vec(),
            machine: Machine::this(),
            servers: contestants.iter().map(|one| one.server.clone()).collect(),
            ..Record::default()
        };
        let is_plain = !options.is_quiet && !options.is_csv;
        Ok(Self {
            options,
            contestants,
            record,
            progress: Progress::new(options.shows_progress && is_plain),
            out,
        })
    }

    /// Makes all runs, prints them, and writes the file named by `--json`.
    pub(crate) fn make(&mut self, steps: &[Step]) -> Result<(), BenchError> {
        if self.options.is_csv && !self.is_comparison() {
            self.print(output::CSV_HEADING)?;
        }
        loop {
            for step in steps {
                self.make_step(step)?;
                // After each step, so that an aborted series is not lost.
                if let Some(path) = self.options.json.as_ref().filter(|path| **path != *"-") {
                    self.record.save(path)?;
                }
            }
            if !self.options.is_endless {
                break;
            }
        }
        match &self.options.json {
            Some(path) => self.record.save(path),
            None => Ok(()),
        }
    }

    fn is_comparison(&self) -> bool {
        self.contestants.len() > 1
    }

    fn make_step(&mut self, step: &Step) -> Result<(), BenchError> {
        self.prepare(step)?;
        let step = &self.at_rate(step)?;
        let rounds = if self.is_comparison() {
            self.options.rounds
        } else {
            1
        };
        let first_run = self.record.runs.len();
        for round in 0..rounds {
            let count = self.contestants.len();
            for turn in 0..count {
                let index = if round % 2 == 0 {
                    turn
                } else {
                    count - 1 - turn
                };
                let endpoint = self.contestants[index].endpoint.clone();
                let outcome = self.watched(&endpoint, &step.workload)?;
                let measured = Run {
                    server: endpoint.name,
                    shape: Shape::of(&step.workload),
                    round: round as u64,
                    outcome,
                };
                if !self.is_comparison() {
                    self.print_run(&measured, step)?;
                }
                self.record.runs.push(measured);
            }
        }
        if self.is_comparison() {
            let runs: Vec<&Run> = self.record.runs[first_run..].iter().collect();
            let servers: Vec<&Server> = self.record.servers.iter().collect();
            let table = output::comparison(&step.workload.name, &servers, &runs);
            self.print(&table)?;
        }
        Ok(())
    }

    /// Returns the step with its rate, if that is a share of the first server's throughput.
    fn at_rate(&mut self, step: &Step) -> Result<Step, BenchError> {
        let mut step = step.clone();
        if let (Some(share), Some(first)) = (step.rate_share, self.contestants.first()) {
            let endpoint = first.endpoint.clone();
            let outcome = self.watched(&endpoint, &step.workload)?;
            step.workload.pace = Pace::Open {
                requests_per_second: (outcome.requests_per_second() * share).max(1.0),
                is_random: self.options.is_random,
            };
        }
        Ok(step)
    }

    /// Loads the data of a step into every server.
    fn prepare(&mut self, step: &Step) -> Result<(), BenchError> {
        for index in 0..self.contestants.len() {
            if step.is_fresh {
                self.contestants[index].empty(self.options)?;
            }
            let endpoint = self.contestants[index].endpoint.clone();
            let fills = fills(step);
            if step.data.is_none() && (step.is_fresh || self.options.is_preloaded) {
                self.load(&endpoint, step, &[step.workload.preload()])?;
                self.fill(&endpoint, &fills)?;
            } else if step.is_fresh {
                self.load(&endpoint, step, &fills)?;
            } else {
                self.fill(&endpoint, &fills)?;
            }
        }
        Ok(())
    }

    /// Runs `fills`, and records their memory cost for an empty server.
    fn load(
        &mut self,
        endpoint: &Endpoint,
        step: &Step,
        fills: &[Workload],
    ) -> Result<(), BenchError> {
        let was_empty = endpoint.connect()?.keys_count()? == 0;
        let process = endpoint.find_pid()?.map(Process::new);
        let usage = || process.as_ref().and_then(Process::usage);
        let before = usage();
        self.fill(endpoint, fills)?;
        if let (true, Some(before), Some(after)) = (was_empty, before, usage()) {
            let mut memory = Memory {
                server: endpoint.name.clone(),
                empty_bytes: before.rss_bytes,
                full_bytes: after.rss_bytes,
                ..Memory::of_keys(&step.workload)
            };
            if let Some(data) = &step.data {
                memory.count_by(&data.name, data.elements);
            }
            self.record.memory.push(memory);
        }
        Ok(())
    }

    fn fill(&mut self, endpoint: &Endpoint, fills: &[Workload]) -> Result<(), BenchError> {
        for filling in fills {
            let outcome = self.watched(endpoint, filling)?;
            if let Some(error) = outcome.first_error {
                return Err(BenchError::Refused {
                    request: filling.name.clone(),
                    reply: error,
                });
            }
        }
        Ok(())
    }

    fn watched(
        &mut self,
        endpoint: &Endpoint,
        workload: &Workload,
    ) -> Result<crate::run::Outcome, BenchError> {
        let title = match self.is_comparison() {
            true => format!("{}: {}", endpoint.name, workload.name),
            false => workload.name.clone(),
        };
        let progress = &mut self.progress;
        progress.begin(&title);
        let outcome = run(endpoint, workload, &mut |moment| progress.show(moment));
        progress.clear();
        outcome
    }

    fn print_run(&mut self, run: &Run, step: &Step) -> Result<(), BenchError> {
        let text = if self.options.is_csv {
            output::csv(run)
        } else if self.options.is_quiet {
            output::quiet(run, self.options.precision)
        } else {
            output::full(run, step.workload.value_bytes) + "\n"
        };
        self.print(&text)
    }

    fn print(&mut self, text: &str) -> Result<(), BenchError> {
        let written = self
            .out
            .write_all(text.as_bytes())
            .and_then(|()| self.out.flush());
        written.map_err(|error| BenchError::System("standard output", error))
    }
}

/// Returns the runs, which are not measured, that load the data of `step`.
fn fills(step: &Step) -> Vec<Workload> {
    let filling = |fill: &Fill| {
        let mut filling = Workload {
            name: format!("fill for {}", step.workload.name),
            mix: vec![(fill.template.clone(), 1)],
            key_order: fill.order,
            limit: Limit::Requests(fill.requests),
            ..step.workload.preload()
        };
        // Only the requests of a single connection keep their order.
        if fill.order == KeyOrder::Sequential {
            filling.connections = 1;
            filling.threads = 1;
        }
        filling
    };
    step.filled_by.iter().map(filling).collect()
}

/// Returns the steps of a plain measurement: each test, or the mix, with each combination of the
/// lists.
pub(crate) fn steps(options: &Options) -> Vec<Step> {
    let mut steps = Vec::new();
    let mut push = |name: &str, mix: &[(Template, u32)], filled_by: &[Fill]| {
        for workload in combinations(options, name, mix) {
            steps.push(Step {
                workload,
                filled_by: filled_by.to_vec(),
                is_fresh: false,
                data: None,
                rate_share: options.rate_share,
            });
        }
    };
    if options.mix.is_empty() {
        for test in &options.tests {
            push(
                &test.template.name,
                &[(test.template.clone(), 1)],
                &test.filled_by,
            );
        }
    } else {
        push(&mix_name(&options.mix), &options.mix, &[]);
    }
    steps
}

fn mix_name(mix: &[(Template, u32)]) -> String {
    let names: Vec<&str> = mix
        .iter()
        .map(|(template, _)| template.name.as_str())
        .collect();
    let shares: Vec<String> = mix.iter().map(|(_, share)| share.to_string()).collect();
    format!("{} {}", names.join(":"), shares.join(":"))
}

/// Returns `mix` with each combination of `-P`, `-c` and `--threads`, named by what differs.
fn combinations(options: &Options, name: &str, mix: &[(Template, u32)]) -> Vec<Workload> {
    let mut workloads = Vec::new();
    for &threads in &options.threads {
        for &connections in &options.connections {
            for &pipeline in &options.pipelines {
                let mut full_name = name.to_owned();
                for (values, noun, value) in [
                    (&options.threads, "threads", threads),
                    (&options.connections, "connections", connections),
                    (&options.pipelines, "pipeline", pipeline),
                ] {
                    if values.len() > 1 {
                        full_name += &format!(", {noun} {value}");
                    }
                }
                workloads.push(Workload {
                    name: full_name,
                    family: name.to_owned(),
                    mix: mix.to_vec(),
                    connections,
                    pipeline,
                    threads,
                    ..options.shape.clone()
                });
            }
        }
    }
    workloads
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options::{Job, read};

    fn options(line: &str) -> Options {
        let words = line.split_whitespace().map(str::to_owned).collect();
        match read(words) {
            Ok(Job::Measure(options)) => options,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn every_combination_is_a_step_named_by_what_differs() {
        let steps = steps(&options("-t set,get -P 1,16 -c 10,50"));
        let names: Vec<&str> = steps
            .iter()
            .map(|step| step.workload.name.as_str())
            .collect();
        assert_eq!(names.len(), 8);
        assert_eq!(names[0], "SET, connections 10, pipeline 1");
        assert_eq!(names[7], "GET, connections 50, pipeline 16");
        assert_eq!(steps[7].workload.family, "GET");
    }

    #[test]
    fn a_mix_is_one_step() {
        let steps = steps(&options("--ratio 1:9 -P 16"));
        assert_eq!(steps.len(), 1);
        assert_eq!(steps[0].workload.name, "SET:GET 1:9");
    }
}
