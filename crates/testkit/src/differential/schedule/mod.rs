//! Schedules run several sessions on two servers, one step at a time, and compare what each session
//! receives.
//!
//! ```text
//!   grammar ── a theme ──> steps: who sends what ──> one server alone: after each step, once every
//!                                                    session is answered or known to be blocked,
//!                                                    what each has heard
//!                                                          │ as much is awaited on
//!   shrink ── shortest schedule <── differs, step by step ──┤ the other server
//! ```
//!
//! Nothing depends on time. The first server shows how much each session receives in a step, and
//! which sessions are blocked afterwards (`CLIENT LIST` lists them). On the second server the step
//! waits for as much; anything beyond that is found before the next step. Only keys that expire
//! take time, and only in a way that a slow machine cannot upset: the step waits until they have
//! expired. A step is left out if two sessions could go on after it at once, in either order.

mod drawing;
mod grammar;
mod normal;
mod play;
mod session;
#[cfg(test)]
mod tests;
mod words;

use std::fmt;
use std::io;
use std::time::Duration;

use super::sequence::{Answer, Request, Side};
use super::shrink;
use super::{Plan, show_request, state};
use crate::transcript::show;

pub use grammar::commands_in_schedules;

/// Maximum time until a session receives what it received on the other server.
const PATIENCE: Duration = Duration::from_secs(60);
/// The same while a failing schedule is shortened. Most attempts with a lost message take this
/// long.
const SHRINKING_PATIENCE: Duration = Duration::from_secs(2);
/// Lifetimes of an expiring key, in milliseconds. The key nearly always outlives the request that
/// is being served, with the last value by far. A schedule in which keys expire counts as failed if
/// it fails with each of these.
const LIVES_MS: [u64; 4] = [40, 40, 400, 4_000];

/// A step: one action of one session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// Index of the session, from 0.
    pub session: usize,
    /// What the session does.
    pub action: Action,
}

/// What a session does in a step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    /// Sends these requests at once.
    Send(Vec<Request>),
    /// Sends these requests at once, then waits until all keys that live for milliseconds have
    /// expired.
    Expire(Vec<Request>),
    /// Closes its connection. Its next step opens a new one.
    Close,
    /// Is killed by a connection outside of the schedule.
    Kill,
}

impl Action {
    /// Returns the requests that the action sends.
    #[must_use]
    pub fn requests(&self) -> &[Request] {
        match self {
            Self::Send(requests) | Self::Expire(requests) => requests,
            Self::Close | Self::Kill => &[],
        }
    }
}

/// The sessions and the steps.
#[derive(Debug, Clone)]
pub(super) struct Schedule {
    /// Whether each session speaks RESP3.
    pub(super) resp3: Vec<bool>,
    pub(super) steps: Vec<Step>,
    /// Whether replies are compared. Otherwise only messages are, because random sequences already
    /// compare the replies.
    pub(super) compares_replies: bool,
}

/// The result of a plan.
#[derive(Debug, Default)]
pub struct Report {
    /// Number of schedules played on both servers.
    pub schedules_count: u64,
    /// Number of requests in them.
    pub requests_count: u64,
    /// How often a session was blocked after a step.
    pub blocked_count: u64,
    /// Number of messages and pushes received.
    pub messages_count: u64,
    /// The differences, one of each kind.
    pub failures: Vec<Failure>,
}

/// A schedule on which two servers disagree.
#[derive(Debug, Clone)]
pub struct Failure {
    /// The seed it came from.
    pub seed: u64,
    /// Its number.
    pub round: u64,
    /// Whether each session speaks RESP3.
    pub resp3: Vec<bool>,
    /// The shortest schedule found.
    pub steps: Vec<Step>,
    /// Index of the step after which the servers disagree, or the number of steps if their data
    /// differ.
    pub at: usize,
    /// What both servers answered.
    pub said: [String; 2],
    /// Names of both servers.
    pub names: [String; 2],
}

/// Plays the schedules of a plan on both servers. A round of the plan is one schedule.
///
/// # Errors
/// If a server cannot be started or reached.
pub fn run_schedules(one: &mut Side, two: &mut Side, plan: Plan) -> io::Result<Report> {
    run_themes(&grammar::Grammar::new(is_known), one, two, plan)
}

/// Whether the server has a command or subcommand.
fn is_known(command: &str) -> bool {
    let table = crate::table();
    let full_name = command.to_lowercase().replace(' ', "|");
    let mut rows = (0..).map_while(|row| table.full_name(row));
    rows.any(|name| name == full_name)
}

fn run_themes(
    grammar: &grammar::Grammar,
    one: &mut Side,
    two: &mut Side,
    plan: Plan,
) -> io::Result<Report> {
    let mut report = Report::default();
    let mut kinds_seen = Vec::new();
    let mut round = plan.round;
    while report.requests_count < plan.requests_count {
        let schedule = drawing::schedule(grammar, plan.seed, round);
        report.schedules_count += 1;
        let requests = schedule.steps.iter().map(|step| step.action.requests());
        report.requests_count += requests.map(<[_]>::len).sum::<usize>() as u64;
        let outcome = compare(one, two, &schedule, PATIENCE)?;
        report.blocked_count += outcome.blocked_count;
        report.messages_count += outcome.messages_count;
        if let Some(difference) = outcome.difference {
            let kind = difference.kind_of_command(&schedule);
            if !kinds_seen.contains(&kind) {
                kinds_seen.push(kind);
                let (schedule, difference) = shorten(one, two, schedule, difference)?;
                report.failures.push(Failure {
                    seed: plan.seed,
                    round,
                    resp3: schedule.resp3,
                    steps: schedule.steps,
                    at: difference.at,
                    said: difference.said,
                    names: [one.name().to_owned(), two.name().to_owned()],
                });
            }
            if report.failures.len() >= plan.failures_max {
                break;
            }
        }
        round += 1;
    }
    Ok(report)
}

/// Where two servers disagree.
#[derive(Debug, Clone)]
struct Difference {
    at: usize,
    said: [String; 2],
}

impl Difference {
    /// Returns how each answer begins. Failures with the same beginnings count as the same.
    fn kind(&self) -> [String; 2] {
        let start = |text: &String| match text.as_bytes().first() {
            Some(b'-' | b'(' | b'b') => text.chars().take(24).collect(),
            first => format!("{first:?}"),
        };
        self.said.each_ref().map(start)
    }

    /// Returns the same with the command, so that all commands that answer wrongly are reported.
    fn kind_of_command(&self, schedule: &Schedule) -> (Vec<u8>, [String; 2]) {
        let step = schedule.steps.get(self.at);
        let request = step.and_then(|step| step.action.requests().last());
        let name = request.map(|request| request[0].to_ascii_uppercase());
        (name.unwrap_or_default(), self.kind())
    }
}

struct Outcome {
    difference: Option<Difference>,
    blocked_count: u64,
    messages_count: u64,
}

/// Plays a schedule on both servers. If a schedule in which keys expire fails, plays it again with
/// longer lifetimes.
fn compare(
    one: &mut Side,
    two: &mut Side,
    schedule: &Schedule,
    patience: Duration,
) -> io::Result<Outcome> {
    let is_timed = |step: &Step| matches!(step.action, Action::Expire(_));
    let [lives_ms, longer @ ..] = LIVES_MS;
    let mut outcome = compare_once(one, two, schedule, patience, lives_ms)?;
    for lives_ms in longer {
        if outcome.difference.is_none() || !schedule.steps.iter().any(is_timed) {
            break;
        }
        outcome = compare_once(one, two, schedule, patience, lives_ms)?;
    }
    Ok(outcome)
}

fn compare_once(
    one: &mut Side,
    two: &mut Side,
    schedule: &Schedule,
    patience: Duration,
    lives_ms: u64,
) -> io::Result<Outcome> {
    let mut leader = play::Stage::open(one, &schedule.resp3, lives_ms)?;
    let mut scenes = Vec::with_capacity(schedule.steps.len());
    for step in &schedule.steps {
        scenes.push(match leader.is_definite(step) {
            true => {
                leader.perform(step)?;
                Some(leader.settle(step, PATIENCE)?)
            }
            false => None,
        });
    }
    let held = leader.held();
    drop(leader);
    let mut outcome = Outcome {
        difference: None,
        blocked_count: scenes
            .iter()
            .flatten()
            .map(play::Scene::blocked_count)
            .sum(),
        messages_count: scenes
            .iter()
            .flatten()
            .map(play::Scene::messages_count)
            .sum(),
    };
    let mut follower = play::Stage::open(two, &schedule.resp3, lives_ms)?;
    for (at, (step, scene)) in schedule.steps.iter().zip(&scenes).enumerate() {
        let Some(scene) = scene else {
            continue;
        };
        follower.perform(step)?;
        let other = follower.await_like(step, scene, patience)?;
        if let Some(said) = scene.difference(&other, step, schedule.compares_replies) {
            outcome.difference = Some(Difference { at, said });
            return Ok(outcome);
        }
    }
    outcome.difference = state::compare(held, follower.held()).map(|(one, two)| Difference {
        at: schedule.steps.len(),
        said: [one, two],
    });
    Ok(outcome)
}

/// Finds a shorter schedule that fails in the same way.
fn shorten(
    one: &mut Side,
    two: &mut Side,
    schedule: Schedule,
    difference: Difference,
) -> io::Result<(Schedule, Difference)> {
    let kind = difference.kind();
    let mut fails = |steps: &[Step]| {
        let schedule = Schedule {
            resp3: schedule.resp3.clone(),
            steps: steps.to_vec(),
            ..schedule
        };
        let outcome = compare(one, two, &schedule, SHRINKING_PATIENCE);
        let difference = outcome.ok().and_then(|outcome| outcome.difference);
        difference.is_some_and(|difference| difference.kind() == kind)
    };
    let end = schedule.steps.len().min(difference.at + 1);
    let mut steps = schedule.steps[..end].to_vec();
    if !fails(&steps) {
        steps.clone_from(&schedule.steps);
    }
    let apart = one_request_a_step(&steps);
    if fails(&apart) {
        steps = apart;
    }
    let steps = shrink::shrink(steps, &mut fails);
    let steps = simplify(steps, &mut fails);
    let shortest = Schedule {
        resp3: schedule.resp3.clone(),
        steps,
        ..schedule
    };
    let again = compare(one, two, &shortest, PATIENCE)?;
    Ok(match again.difference {
        Some(difference) => (shortest, difference),
        // It does not fail every time, so the whole schedule is shown.
        None => (schedule, difference),
    })
}

fn one_request_a_step(steps: &[Step]) -> Vec<Step> {
    let apart = |step: &Step| -> Vec<Step> {
        let Action::Send(requests) = &step.action else {
            return vec![step.clone()];
        };
        let alone = |request: &Request| Step {
            session: step.session,
            action: Action::Send(vec![request.clone()]),
        };
        requests.iter().map(alone).collect()
    };
    steps.iter().flat_map(apart).collect()
}

/// Finds fewer and shorter words for the steps that consist of one request.
fn simplify(steps: Vec<Step>, fails: &mut impl FnMut(&[Step]) -> bool) -> Vec<Step> {
    let (places, requests): (Vec<usize>, Vec<Request>) = steps
        .iter()
        .enumerate()
        .filter_map(|(at, step)| match &step.action {
            Action::Send(requests) if requests.len() == 1 => Some((at, requests[0].clone())),
            _ => None,
        })
        .unzip();
    let with = |requests: &[Request]| {
        let mut changed = steps.clone();
        for (&at, request) in places.iter().zip(requests) {
            changed[at].action = Action::Send(vec![request.clone()]);
        }
        changed
    };
    let simplest = shrink::simplify(requests, |requests| fails(&with(requests)));
    with(&simplest)
}

fn show_answer(answer: &Answer) -> String {
    match answer {
        Ok(value) => show(value),
        Err(what) => format!("({what})"),
    }
}

impl Report {
    /// Adds the results of another plan.
    pub fn merge(&mut self, other: Self) {
        self.schedules_count += other.schedules_count;
        self.requests_count += other.requests_count;
        self.blocked_count += other.blocked_count;
        self.messages_count += other.messages_count;
        self.failures.extend(other.failures);
    }
}

impl fmt::Display for Report {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            out,
            "{} schedules, {} requests, {} times blocked, {} messages",
            self.schedules_count, self.requests_count, self.blocked_count, self.messages_count
        )?;
        for failure in &self.failures {
            writeln!(out, "{failure}")?;
        }
        write!(out, "{} unexplained differences", self.failures.len())
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let versions = self
            .resp3
            .iter()
            .map(|resp3| if *resp3 { "3" } else { "2" });
        writeln!(
            out,
            "sessions of RESP {}",
            versions.collect::<Vec<_>>().join(", ")
        )?;
        for (at, step) in self.steps.iter().enumerate() {
            let mark = if at == self.at { "=>" } else { " >" };
            let requests: Vec<String> = step.action.requests().iter().map(show_request).collect();
            let shown = match &step.action {
                Action::Send(_) => requests.join("; "),
                Action::Expire(_) => format!("{}; wait", requests.join("; ")),
                Action::Close => "(closes)".to_owned(),
                Action::Kill => "(is killed)".to_owned(),
            };
            writeln!(out, " {mark} {}: {shown}", step.session)?;
        }
        if self.at == self.steps.len() {
            writeln!(out, "  the data differ:")?;
        }
        let [one, two] = &self.names;
        writeln!(out, "  {one}: {}", self.said[0])?;
        writeln!(out, "  {two}: {}", self.said[1])?;
        let (seed, round) = (self.seed, self.round);
        write!(
            out,
            "  again: cargo xtask schedules --seed {seed} --round {round} --requests 1"
        )
    }
}
