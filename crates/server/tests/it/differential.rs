//! Runs random commands on Redis and on the built server.

use std::io::{self, Read, Write};

use testkit::client::{Client, Link};
use testkit::differential::schedule::run_schedules;
use testkit::differential::{Plan, REQUESTS_A_ROUND, Report, Side, run};
use testkit::process::ServerBuilder;
use testkit::target::{Launcher, Target};

/// Returns a plan small enough for every test run. `DIFFERENTIAL_REQUESTS` and `DIFFERENTIAL_SEED`
/// set another plan.
fn plan() -> Plan {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
    };
    Plan {
        seed: number("DIFFERENTIAL_SEED", 2026),
        round: 0,
        requests_count: number("DIFFERENTIAL_REQUESTS", 20_000),
        failures_max: 20,
    }
}

fn compare(two: Launcher, args: &[&str], plan: Plan) -> Report {
    let args: Vec<String> = args.iter().map(|&word| word.to_owned()).collect();
    let mut one = Side::start(Launcher::oracle(), &[]).unwrap();
    let mut two = Side::start(two, &args).unwrap();
    run(&mut one, &mut two, plan).unwrap()
}

/// Runs the plan on several pairs of servers at once, each with a part of its rounds.
fn compare_side_by_side(plan: Plan) -> Report {
    let pairs = std::thread::available_parallelism().map_or(1, |count| count.get().min(8) as u64);
    let rounds = plan
        .requests_count
        .div_ceil(pairs)
        .div_ceil(REQUESTS_A_ROUND);
    let part = |pair: u64| Plan {
        round: plan.round + pair * rounds,
        requests_count: rounds * REQUESTS_A_ROUND,
        ..plan
    };
    std::thread::scope(|scope| {
        let play = |pair| compare(Launcher::iolite(), &["--io-threads", "4"], part(pair));
        let others: Vec<_> = (1..pairs)
            .map(|pair| scope.spawn(move || play(pair)))
            .collect();
        let mut report = play(0);
        for other in others {
            report.merge(other.join().unwrap());
        }
        report
    })
}

#[test]
fn the_built_server_answers_as_redis_does() {
    let report = compare_side_by_side(plan());
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
}

#[test]
fn redis_agrees_with_itself() {
    let plan = Plan {
        requests_count: 4_000,
        ..plan()
    };
    let report = compare(Launcher::oracle(), &[], plan);
    assert!(report.failures.is_empty(), "{report}");
}

/// Redis behind a link that changes one word of some requests, as if the server had a bug.
struct Mistaken {
    server: testkit::process::Server,
}

struct MistakenLink<L> {
    link: L,
}

impl<L: Read> Read for MistakenLink<L> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.link.read(buffer)
    }
}

impl<L: Write> Write for MistakenLink<L> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let changed = MISTAKES.iter().fold(bytes.to_vec(), |bytes, (from, to)| {
            replace(&bytes, from, to)
        });
        self.link.write_all(&changed)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.link.flush()
    }
}

/// One mistake that a single session reveals, and one that several sessions reveal.
const MISTAKES: [(&[u8], &[u8]); 2] = [
    (b"\r\n$2\r\nGT\r\n", b"\r\n$2\r\nLT\r\n"),
    (b"\r\n$5\r\nBLPOP\r\n", b"\r\n$5\r\nBRPOP\r\n"),
];

fn replace(bytes: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut changed = bytes.to_vec();
    for at in 0..bytes.len() {
        if bytes[at..].starts_with(from) {
            changed[at..at + to.len()].copy_from_slice(to);
        }
    }
    changed
}

impl<L: Link> Link for MistakenLink<L> {
    fn set_blocking(&mut self, blocks: bool) -> io::Result<()> {
        self.link.set_blocking(blocks)
    }
}

impl Target for Mistaken {
    fn name(&self) -> &str {
        "mistaken"
    }

    fn connect(&self) -> io::Result<Client> {
        let stream = std::os::unix::net::UnixStream::connect(self.server.socket())?;
        Ok(Client::over(Box::new(MistakenLink { link: stream })))
    }
}

fn mistaken() -> Launcher {
    Launcher {
        name: "mistaken",
        is_oracle: false,
        start: Box::new(|args| {
            let server = ServerBuilder::oracle().args(args).start()?;
            Ok(Box::new(Mistaken { server }))
        }),
    }
}

#[test]
fn a_planted_mistake_is_found_and_shrunk() {
    let plan = Plan {
        requests_count: 40_000,
        failures_max: 1,
        ..plan()
    };
    let report = compare(mistaken(), &[], plan);
    let failure = report.failures.first().expect("the mistake is met");
    println!("{failure}");
    // The requests are a key, the command with GT in place of LT, and perhaps an earlier deadline
    // of the key.
    assert!((2..=3).contains(&failure.requests.len()), "{failure}");
    let last = failure.requests.last().unwrap();
    assert!(last.iter().any(|word| word.eq_ignore_ascii_case(b"GT")));
}

/// Returns schedules small enough for every test run. `SCHEDULES_REQUESTS`, `SCHEDULES_SEED` and
/// `SCHEDULES_ROUND` set others.
fn schedules() -> Plan {
    let number = |name: &str, otherwise: u64| {
        std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
    };
    Plan {
        seed: number("SCHEDULES_SEED", 2026),
        round: number("SCHEDULES_ROUND", 0),
        requests_count: number("SCHEDULES_REQUESTS", 2_000),
        failures_max: 10,
    }
}

#[test]
fn sessions_hear_what_they_hear_from_redis() {
    let args = ["--io-threads", "4"].map(str::to_owned);
    let mut one = Side::start(Launcher::oracle(), &[]).unwrap();
    let mut two = Side::start(Launcher::iolite_nearby(), &args).unwrap();
    let report = run_schedules(&mut one, &mut two, schedules()).unwrap();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
}

#[test]
fn a_mistake_between_sessions_is_found_and_shrunk() {
    let mut one = Side::start(Launcher::oracle(), &[]).unwrap();
    let mut two = Side::start(mistaken(), &[]).unwrap();
    let plan = Plan {
        requests_count: 20_000,
        failures_max: 1,
        ..schedules()
    };
    let report = run_schedules(&mut one, &mut two, plan).unwrap();
    let failure = report.failures.first().expect("the mistake is met");
    println!("{failure}");
    // The failure consists of a client that takes and a client that pushes two.
    assert!(failure.steps.len() <= 4, "{failure}");
    let mut requests = failure.steps.iter().flat_map(|step| step.action.requests());
    assert!(requests.any(|request| request[0] == b"BLPOP"));
}
