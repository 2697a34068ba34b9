//! The differential kit sends random requests to two servers, which must answer the same and hold
//! the same data.
//!
//! ```text
//!   grammar ── part of it ──> sequence of a round ──> both servers, from empty, pipelined
//!                                                        │ replies byte for byte, then all data
//!   accepted (closed list, with reasons) <── differs ────┤
//!                                                        │ one round in four: each restores what
//!                                                        │ the other dumps, all data again
//!   shrink ── shortest sequence, seed and round <────────┘
//! ```
//!
//! Rounds are short and independent, so that a failure can be reproduced from its seed and round
//! number alone: `cargo xtask differential --seed N --round N`. Every second sequence speaks RESP3.

mod accepted;
mod draw;
mod exchange;
mod form;
mod grammar;
pub mod schedule;
mod sequence;
mod shrink;
mod state;

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use base::words::quote;

pub use accepted::{ACCEPTED, Accepted};
pub use grammar::{LEFT_OUT, commands_in_grammar};
pub use sequence::{Disagreement, Request, Side};
pub use state::{difference, read as full_state};

use draw::Draw;
use grammar::Grammar;

/// Number of requests in a round.
pub const REQUESTS_A_ROUND: u64 = 400;

/// One in this many rounds ends with an exchange of dumps.
const EXCHANGE_ONE_IN: u64 = 4;
/// In each group of twice as many rounds, the first round and this one exchange dumps.
const EXCHANGE_BESIDE: u64 = EXCHANGE_ONE_IN - 1;

/// What to play.
#[derive(Debug, Clone, Copy)]
pub struct Plan {
    /// The seed of all randomness.
    pub seed: u64,
    /// The first round.
    pub round: u64,
    /// Total number of requests.
    pub requests_count: u64,
    /// Number of different failures after which the run stops.
    pub failures_max: usize,
}

/// The result of a plan.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of requests played on both servers.
    pub requests_count: u64,
    /// How often each command occurred.
    pub commands: BTreeMap<String, u64>,
    /// How often each accepted difference occurred.
    pub accepted: BTreeMap<&'static str, u64>,
    /// The differences that are not accepted, one of each kind.
    pub failures: Vec<Failure>,
}

/// A sequence on which two servers disagree.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed it came from.
    pub seed: u64,
    /// Its round.
    pub round: u64,
    /// Whether it speaks RESP3.
    pub resp3: bool,
    /// The shortest sequence found.
    pub requests: Vec<Request>,
    /// How the servers disagree.
    pub disagreement: Disagreement,
    /// Names of both servers.
    pub names: [String; 2],
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let version = if self.resp3 { 3 } else { 2 };
        writeln!(out, "RESP{version}, {} requests:", self.requests.len())?;
        for (at, request) in self.requests.iter().enumerate() {
            let mark = if at == self.disagreement.at {
                "=>"
            } else {
                " >"
            };
            writeln!(out, " {mark} {}", show_request(request))?;
        }
        if self.disagreement.at == self.requests.len() {
            writeln!(out, "  the data differ:")?;
        }
        let [one, two] = &self.names;
        writeln!(out, "  {one}: {}", clipped(&self.disagreement.one))?;
        writeln!(out, "  {two}: {}", clipped(&self.disagreement.two))?;
        write!(
            out,
            "  again: cargo xtask differential --seed {} --round {} --requests 1",
            self.seed, self.round
        )
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (requests, commands) = (self.requests_count, self.commands.len());
        writeln!(out, "{requests} requests of {commands} commands")?;
        for (reason, count) in &self.accepted {
            writeln!(out, "  accepted {count} times: {reason}")?;
        }
        for failure in &self.failures {
            writeln!(out, "{failure}")?;
        }
        write!(out, "{} unexplained differences", self.failures.len())
    }
}

/// Plays the plan on both servers.
///
/// # Errors
/// If a server cannot be started or reached.
pub fn run(one: &mut Side, two: &mut Side, plan: Plan) -> io::Result<Report> {
    let grammar = Grammar::new();
    let mut report = Report::default();
    let rounds_count = plan.requests_count.div_ceil(REQUESTS_A_ROUND);
    let mut kinds_seen = Vec::new();
    for round in plan.round..plan.round + rounds_count {
        let requests = round_requests(&grammar, plan.seed, round);
        let manner = Manner::of(round);
        report.count(&requests);
        let comparison = sequence::compare(one, two, &requests, manner)?;
        for reason in comparison.accepted {
            *report.accepted.entry(reason).or_default() += 1;
        }
        let Some(disagreement) = comparison.disagreement else {
            continue;
        };
        let kind = kind_of(&requests, &disagreement);
        if kinds_seen.contains(&kind) {
            continue;
        }
        kinds_seen.push(kind);
        let shortest = Failure {
            seed: plan.seed,
            round,
            resp3: manner.resp3,
            requests,
            disagreement,
            names: [one.name().to_owned(), two.name().to_owned()],
        };
        report.failures.push(shorten(one, two, shortest)?);
        if report.failures.len() >= plan.failures_max {
            break;
        }
    }
    Ok(report)
}

/// Returns the requests of some rounds, for callers that compare something other than replies.
pub fn rounds(seed: u64, rounds: std::ops::Range<u64>) -> impl Iterator<Item = Vec<Request>> {
    let grammar = Grammar::new();
    rounds.map(move |round| round_requests(&grammar, seed, round))
}

/// How a round is played.
#[derive(Debug, Clone, Copy)]
struct Manner {
    /// Whether it speaks RESP3.
    resp3: bool,
    /// Whether it ends with an exchange of dumps.
    exchanges: bool,
}

impl Manner {
    fn of(round: u64) -> Self {
        Self {
            resp3: round % 2 == 1,
            // One of the two rounds speaks RESP2, the other RESP3.
            exchanges: matches!(round % (2 * EXCHANGE_ONE_IN), 0 | EXCHANGE_BESIDE),
        }
    }
}

impl Report {
    /// Adds the results of another plan.
    pub fn merge(&mut self, other: Self) {
        self.requests_count += other.requests_count;
        for (name, count) in other.commands {
            *self.commands.entry(name).or_default() += count;
        }
        for (reason, count) in other.accepted {
            *self.accepted.entry(reason).or_default() += count;
        }
        self.failures.extend(other.failures);
    }

    fn count(&mut self, requests: &[Request]) {
        self.requests_count += requests.len() as u64;
        for request in requests {
            let name = String::from_utf8_lossy(&request[0]).to_ascii_uppercase();
            *self.commands.entry(name).or_default() += 1;
        }
    }
}

/// Returns the requests of a round, for callers that play them in another way.
#[must_use]
pub fn requests_of_round(seed: u64, round: u64) -> Vec<Request> {
    round_requests(&Grammar::new(), seed, round)
}

fn round_requests(grammar: &Grammar, seed: u64, round: u64) -> Vec<Request> {
    let mut draw = Draw::seeded(seed ^ round.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    let part = grammar.part(&mut draw);
    (0..REQUESTS_A_ROUND)
        .map(|_| part.request(&mut draw))
        .collect()
}

/// Returns the kind of a failure: the command, and how each reply begins. Failures of the same kind
/// count as the same.
fn kind_of(requests: &[Request], disagreement: &Disagreement) -> (Vec<u8>, String, String) {
    let start = |text: &str| match text.as_bytes().first() {
        Some(b'-' | b'(') => text.chars().take(20).collect(),
        first => format!("{first:?}"),
    };
    let name = requests
        .get(disagreement.at)
        .map(|request| request[0].to_ascii_uppercase());
    (
        name.unwrap_or_default(),
        start(&disagreement.one),
        start(&disagreement.two),
    )
}

/// Finds a shorter sequence that fails in the same way.
fn shorten(one: &mut Side, two: &mut Side, failure: Failure) -> io::Result<Failure> {
    let kind = kind_of(&failure.requests, &failure.disagreement);
    let manner = Manner::of(failure.round);
    let mut fails = |requests: &[Request]| {
        let comparison = sequence::compare(one, two, requests, manner);
        let disagreement = comparison
            .ok()
            .and_then(|comparison| comparison.disagreement);
        disagreement.is_some_and(|disagreement| kind_of(requests, &disagreement) == kind)
    };
    // Requests after the failing one cannot matter. The failing request itself must stay.
    let end = failure.requests.len().min(failure.disagreement.at + 1);
    let mut requests = failure.requests[..end].to_vec();
    if !fails(&requests) {
        requests.clone_from(&failure.requests);
    }
    let requests = shrink::shrink(requests, &mut fails);
    let requests = shrink::simplify(requests, &mut fails);
    let again = sequence::compare(one, two, &requests, manner)?;
    Ok(match again.disagreement {
        Some(disagreement) => Failure {
            requests,
            disagreement,
            ..failure
        },
        // It does not fail every time, so the whole sequence is shown.
        None => failure,
    })
}

fn show_request(request: &Request) -> String {
    let is_plain = |word: &[u8]| {
        !word.is_empty()
            && word
                .iter()
                .all(|byte| byte.is_ascii_graphic() && !b"\"'\\".contains(byte))
    };
    let words = request.iter().map(|word| match is_plain(word) {
        true => String::from_utf8_lossy(word).into_owned(),
        false => clipped(&quote(word)),
    });
    words.collect::<Vec<_>>().join(" ")
}

fn clipped(text: &str) -> String {
    const SHOWN_MAX: usize = 2000;
    match text.char_indices().nth(SHOWN_MAX) {
        Some((end, _)) => format!("{}... ({} bytes)", &text[..end], text.len()),
        None => text.to_owned(),
    }
}
