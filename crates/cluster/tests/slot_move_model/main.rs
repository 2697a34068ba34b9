//! A model of a hash slot that moves from one shard to another and back, searched state by state.
//!
//! ```text
//!   source: begin ─► cut, log behind it ─► writes wait ─► rest, mark ─► all waits ─► entry ─► removed
//!   target:          staged, hidden ─────────────────────► durable ───────────────────► served
//!   whatever ends, breaks, is late, is started anew or is given another term, at any moment
//! ```
//!
//! The decisions are the room's own code: [`cluster::moves`], [`cluster::ControlState::apply`] and
//! the member's part that takes office. The model adds what the server does, in the same order
//! (`server`'s `migration`). The slot holds a list to which each write appends: a lost or
//! duplicated write shows.
//!
//! Not modelled: copies of a shard besides its primary (a promotion gives the same node another
//! term), several slots, expiry. The small sizes run in the gate; `cargo test -p cluster --release
//! --test slot_move_model -- --ignored --nocapture` searches further.

#[path = "../common/mod.rs"]
mod common;
mod giving;
mod state;
mod steps;

use stateright::{Checker as _, Expectation, Model as _};

use state::Budget;
use steps::{Mistake, SlotMoves};

const NOTHING: Budget = Budget {
    attempts: 0,
    writes: 0,
    flushes: 0,
    restarts: 0,
    lost_leases: 0,
    promotions: 0,
    breaks: 0,
    late_marks: 0,
    cleanings: 0,
};

/// Maximum number of states, at which a search ends.
const STATES_MAX: usize = 12_000_000;

/// Searches without a mistake and checks that nothing is broken. Returns the number of states.
fn search(budget: Budget) -> usize {
    let checker = SlotMoves::new(Mistake::None, budget)
        .checker()
        .threads(2)
        .target_state_count(STATES_MAX)
        .spawn_bfs()
        .join();
    for property in checker.model().properties() {
        if property.expectation == Expectation::Always {
            checker.assert_no_discovery(property.name);
        }
    }
    checker.unique_state_count()
}

/// Returns the property that a planted mistake breaks.
fn broken(mistake: Mistake, budget: Budget) -> Option<&'static str> {
    let checker = SlotMoves::new(mistake, budget)
        .checker()
        .threads(2)
        .spawn_bfs()
        .join();
    common::broken(&checker)
}

#[test]
fn a_slot_moves() {
    let budget = Budget {
        attempts: 1,
        writes: 1,
        ..NOTHING
    };
    let checker = SlotMoves::new(Mistake::None, budget)
        .checker()
        .spawn_bfs()
        .join();
    checker.assert_properties();
}

#[test]
fn nothing_is_lost_or_there_twice() {
    let writes_and_flushes = Budget {
        attempts: 1,
        writes: 2,
        flushes: 1,
        late_marks: 1,
        ..NOTHING
    };
    let broken_links = Budget {
        attempts: 2,
        writes: 1,
        breaks: 1,
        cleanings: 1,
        ..NOTHING
    };
    let restarts = Budget {
        attempts: 1,
        writes: 1,
        restarts: 1,
        promotions: 1,
        cleanings: 1,
        ..NOTHING
    };
    for budget in [writes_and_flushes, broken_links, restarts] {
        println!("{} states", search(budget));
    }
}

/// `cargo test -p cluster --release --test slot_move_model -- --ignored --nocapture`
#[test]
#[ignore = "a long search"]
fn nothing_is_lost_or_there_twice_by_several_faults() {
    let there_and_back = Budget {
        attempts: 2,
        writes: 1,
        restarts: 1,
        promotions: 1,
        cleanings: 1,
        ..NOTHING
    };
    let other_terms = Budget {
        attempts: 2,
        writes: 1,
        lost_leases: 1,
        promotions: 1,
        breaks: 1,
        ..NOTHING
    };
    let two_restarts = Budget {
        attempts: 1,
        writes: 1,
        restarts: 2,
        promotions: 2,
        ..NOTHING
    };
    let all = Budget {
        attempts: 2,
        writes: 2,
        flushes: 1,
        restarts: 1,
        lost_leases: 1,
        promotions: 2,
        breaks: 1,
        late_marks: 1,
        cleanings: 1,
    };
    for budget in [there_and_back, other_terms, two_restarts, all] {
        println!("{budget:?}: {} states", search(budget));
    }
}

const ONE_WRITE: Budget = Budget {
    attempts: 1,
    writes: 1,
    ..NOTHING
};
const ONE_FLUSH: Budget = Budget {
    flushes: 1,
    ..ONE_WRITE
};
const ONE_BREAK: Budget = Budget {
    breaks: 1,
    cleanings: 1,
    ..ONE_WRITE
};
const ONE_RESTART: Budget = Budget {
    restarts: 1,
    promotions: 1,
    ..ONE_WRITE
};
const SERVED: &str = "one node serves";
const ONCE: &str = "what was acknowledged is there once";
const OWN: &str = "nobody removes its own";

/// Checks that the mistake breaks one of these properties, and that nothing is broken without it.
fn assert_found(mistake: Mistake, budget: Budget, expected: &[&str]) {
    let found = broken(mistake, budget);
    let is_expected = found.is_some_and(|found| expected.contains(&found));
    assert!(is_expected, "{mistake:?}: {found:?}");
    assert_eq!(broken(Mistake::None, budget), None, "{mistake:?}");
}

#[test]
fn mistakes_of_the_source_are_found() {
    let again = Budget {
        attempts: 1,
        restarts: 1,
        ..NOTHING
    };
    let other_term = Budget {
        lost_leases: 1,
        promotions: 1,
        ..again
    };
    for (mistake, budget, expected) in [
        (Mistake::RestNotSent, ONE_WRITE, &[ONCE][..]),
        (Mistake::WriterNotAwaited, ONE_WRITE, &[ONCE, SERVED]),
        (Mistake::WritesGoOn, ONE_WRITE, &[ONCE, SERVED]),
        (Mistake::ReadsGoOn, ONE_WRITE, &[SERVED]),
        (Mistake::AnswerNotAwaited, ONE_BREAK, &[SERVED]),
        (Mistake::RoutesNotAwaited, ONE_WRITE, &[SERVED]),
        (Mistake::GenerationNotLookedAt, ONE_WRITE, &[ONCE]),
        (Mistake::NoLookAtFlushes, ONE_FLUSH, &[ONCE]),
        (Mistake::FlushWhileGiven, ONE_FLUSH, &[ONCE]),
        (Mistake::EndsOfProposal, ONE_BREAK, &[ONCE]),
        (Mistake::OfficeAgain, again, &[SERVED, ONCE]),
        (Mistake::BeginsOutOfOffice, other_term, &[SERVED]),
    ] {
        assert_found(mistake, budget, expected);
    }
}

#[test]
fn mistakes_of_the_target_and_of_removal_are_found() {
    let two_attempts = Budget {
        attempts: 2,
        ..NOTHING
    };
    let kept = Budget {
        restarts: 1,
        promotions: 1,
        ..two_attempts
    };
    let stale = Budget {
        attempts: 1,
        restarts: 1,
        cleanings: 1,
        ..NOTHING
    };
    let cleaned = Budget {
        cleanings: 1,
        ..ONE_RESTART
    };
    for (mistake, budget, expected) in [
        (Mistake::ServesBeforeEntry, ONE_WRITE, &[SERVED][..]),
        (Mistake::DoneBeforeDurable, ONE_RESTART, &[ONCE]),
        (Mistake::StagedIsKept, kept, &[ONCE]),
        (Mistake::FlushWhileTaking, ONE_FLUSH, &[ONCE]),
        (Mistake::NoEndOfMoves, ONE_BREAK, &[ONCE, OWN]),
        (Mistake::CleansWithoutEnd, cleaned, &[ONCE, OWN]),
        (Mistake::RemovesByRoutes, stale, &[ONCE, OWN]),
        (Mistake::RemovesBesideStaging, two_attempts, &[ONCE, OWN]),
    ] {
        assert_found(mistake, budget, expected);
    }
}
