//! Draws a schedule from a seed and a number.

use super::super::draw::Draw;
use super::grammar::{Grammar, Theme};
use super::{Action, Schedule, Step};

/// Minimum number of steps of a schedule, and the bound of the random number added to it.
const STEPS_MIN: u64 = 10;
const STEPS_MORE: u64 = 50;
/// One in this many steps closes a connection.
const CLOSES_ONE_IN: u64 = 40;
/// One in `TIMED_SCHEDULE_ONE_IN` schedules has steps that wait for time to pass. Of its steps, one
/// in `TIMED_STEP_ONE_IN` does.
const TIMED_SCHEDULE_ONE_IN: u64 = 8;
const TIMED_STEP_ONE_IN: u64 = 12;
/// One in this many steps sends several requests at once.
const SEVERAL_ONE_IN: u64 = 5;

pub(super) fn schedule(grammar: &Grammar, seed: u64, round: u64) -> Schedule {
    let mut draw = Draw::seeded(seed ^ round.wrapping_mul(0xd6e8_feb8_6659_fd93));
    let theme = grammar.theme(&mut draw);
    let sessions_count = 2 + draw.index(3);
    let resp3 = (0..sessions_count).map(|_| draw.once_in(2)).collect();
    let is_timed = draw.once_in(TIMED_SCHEDULE_ONE_IN);
    let steps_count = STEPS_MIN + draw.below(STEPS_MORE);
    let mut steps = begin(theme, sessions_count - 1, &mut draw);
    let compares_replies = steps.is_empty();
    for _ in 0..steps_count {
        let session = draw.index(sessions_count);
        let listens = session == sessions_count - 1;
        if let Some(request) = theme.listener_request(&mut draw).filter(|_| listens) {
            steps.push(Step {
                session,
                action: Action::Send(vec![request]),
            });
        } else if is_timed && draw.once_in(TIMED_STEP_ONE_IN) {
            push_timed(&mut steps, session, grammar, theme, &mut draw);
        } else {
            steps.push(Step {
                session,
                action: action(theme, &mut draw),
            });
        }
    }
    Schedule {
        resp3,
        steps,
        compares_replies,
    }
}

/// Returns the steps by which the last session subscribes at the start, if the theme has messages
/// for it.
fn begin(theme: &Theme, listener: usize, draw: &mut Draw) -> Vec<Step> {
    if theme.listener_request(draw).is_none() {
        return Vec::new();
    }
    let words = |text: &str| {
        text.split(' ')
            .map(|word| word.as_bytes().to_vec())
            .collect()
    };
    vec![Step {
        session: listener,
        action: Action::Send(vec![
            words("CONFIG SET notify-keyspace-events KEA"),
            words("PSUBSCRIBE __key*__:*"),
        ]),
    }]
}

fn action(theme: &Theme, draw: &mut Draw) -> Action {
    if draw.once_in(CLOSES_ONE_IN) {
        return match draw.once_in(2) {
            true => Action::Close,
            false => Action::Kill,
        };
    }
    let count = match draw.once_in(SEVERAL_ONE_IN) {
        true => 2 + draw.below(3),
        false => 1,
    };
    Action::Send((0..count).map(|_| theme.request(draw)).collect())
}

fn push_timed(
    steps: &mut Vec<Step>,
    session: usize,
    grammar: &Grammar,
    theme: &Theme,
    draw: &mut Draw,
) {
    let Some(request) = grammar.timed_request(theme, draw) else {
        return;
    };
    if theme.blocks() {
        // A session that is already blocked would run the request only later, at an unknown time.
        steps.push(Step {
            session,
            action: Action::Close,
        });
    }
    steps.push(Step {
        session,
        action: Action::Expire(vec![request]),
    });
}
