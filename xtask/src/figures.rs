//! `cargo xtask figures`: server CPU time per operation and bytes per key, as ratios to
//! `redis-server` in one run.
//!
//! Both servers take turns on one core; the load generator (`redis-benchmark`) has another. The
//! processor time of the server's threads is measured, so that a generator that is slower than the
//! server does not hide the difference. A figure is the median of the ratios of neighbouring runs.

use std::fmt::Write as _;
use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};
use std::thread::sleep;
use std::time::Duration;

const SERVER_CORE: &str = "0";
const LOAD_CORE: &str = "1";
const CONNECTIONS: u32 = 50;
const KEYS: u32 = 1_000_000;
const ROUNDS: usize = 5;
const LOAD_BATCH: u32 = 500;

type Outcome<T> = Result<T, String>;

struct Workload {
    command: &'static str,
    pipeline: u32,
    requests: u32,
}

const WORKLOADS: &[Workload] = &[
    Workload {
        command: "set",
        pipeline: 1,
        requests: 200_000,
    },
    Workload {
        command: "get",
        pipeline: 1,
        requests: 200_000,
    },
    Workload {
        command: "incr",
        pipeline: 1,
        requests: 200_000,
    },
    Workload {
        command: "set",
        pipeline: 16,
        requests: 2_000_000,
    },
    Workload {
        command: "get",
        pipeline: 16,
        requests: 2_000_000,
    },
    Workload {
        command: "incr",
        pipeline: 16,
        requests: 2_000_000,
    },
    Workload {
        command: "set",
        pipeline: 100,
        requests: 4_000_000,
    },
    Workload {
        command: "get",
        pipeline: 100,
        requests: 4_000_000,
    },
    Workload {
        command: "incr",
        pipeline: 100,
        requests: 4_000_000,
    },
];

/// Measures and prints a Markdown report. If a path is given, also writes the report there.
///
/// # Errors
/// If a server or the load generator cannot be run.
pub fn run(iolite: &str, report_path: Option<&str>) -> Outcome<()> {
    let mut report = heading(iolite);
    cpu_table(iolite, &mut report)?;
    memory_table(iolite, &mut report)?;
    println!("{report}");
    if let Some(path) = report_path {
        fs::write(path, &report).map_err(|error| format!("{path}: {error}"))?;
    }
    Ok(())
}

fn heading(iolite: &str) -> String {
    let date = output_of("date", &["-u", "+%Y-%m-%d"]);
    let machine = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let machine = machine
        .lines()
        .find_map(|line| line.strip_prefix("model name"))
        .unwrap_or("?");
    let redis = output_of("redis-server", &["--version"]);
    let ours = output_of(iolite, &["--version"]);
    format!(
        "# First figures, {}\n\nMachine: {} ({} cores), {}. Command: `cargo xtask figures`.\n\n\
         - {}\n- {}\n\n\
         {CONNECTIONS} connections, {KEYS} keys of 16 B, values of 8 B, server on one core \
         (`--io-threads 1`), `redis-benchmark` on another, {ROUNDS} alternating rounds; CPU time \
         of the server's threads per request.\n",
        date.trim(),
        machine.trim_start_matches([' ', '\t', ':']),
        std::thread::available_parallelism().map_or(0, usize::from),
        output_of("uname", &["-sr"]).trim(),
        redis.trim(),
        ours.trim(),
    )
}

fn output_of(program: &str, arguments: &[&str]) -> String {
    Command::new(program)
        .args(arguments)
        .output()
        .map(|output| String::from_utf8_lossy(&output.stdout).into_owned())
        .unwrap_or_default()
}

fn cpu_table(iolite: &str, report: &mut String) -> Outcome<()> {
    let ours = Server::start(iolite, &["--io-threads", "1"], 7461)?;
    let theirs = Server::start("redis-server", &[], 7462)?;
    for server in [&ours, &theirs] {
        server.load(KEYS, 8)?;
    }
    report.push_str(
        "\n| command | pipeline | Redis ns | Iolite ns | Redis / Iolite |\n|---|---|---|---|---|\n",
    );
    for workload in WORKLOADS {
        let mut rows = Vec::new();
        for round in 0..ROUNDS {
            let (first, second) = if round % 2 == 0 {
                (&ours, &theirs)
            } else {
                (&theirs, &ours)
            };
            let (one, other) = (first.cpu_ns(workload)?, second.cpu_ns(workload)?);
            rows.push(if round % 2 == 0 {
                (one, other)
            } else {
                (other, one)
            });
        }
        let ratio = median(rows.iter().map(|(ours, theirs)| theirs / ours));
        let _ = writeln!(
            report,
            "| {} | {} | {:.0} | {:.0} | **{ratio:.2}** |",
            workload.command.to_uppercase(),
            workload.pipeline,
            median(rows.iter().map(|(_, theirs)| *theirs)),
            median(rows.iter().map(|(ours, _)| *ours)),
        );
    }
    Ok(())
}

fn memory_table(iolite: &str, report: &mut String) -> Outcome<()> {
    report.push_str(
        "\nResident memory: of the empty server, and per key beyond it.\n\n\
         | value | Redis B/key | Iolite B/key | Redis empty KiB | Iolite empty KiB |\n\
         |---|---|---|---|---|\n",
    );
    for value_bytes in [8, 100] {
        let mut cells = Vec::new();
        for (program, port) in [("redis-server", 7463), (iolite, 7464)] {
            let server = Server::start(program, &[], port)?;
            let empty = server.resident_bytes()?;
            server.load(KEYS, value_bytes)?;
            let full = server.resident_bytes()?;
            cells.push((
                full.saturating_sub(empty) as f64 / f64::from(KEYS),
                empty / 1024,
            ));
        }
        let _ = writeln!(
            report,
            "| {value_bytes} B | {:.1} | {:.1} | {} | {} |",
            cells[0].0, cells[1].0, cells[0].1, cells[1].1
        );
    }
    Ok(())
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A server pinned to one core. It is stopped when dropped.
struct Server {
    child: Child,
    port: u16,
}

impl Drop for Server {
    fn drop(&mut self) {
        // The server may have ended by itself.
        let _killed = self.child.kill();
        let _ended = self.child.wait();
    }
}

impl Server {
    fn start(program: &str, arguments: &[&str], port: u16) -> Outcome<Self> {
        let child = Command::new("taskset")
            .args(["-c", SERVER_CORE, program, "--port", &port.to_string()])
            .args(["--save", "", "--appendonly", "no"])
            .args(arguments)
            .stdout(Stdio::null())
            .spawn()
            .map_err(|error| format!("{program}: {error}"))?;
        let server = Self { child, port };
        for _ in 0..200 {
            if server.connect().is_ok() {
                sleep(Duration::from_millis(300));
                return Ok(server);
            }
            sleep(Duration::from_millis(50));
        }
        Err(format!("{program} does not answer on port {port}"))
    }

    fn connect(&self) -> Outcome<TcpStream> {
        TcpStream::connect(("127.0.0.1", self.port)).map_err(|error| error.to_string())
    }

    /// Sets `keys` keys of 16 bytes, named as by `redis-benchmark -r`, to values of one length.
    fn load(&self, keys: u32, value_bytes: usize) -> Outcome<()> {
        let mut stream = self.connect()?;
        let value = "x".repeat(value_bytes);
        let mut replies = vec![0; 1 << 16];
        let mut request = Vec::new();
        for first in (0..keys).step_by(LOAD_BATCH as usize) {
            let batch = first..keys.min(first + LOAD_BATCH);
            request.clear();
            for key in batch.clone() {
                let _written = write!(
                    request,
                    "*3\r\n$3\r\nSET\r\n$16\r\nkey:{key:012}\r\n${value_bytes}\r\n{value}\r\n"
                );
            }
            stream
                .write_all(&request)
                .map_err(|error| error.to_string())?;
            let mut missing = batch.len() * "+OK\r\n".len();
            while missing > 0 {
                match stream.read(&mut replies) {
                    Ok(0) | Err(_) => return Err("connection lost while loading".to_owned()),
                    Ok(count) => missing -= count.min(missing),
                }
            }
        }
        Ok(())
    }

    /// Returns the server's CPU time per request of the workload, in nanoseconds.
    fn cpu_ns(&self, workload: &Workload) -> Outcome<f64> {
        let before = self.processor_ns()?;
        let status = Command::new("taskset")
            .args([
                "-c",
                LOAD_CORE,
                "redis-benchmark",
                "-q",
                "-p",
                &self.port.to_string(),
            ])
            .args([
                "-c",
                &CONNECTIONS.to_string(),
                "-P",
                &workload.pipeline.to_string(),
            ])
            .args([
                "-n",
                &workload.requests.to_string(),
                "-r",
                &KEYS.to_string(),
            ])
            .args(["-d", "8", "-t", workload.command])
            .stdout(Stdio::null())
            .status()
            .map_err(|error| format!("redis-benchmark: {error}"))?;
        if !status.success() {
            return Err(format!("redis-benchmark ended with {status}"));
        }
        Ok((self.processor_ns()? - before) as f64 / f64::from(workload.requests))
    }

    /// Returns the CPU time of all threads so far, in nanoseconds.
    fn processor_ns(&self) -> Outcome<u64> {
        let tasks = fs::read_dir(format!("/proc/{}/task", self.child.id()))
            .map_err(|error| error.to_string())?;
        let times = tasks.flatten().filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').next()?.parse::<u64>().ok()
        });
        Ok(times.sum())
    }

    fn resident_bytes(&self) -> Outcome<u64> {
        let text = fs::read_to_string(format!("/proc/{}/statm", self.child.id()))
            .map_err(|error| error.to_string())?;
        let pages = text
            .split(' ')
            .nth(1)
            .and_then(|field| field.parse::<u64>().ok());
        Ok(pages.unwrap_or(0) * 4096)
    }
}
