//! Tests of the schedules' machinery against Redis alone.

use protocol::Value;

use super::*;
use crate::target::Launcher;

#[test]
fn every_form_begins_with_a_command_of_redis() {
    let mut oracle = Side::start(Launcher::oracle(), &[]).unwrap();
    let mut client = oracle.fresh_client(false).unwrap();
    let mut is_unknown = |name: &&str| {
        let found = client.command(&["COMMAND", "INFO", *name]).unwrap();
        matches!(&found, Value::Array(rows) if !matches!(rows[0], Value::Array(_)))
    };
    let mut names = commands_in_schedules();
    names.retain(|name| is_unknown(name));
    assert_eq!(names, ["NONSENSE"]);
}

#[test]
fn the_same_seed_gives_the_same_schedule() {
    let grammar = grammar::Grammar::new(|_| true);
    let steps = |round| drawing::schedule(&grammar, 7, round).steps;
    assert_eq!(steps(3), steps(3));
    assert_ne!(steps(3), steps(4));
}

#[test]
fn requests_sent_at_once_come_apart_and_words_become_fewer() {
    let words = |text: &str| -> Request {
        text.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    };
    let step = |session, requests: &[&str]| Step {
        session,
        action: Action::Send(requests.iter().map(|text| words(text)).collect()),
    };
    let steps = vec![step(0, &["SET a 123456", "GET a"]), step(1, &["DEL a b c"])];
    let apart = one_request_a_step(&steps);
    assert_eq!(apart.len(), 3);
    let simplest = simplify(apart, &mut |steps: &[Step]| steps.len() == 3);
    assert!(
        simplest
            .iter()
            .all(|step| step.action.requests()[0].len() == 1)
    );
}

#[test]
fn redis_agrees_with_itself() {
    let mut one = Side::start(Launcher::oracle(), &[]).unwrap();
    let mut two = Side::start(Launcher::oracle(), &[]).unwrap();
    let plan = Plan {
        seed: 1,
        round: 0,
        requests_count: 2_000,
        failures_max: 1,
    };
    let grammar = grammar::Grammar::new(|_| true);
    let report = run_themes(&grammar, &mut one, &mut two, plan).unwrap();
    println!("{report}");
    assert!(report.failures.is_empty(), "{report}");
}
