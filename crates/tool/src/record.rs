//! Measurements as JSON: the file that `--json` writes and `report` reads.
//!
//! ```text
//!   {"format": "iolite-bench 1",
//!    "started_unix_ms": ..., "command": ["bench", "-t", "get", ...],
//!    "machine": {"processor", "processors", "memory_bytes", "kernel"},
//!    "servers": [{"name", "version", "address"}],
//!    "runs": [{"server", "workload", "family", "round", "connections", "pipeline", "threads",
//!              "key_space", "key_bytes", "value_bytes", "rate"?,
//!              "wall_ns", "requests", "errors", "misses", "first_error"?,
//!              "latency": {"mean_ns", "min_ns", "max_ns", "buckets": [[ns, count], ...]},
//!              "service"?: the same, "server_use"?: {"cpu_ns", "rss_bytes_before",
//!              "rss_bytes_after"}, "generator_use"?: ..., "moments": [...]}],
//!    "memory": [{"server", "data", "keys", "key_bytes", "value_bytes", "empty_bytes", "full_bytes"}]}
//! ```

use std::fs;
use std::path::Path;

use serde_json::{Value as Json, json};

use crate::error::BenchError;
use crate::histogram::Histogram;
use crate::run::{Moment, Outcome, Used};
use crate::units::whole;
use crate::workload::{Pace, ValueBytes, Workload};

/// The first member of every file.
const FORMAT: &str = "iolite-bench 1";

/// All measurements of a command.
#[derive(Clone, Debug, Default)]
pub struct Record {
    /// When it began, in milliseconds since 1970 UTC.
    pub started_unix_ms: u64,
    /// The command line, without passwords.
    pub command: Vec<String>,
    /// The generator's machine.
    pub machine: Machine,
    /// The servers in the order in which they were named: ratios refer to the first.
    pub servers: Vec<Server>,
    /// The runs in the order in which they were made.
    pub runs: Vec<Run>,
    /// Memory of loaded servers.
    pub memory: Vec<Memory>,
}

/// The machine of the generator.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Machine {
    /// The processor's name.
    pub processor: String,
    /// Number of processors.
    pub processors: u64,
    /// Memory, in bytes.
    pub memory_bytes: u64,
    /// Operating system and version.
    pub kernel: String,
}

/// A measured server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Server {
    /// Its name in the comparison.
    pub name: String,
    /// Its own name and version.
    pub version: String,
    /// Its address.
    pub address: String,
}

/// A run.
#[derive(Clone, Debug, Default)]
pub struct Run {
    /// The server's name.
    pub server: String,
    /// The workload.
    pub shape: Shape,
    /// The round of its server.
    pub round: u64,
    /// The measurements.
    pub outcome: Outcome,
}

/// The parameters of a workload, as far as readers of its figures need them.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shape {
    /// Its name.
    pub workload: String,
    /// The plot to which it belongs.
    pub family: String,
    /// Connections of all threads.
    pub connections: u64,
    /// Requests sent at once.
    pub pipeline: u64,
    /// Threads of the generator.
    pub threads: u64,
    /// Number of keys.
    pub key_space: u64,
    /// Their length.
    pub key_bytes: u64,
    /// Maximum length of values.
    pub value_bytes: u64,
    /// Requested requests per second, in an open run.
    pub rate: Option<f64>,
}

/// Memory of a server before and after it was loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Memory {
    /// The server's name.
    pub server: String,
    /// Name of the loaded data; empty for keys with strings.
    pub data: String,
    /// Number of loaded keys, or of elements of `data`.
    pub keys: u64,
    /// Their length.
    pub key_bytes: u64,
    /// Length of values.
    pub value_bytes: u64,
    /// Memory before.
    pub empty_bytes: u64,
    /// Memory after.
    pub full_bytes: u64,
}

impl Memory {
    /// Creates a record for the keys of `workload`, without measurements.
    #[must_use]
    pub fn of_keys(workload: &Workload) -> Self {
        Self {
            keys: workload.key_space,
            key_bytes: workload.key_bytes as u64,
            value_bytes: workload.value_bytes.max as u64,
            ..Self::default()
        }
    }

    /// Counts by elements of the data that `data` names.
    pub fn count_by(&mut self, data: &str, elements: u64) {
        data.clone_into(&mut self.data);
        self.keys = elements;
        self.key_bytes = 0;
        self.value_bytes = 0;
    }

    /// Returns the memory per key.
    #[must_use]
    pub fn bytes_per_key(&self) -> f64 {
        self.full_bytes.saturating_sub(self.empty_bytes) as f64 / self.keys.max(1) as f64
    }
}

impl Shape {
    /// Returns the shape of `workload`.
    #[must_use]
    pub fn of(workload: &Workload) -> Self {
        let ValueBytes {
            max: value_bytes, ..
        } = workload.value_bytes;
        Self {
            workload: workload.name.clone(),
            family: workload.family.clone(),
            connections: workload.connections as u64,
            pipeline: workload.pipeline as u64,
            threads: workload.threads as u64,
            key_space: workload.key_space,
            key_bytes: workload.key_bytes as u64,
            value_bytes: value_bytes as u64,
            rate: match workload.pace {
                Pace::Closed => None,
                Pace::Open {
                    requests_per_second,
                    ..
                } => Some(requests_per_second),
            },
        }
    }
}

impl Machine {
    /// Returns the machine of this process.
    #[must_use]
    pub fn this() -> Self {
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map_or_else(String::new, |(_, value)| value.trim().to_owned())
        };
        let kilobytes = field("/proc/meminfo", "MemTotal");
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Self {
            processor: field("/proc/cpuinfo", "model name"),
            processors: std::thread::available_parallelism().map_or(0, usize::from) as u64,
            memory_bytes: kilobytes
                .split(' ')
                .next()
                .and_then(|text| text.parse().ok())
                .map_or(0, |kilobytes: u64| kilobytes * 1024),
            kernel: format!("Linux {}", kernel.trim()),
        }
    }
}

impl Record {
    /// Writes the file; `-` is standard output.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn save(&self, path: &Path) -> Result<(), BenchError> {
        let text = format!("{}\n", self.to_json());
        let path = if path == Path::new("-") {
            Path::new("/dev/stdout")
        } else {
            path
        };
        fs::write(path, text).map_err(|error| BenchError::File(path.to_owned(), error.to_string()))
    }

    /// Reads a file.
    ///
    /// # Errors
    /// The file cannot be read, or has another format.
    pub fn load(path: &Path) -> Result<Self, BenchError> {
        let refuse = |reason: String| BenchError::File(path.to_owned(), reason);
        let text = fs::read_to_string(path).map_err(|error| refuse(error.to_string()))?;
        let json: Json =
            serde_json::from_str(&text).map_err(|error| refuse(format!("no JSON: {error}")))?;
        match text_of(&json["format"]) {
            FORMAT => Ok(Self::from_json(&json)),
            _ => Err(refuse(format!("the format is not \"{FORMAT}\""))),
        }
    }

    /// Adds the measurements of another command.
    pub fn merge(&mut self, other: Self) {
        for server in other.servers {
            if !self.servers.iter().any(|known| known.name == server.name) {
                self.servers.push(server);
            }
        }
        if self.machine == Machine::default() {
            self.machine = other.machine;
            self.command = other.command;
            self.started_unix_ms = other.started_unix_ms;
        }
        self.runs.extend(other.runs);
        self.memory.extend(other.memory);
    }

    fn to_json(&self) -> Json {
        object([
            ("format", json!(FORMAT)),
            ("started_unix_ms", json!(self.started_unix_ms)),
            (
                "command",
                Json::Array(self.command.iter().map(|word| json!(word)).collect()),
            ),
            ("machine", machine_to_json(&self.machine)),
            (
                "servers",
                Json::Array(self.servers.iter().map(server_to_json).collect()),
            ),
            (
                "runs",
                Json::Array(self.runs.iter().map(run_to_json).collect()),
            ),
            (
                "memory",
                Json::Array(self.memory.iter().map(memory_to_json).collect()),
            ),
        ])
    }

    fn from_json(json: &Json) -> Self {
        let command = elements(&json["command"]);
        Self {
            started_unix_ms: count(json, "started_unix_ms"),
            command: command
                .iter()
                .map(|word| text_of(word).to_owned())
                .collect(),
            machine: machine_from_json(&json["machine"]),
            servers: elements(&json["servers"])
                .iter()
                .map(server_from_json)
                .collect(),
            runs: elements(&json["runs"]).iter().map(run_from_json).collect(),
            memory: elements(&json["memory"])
                .iter()
                .map(memory_from_json)
                .collect(),
        }
    }
}

/// Creates an object of these members, without those that are null.
fn object<const N: usize>(members: [(&str, Json); N]) -> Json {
    let present = members.into_iter().filter(|(_, value)| !value.is_null());
    present.collect()
}

/// Returns a figure with three digits after the point, which is enough for all figures here.
fn figure(figure: f64) -> Json {
    json!((figure * 1e3).round() / 1e3)
}

/// Returns the elements of an array; empty for anything else.
fn elements(json: &Json) -> &[Json] {
    json.as_array().map_or(&[], Vec::as_slice)
}

/// Returns the text; empty for anything else.
fn text_of(json: &Json) -> &str {
    json.as_str().unwrap_or_default()
}

/// Returns an integer, 0 if it is absent.
fn count(json: &Json, name: &str) -> u64 {
    json[name].as_f64().map_or(0, whole)
}

fn string(json: &Json, name: &str) -> String {
    text_of(&json[name]).to_owned()
}

fn machine_to_json(machine: &Machine) -> Json {
    object([
        ("processor", json!(machine.processor)),
        ("processors", json!(machine.processors)),
        ("memory_bytes", json!(machine.memory_bytes)),
        ("kernel", json!(machine.kernel)),
    ])
}

fn machine_from_json(json: &Json) -> Machine {
    Machine {
        processor: string(json, "processor"),
        processors: count(json, "processors"),
        memory_bytes: count(json, "memory_bytes"),
        kernel: string(json, "kernel"),
    }
}

fn server_to_json(server: &Server) -> Json {
    object([
        ("name", json!(server.name)),
        ("version", json!(server.version)),
        ("address", json!(server.address)),
    ])
}

fn server_from_json(json: &Json) -> Server {
    Server {
        name: string(json, "name"),
        version: string(json, "version"),
        address: string(json, "address"),
    }
}

fn memory_to_json(memory: &Memory) -> Json {
    object([
        ("server", json!(memory.server)),
        ("data", json!(memory.data)),
        ("keys", json!(memory.keys)),
        ("key_bytes", json!(memory.key_bytes)),
        ("value_bytes", json!(memory.value_bytes)),
        ("empty_bytes", json!(memory.empty_bytes)),
        ("full_bytes", json!(memory.full_bytes)),
    ])
}

fn memory_from_json(json: &Json) -> Memory {
    Memory {
        server: string(json, "server"),
        data: string(json, "data"),
        keys: count(json, "keys"),
        key_bytes: count(json, "key_bytes"),
        value_bytes: count(json, "value_bytes"),
        empty_bytes: count(json, "empty_bytes"),
        full_bytes: count(json, "full_bytes"),
    }
}

fn run_to_json(run: &Run) -> Json {
    let (shape, outcome) = (&run.shape, &run.outcome);
    let first_error = outcome
        .first_error
        .as_deref()
        .map_or(Json::Null, Json::from);
    object([
        ("server", json!(run.server)),
        ("workload", json!(shape.workload)),
        ("family", json!(shape.family)),
        ("round", json!(run.round)),
        ("connections", json!(shape.connections)),
        ("pipeline", json!(shape.pipeline)),
        ("threads", json!(shape.threads)),
        ("key_space", json!(shape.key_space)),
        ("key_bytes", json!(shape.key_bytes)),
        ("value_bytes", json!(shape.value_bytes)),
        ("rate", shape.rate.map_or(Json::Null, figure)),
        ("wall_ns", json!(outcome.wall_ns)),
        ("requests", json!(outcome.requests)),
        ("errors", json!(outcome.errors)),
        ("misses", json!(outcome.misses)),
        ("first_error", first_error),
        ("latency", histogram_to_json(&outcome.latency)),
        ("service", histogram_to_json(&outcome.service)),
        ("server_use", used_to_json(outcome.server)),
        ("generator_use", used_to_json(outcome.generator)),
        (
            "moments",
            Json::Array(outcome.moments.iter().map(moment_to_json).collect()),
        ),
    ])
}

fn run_from_json(json: &Json) -> Run {
    Run {
        server: string(json, "server"),
        round: count(json, "round"),
        shape: Shape {
            workload: string(json, "workload"),
            family: string(json, "family"),
            connections: count(json, "connections"),
            pipeline: count(json, "pipeline"),
            threads: count(json, "threads"),
            key_space: count(json, "key_space"),
            key_bytes: count(json, "key_bytes"),
            value_bytes: count(json, "value_bytes"),
            rate: json["rate"].as_f64(),
        },
        outcome: Outcome {
            wall_ns: count(json, "wall_ns"),
            requests: count(json, "requests"),
            errors: count(json, "errors"),
            misses: count(json, "misses"),
            first_error: Some(string(json, "first_error")).filter(|text| !text.is_empty()),
            latency: histogram_from_json(&json["latency"]),
            service: histogram_from_json(&json["service"]),
            server: used_from_json(&json["server_use"]),
            generator: used_from_json(&json["generator_use"]),
            moments: elements(&json["moments"])
                .iter()
                .map(moment_from_json)
                .collect(),
        },
    }
}

fn histogram_to_json(histogram: &Histogram) -> Json {
    if histogram.count() == 0 {
        return Json::Null;
    }
    let pair = |(ns, count)| Json::Array(vec![json!(ns), json!(count)]);
    object([
        ("mean_ns", figure(histogram.mean_ns())),
        ("min_ns", json!(histogram.min_ns())),
        ("max_ns", json!(histogram.max_ns())),
        ("p50_ns", json!(histogram.quantile_ns(0.5))),
        ("p99_ns", json!(histogram.quantile_ns(0.99))),
        ("p999_ns", json!(histogram.quantile_ns(0.999))),
        (
            "buckets",
            Json::Array(histogram.buckets().map(pair).collect()),
        ),
    ])
}

/// Restores the buckets; minimum, maximum and mean are then derived from them, accurate to 1 %.
fn histogram_from_json(json: &Json) -> Histogram {
    let mut histogram = Histogram::default();
    for pair in elements(&json["buckets"]) {
        if let [ns, count] = elements(pair) {
            histogram.record(
                ns.as_f64().map_or(0, whole),
                count.as_f64().map_or(0, whole),
            );
        }
    }
    histogram
}

fn used_to_json(used: Option<Used>) -> Json {
    used.map_or(Json::Null, |used| {
        object([
            ("cpu_ns", json!(used.cpu_ns)),
            ("waited_ns", json!(used.waited_ns)),
            ("rss_bytes_before", json!(used.rss_bytes_before)),
            ("rss_bytes_after", json!(used.rss_bytes_after)),
        ])
    })
}

fn used_from_json(json: &Json) -> Option<Used> {
    json["cpu_ns"].as_f64().map(|cpu_ns| Used {
        cpu_ns: whole(cpu_ns),
        waited_ns: count(json, "waited_ns"),
        rss_bytes_before: count(json, "rss_bytes_before"),
        rss_bytes_after: count(json, "rss_bytes_after"),
    })
}

fn moment_to_json(moment: &Moment) -> Json {
    object([
        ("at_ns", json!(moment.at_ns)),
        ("lasted_ns", json!(moment.lasted_ns)),
        ("requests", json!(moment.requests)),
        ("p50_ns", json!(moment.p50_ns)),
        ("p99_ns", json!(moment.p99_ns)),
        (
            "server_cpu_ns",
            moment.server_cpu_ns.map_or(Json::Null, Json::from),
        ),
    ])
}

fn moment_from_json(json: &Json) -> Moment {
    Moment {
        at_ns: count(json, "at_ns"),
        lasted_ns: count(json, "lasted_ns"),
        requests: count(json, "requests"),
        p50_ns: count(json, "p50_ns"),
        p99_ns: count(json, "p99_ns"),
        server_cpu_ns: json["server_cpu_ns"].as_f64().map(whole),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_is_read_as_it_was_written() {
        let mut outcome = Outcome {
            wall_ns: 2_000_000_000,
            requests: 1_000,
            misses: 3,
            first_error: Some("ERR \"x\"".to_owned()),
            server: Some(Used {
                cpu_ns: 5,
                waited_ns: 4,
                rss_bytes_before: 6,
                rss_bytes_after: 7,
            }),
            ..Outcome::default()
        };
        (1..1_000).for_each(|ns| outcome.latency.record(ns * 1_000, 1));
        let record = Record {
            started_unix_ms: 1_790_000_000_123,
            command: vec!["-t".to_owned(), "get".to_owned()],
            machine: Machine::this(),
            servers: vec![Server {
                name: "a".to_owned(),
                ..Server::default()
            }],
            runs: vec![Run {
                server: "a".to_owned(),
                shape: Shape::of(&Workload::default()),
                round: 2,
                outcome,
            }],
            memory: vec![Memory {
                keys: 10,
                full_bytes: 500,
                ..Memory::default()
            }],
        };
        let read = Record::from_json(&serde_json::from_str(&record.to_json().to_string()).unwrap());
        assert_eq!(read.to_json()["memory"], record.to_json()["memory"]);
        let (one, other) = (&read.runs[0], &record.runs[0]);
        assert_eq!((&one.shape, one.round), (&other.shape, 2));
        assert_eq!(one.outcome.server, other.outcome.server);
        assert_eq!(one.outcome.first_error, other.outcome.first_error);
        assert!(
            one.outcome
                .latency
                .buckets()
                .eq(other.outcome.latency.buckets())
        );
        assert_eq!(read.machine, record.machine);
        assert!(read.machine.memory_bytes > 0 && read.machine.processors > 0);
        assert!((read.memory[0].bytes_per_key() - 50.0).abs() < 1e-9);
    }
}
