//! The life of the log as one table: which state follows which event, and what is to be done on the way.
//!
//! ```text
//!            wanted                 opened            taken up
//!   Off ───► Starting: Base ──► Starting: Opening ──► Starting: TakingUp ──► On
//!    ▲         │ not made         │ not opened                                │ not wanted, the server's end
//!    │         ▼                  ▼                                           ▼
//!    │◄─────── Failed ◄───────────┘                 Stopping: LettingGo ──► Stopping: Closing ──► Off
//!   not wanted any more
//! ```
//!
//! A log that is on is lost to `Failed` where another one was to take its place and could not be begun.
//!
//! This decides and does nothing: [`super::LogOwner`] does the work that a state stands for ([`State::work`])
//! and says what came of it. Whatever is asked for in the middle of a change is noted in [`State::next`], and
//! done after it.
//!
//! Invariants, each held by a test over all states and events
//!  1. A log is opened only where the checkpoint in force goes on to none, or at a start that goes on exactly
//!     where the log that was recovered ends. Otherwise a start would read two logs one after the other without
//!     what was written between them.
//!  2. Files of the log are removed only in states that have none open.
//!  3. Once the server ends, nothing begins.

/// Where the life of the log stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// What is there, or being done.
    pub phase: Phase,
    /// The checkpoint in force goes on to a log: a start would read it. While a log is there it counts, which
    /// means that what is in it is kept.
    pub names_log: bool,
    /// What is wanted after the change that goes on.
    pub next: Next,
}

/// What is there, or being done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There is no log, and none is wanted.
    Off,
    /// One is being begun.
    Starting {
        /// How far that is.
        step: Start,
        /// What was before.
        from: From,
    },
    /// All effects go to it.
    On,
    /// It is being ended.
    Stopping(Stop),
    /// There is none, and one is wanted: writes are refused.
    Failed,
}

/// How far the beginning of a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// A checkpoint is made that takes the log before this one out of force.
    Base,
    /// Its files are made.
    Opening,
    /// Threads that change the store take it up, one by one.
    TakingUp,
}

/// What was before a log is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum From {
    /// Nothing: the server starts, and the log goes on from what was loaded.
    Load,
    /// A server without a log.
    Off,
    /// A server that misses its log. It does so until the new one is in use.
    Failed,
}

/// How far the end of a log is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Threads that change the store let go of it, one by one.
    LettingGo,
    /// What is in it is made durable.
    Closing,
}

/// What is wanted after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// What the change leads to.
    Stay,
    /// A log.
    On,
    /// None.
    Off,
    /// The server ends: none, for good.
    End,
}

/// What happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The data is loaded, and a log is wanted.
    Load,
    /// A log is wanted, perhaps with other options.
    WantOn,
    /// None is wanted.
    WantOff,
    /// The server ends, and nobody writes any more.
    End,
    /// The checkpoint was made that was to be.
    BaseMade,
    /// It was not.
    BaseFailed,
    /// The files are there.
    Opened,
    /// They are not; nobody has heard of it.
    OpenFailed,
    /// They are not; whoever asked for the log hears of it, and all is as it was.
    OpenRefused,
    /// Every thread that changes the store states its effects to the log.
    TakenUp,
    /// None does any more.
    LetGo,
    /// The files are closed.
    Closed,
    /// A log that was to take the place of another one could not be begun, and the other one is gone.
    Lost,
    /// A checkpoint is in force which goes on to a log, or to none.
    InForce {
        /// To one.
        names_log: bool,
    },
}

/// What is to be done at once, in this order. None of it takes long, but for [`Action::Remove`] and
/// [`Action::Cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Have all effects go to the log that was opened.
    Use,
    /// Have no effects go to a log any more.
    Drop,
    /// Say whether what is in the log is kept: [`State::names_log`].
    Count,
    /// Change what is done with what is appended.
    SetLevel,
    /// Have a checkpoint made that goes on to the log.
    AskForBase,
    /// Refuse writes, and tell the operator why there is no log.
    Miss,
    /// Refuse them no longer for that.
    MissNoMore,
    /// Remove what the checkpoint in force holds from the log.
    Cut,
    /// Remove the files of the log, which nothing goes on to.
    Remove,
}

/// Work that a state stands for. It takes as long as a device or other threads do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Work {
    /// Ends with [`Event::BaseMade`] or [`Event::BaseFailed`].
    MakeBase,
    /// Ends with [`Event::Opened`], [`Event::OpenFailed`] or [`Event::OpenRefused`].
    Open,
    /// Ends with [`Event::TakenUp`].
    AwaitTakenUp,
    /// Ends with [`Event::LetGo`].
    AwaitLetGo,
    /// Ends with [`Event::Closed`].
    Close,
}

impl State {
    /// No log, and nothing that goes on to one.
    pub const OFF: Self = Self {
        phase: Phase::Off,
        names_log: false,
        next: Next::Stay,
    };

    /// What is to be done before the next state, by one thread.
    #[must_use]
    pub fn work(self) -> Option<Work> {
        match self.phase {
            Phase::Off | Phase::On | Phase::Failed => None,
            Phase::Starting { step, .. } => Some(match step {
                Start::Base => Work::MakeBase,
                Start::Opening => Work::Open,
                Start::TakingUp => Work::AwaitTakenUp,
            }),
            Phase::Stopping(Stop::LettingGo) => Some(Work::AwaitLetGo),
            Phase::Stopping(Stop::Closing) => Some(Work::Close),
        }
    }

    /// Whether there is a log that effects go to, or are about to.
    #[must_use]
    pub fn has_log(self) -> bool {
        matches!(
            self.phase,
            Phase::On
                | Phase::Starting {
                    step: Start::TakingUp,
                    ..
                }
        )
    }

    /// Whether a log is just being begun or ended.
    #[must_use]
    pub fn is_changing(self) -> bool {
        self.work().is_some()
    }

    /// Whether a log is just being begun, or will be next.
    #[must_use]
    pub fn is_beginning(self) -> bool {
        match self.phase {
            Phase::Starting { .. } => self.next != Next::Off,
            Phase::Stopping(_) => self.next == Next::On,
            Phase::Off | Phase::On | Phase::Failed => false,
        }
    }

    fn with(self, phase: Phase) -> Self {
        Self { phase, ..self }
    }

    fn and_next(self, next: Next) -> Self {
        let next = if self.next == Next::End {
            Next::End
        } else {
            next
        };
        Self { next, ..self }
    }

    /// A log is begun: with a checkpoint first where another log is in force.
    fn starting(self, from: From) -> Self {
        let is_apart = self.names_log && from != From::Load;
        let step = if is_apart {
            Start::Base
        } else {
            Start::Opening
        };
        self.with(Phase::Starting { step, from })
            .and_next(Next::Stay)
    }

    /// The log is ended. The checkpoint that is being made may have been cut while all effects went to it, and goes on to
    /// where it ends: so does, from here on, what is in force.
    fn stopping(self) -> Self {
        let next = self.and_next(Next::Stay);
        Self {
            phase: Phase::Stopping(Stop::LettingGo),
            names_log: true,
            ..next
        }
    }

    /// Nothing was begun, and the one who asked does not know.
    fn not_begun(self) -> (Self, &'static [Action]) {
        match self.next {
            Next::Off | Next::End => (
                self.with(Phase::Off).and_next(Next::Stay),
                &[Action::MissNoMore],
            ),
            Next::Stay | Next::On => (
                self.with(Phase::Failed).and_next(Next::Stay),
                &[Action::Miss],
            ),
        }
    }
}

/// The table. An event that a state does not wait for changes nothing.
#[must_use]
pub fn step(state: State, event: Event) -> (State, &'static [Action]) {
    match event {
        Event::Load | Event::WantOn | Event::WantOff | Event::End => asked(state, event),
        Event::InForce { names_log } => in_force(state, names_log),
        _ => done(state, event),
    }
}

/// Somebody wants something.
fn asked(state: State, event: Event) -> (State, &'static [Action]) {
    use Phase::{Failed, Off, On, Starting, Stopping};
    if state.next == Next::End {
        return (state, &[]);
    }
    match (state.phase, event) {
        (Off, Event::Load) => (state.starting(From::Load), &[]),
        (Off, Event::WantOn) => (state.starting(From::Off), &[]),
        (Failed, Event::WantOn) => (state.starting(From::Failed), &[]),
        (Starting { .. }, Event::WantOn) if state.has_log() => {
            (state.and_next(Next::Stay), &[Action::SetLevel])
        }
        (Starting { .. }, Event::WantOn) => (state.and_next(Next::Stay), &[]),
        (On, Event::WantOn) => (state, &[Action::SetLevel]),
        (Stopping(_), Event::WantOn) => (state.and_next(Next::On), &[]),

        (Failed, Event::WantOff) => (state.with(Off), &[Action::MissNoMore]),
        (Starting { .. }, Event::WantOff) => (state.and_next(Next::Off), &[]),
        (On, Event::WantOff) => (state.stopping(), &[Action::Drop]),
        (Stopping(_), Event::WantOff) => (state.and_next(Next::Stay), &[]),

        (On, Event::End) => (state.stopping().and_next(Next::End), &[Action::Drop]),
        (Starting { .. }, Event::End) if state.has_log() => {
            (state.stopping().and_next(Next::End), &[Action::Drop])
        }
        (Off | Failed | Starting { .. }, Event::End) => (state.with(Off).and_next(Next::End), &[]),
        (Stopping(_), Event::End) => (state.and_next(Next::End), &[]),
        _ => (state, &[]),
    }
}

/// The work of a state has ended.
fn done(state: State, event: Event) -> (State, &'static [Action]) {
    use Phase::{Failed, Off, On, Starting, Stopping};
    match (state.phase, event) {
        (
            Starting {
                step: Start::Base,
                from,
            },
            Event::BaseMade,
        ) => based(state, from),
        (
            Starting {
                step: Start::Base, ..
            },
            Event::BaseFailed,
        )
        | (
            Starting {
                step: Start::Opening,
                ..
            },
            Event::OpenFailed,
        ) => state.not_begun(),
        (
            Starting {
                step: Start::Opening,
                from,
            },
            Event::OpenRefused,
        ) => match (state.next, from) {
            (Next::Off | Next::End, _) => state.not_begun(),
            (_, From::Failed) => (state.with(Failed).and_next(Next::Stay), &[]),
            (_, From::Load | From::Off) => (state.with(Off).and_next(Next::Stay), &[]),
        },
        (
            Starting {
                step: Start::Opening,
                from,
            },
            Event::Opened,
        ) => (
            state.with(Starting {
                step: Start::TakingUp,
                from,
            }),
            &[Action::Count, Action::SetLevel, Action::Use],
        ),
        (
            Starting {
                step: Start::TakingUp,
                from,
            },
            Event::TakenUp,
        ) => taken_up(state, from),
        (Stopping(Stop::LettingGo), Event::LetGo) => (state.with(Stopping(Stop::Closing)), &[]),
        (Stopping(Stop::Closing), Event::Closed) => closed(state),
        (On, Event::Lost) => (state.with(Failed), &[Action::Drop, Action::Miss]),
        _ => (state, &[]),
    }
}

/// The checkpoint was made that a log is begun after.
fn based(state: State, from: From) -> (State, &'static [Action]) {
    match state.next {
        Next::Off | Next::End => state.not_begun(),
        // It did not take the log before out of force: it was never made.
        Next::Stay | Next::On if state.names_log => state.not_begun(),
        Next::Stay | Next::On => {
            let step = Start::Opening;
            (state.with(Phase::Starting { step, from }), &[])
        }
    }
}

/// All effects go to the log.
fn taken_up(state: State, from: From) -> (State, &'static [Action]) {
    match (state.next, from) {
        (Next::Off | Next::End, From::Load) => (state.stopping(), &[Action::Drop]),
        (Next::Off | Next::End, From::Off | From::Failed) => {
            (state.stopping(), &[Action::AskForBase, Action::Drop])
        }
        // Whoever loaded the data sees to that.
        (Next::Stay | Next::On, From::Load) => (state.with(Phase::On), &[]),
        (Next::Stay | Next::On, From::Off | From::Failed) => {
            (state.with(Phase::On), &[Action::AskForBase])
        }
    }
}

/// The files of the log are closed.
fn closed(state: State) -> (State, &'static [Action]) {
    let actions: &[Action] = if state.names_log {
        &[]
    } else {
        &[Action::Remove]
    };
    let ended = match state.next {
        Next::On => state.starting(From::Off),
        Next::Stay | Next::Off | Next::End => state.with(Phase::Off).and_next(Next::Stay),
    };
    (ended, actions)
}

/// A checkpoint is in force.
fn in_force(state: State, names_log: bool) -> (State, &'static [Action]) {
    use Phase::{Starting, Stopping};
    let state = State { names_log, ..state };
    match (state.phase, names_log) {
        // What the log has before it goes; or it was cut before all effects went to this log.
        _ if state.has_log() && names_log => (state, &[Action::Count, Action::Cut]),
        _ if state.has_log() => (state, &[Action::Count]),
        // Its files are open: what is not needed of them goes when they are closed.
        (Stopping(_), _) => (state, &[]),
        (
            Starting {
                step: Start::Opening,
                from,
            },
            true,
        ) if from != From::Load => {
            let step = Start::Base;
            (state.with(Starting { step, from }), &[])
        }
        (_, true) => (state, &[]),
        (_, false) => (state, &[Action::Remove]),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    const EVENTS: [Event; 15] = [
        Event::Load,
        Event::WantOn,
        Event::WantOff,
        Event::End,
        Event::BaseMade,
        Event::BaseFailed,
        Event::Opened,
        Event::OpenFailed,
        Event::OpenRefused,
        Event::TakenUp,
        Event::LetGo,
        Event::Closed,
        Event::Lost,
        Event::InForce { names_log: false },
        Event::InForce { names_log: true },
    ];

    /// A state with what was done up to it.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    struct World {
        state: State,
        is_open: bool,
        is_used: bool,
        counts: bool,
        is_missed: bool,
    }

    const ENDS_OF_WORK: [(Work, &[Event]); 5] = [
        (Work::MakeBase, &[Event::BaseMade, Event::BaseFailed]),
        (
            Work::Open,
            &[Event::Opened, Event::OpenFailed, Event::OpenRefused],
        ),
        (Work::AwaitTakenUp, &[Event::TakenUp]),
        (Work::AwaitLetGo, &[Event::LetGo]),
        (Work::Close, &[Event::Closed]),
    ];

    fn ends_of(work: Work) -> &'static [Event] {
        let mut all = ENDS_OF_WORK.iter();
        all.find(|(own, _)| *own == work)
            .map_or(&[], |(_, ends)| ends)
    }

    impl World {
        fn after(mut self, event: Event) -> Self {
            let (before, (state, actions)) = (self.state, step(self.state, event));
            self.state = state;
            let is_work_done = before.work().is_some_and(|it| ends_of(it).contains(&event));
            match event {
                Event::Opened if is_work_done => (self.is_open, self.counts) = (true, false),
                Event::Closed if is_work_done => self.is_open = false,
                Event::Lost if before.phase == Phase::On => self.is_open = false,
                _ => {}
            }
            for action in actions {
                match action {
                    Action::Use => (self.is_used, self.is_missed) = (true, false),
                    Action::Drop => (self.is_used, self.is_missed) = (false, false),
                    Action::Count => self.counts = state.names_log,
                    Action::Miss => self.is_missed = true,
                    Action::MissNoMore => self.is_missed = false,
                    Action::Remove => {
                        assert!(!self.is_open, "files that are open: {before:?}, {event:?}");
                    }
                    Action::Cut => assert!(self.is_open && self.state.names_log),
                    Action::SetLevel => assert!(self.is_open, "{before:?}, {event:?}"),
                    Action::AskForBase => assert_eq!(event, Event::TakenUp),
                }
            }
            self
        }
    }

    /// Whatever can come, in any order: an event that no state waits for may come as well.
    fn all() -> HashSet<World> {
        let begin = |names_log| World {
            state: State {
                names_log,
                ..State::OFF
            },
            is_open: false,
            is_used: false,
            counts: false,
            is_missed: false,
        };
        let mut found = HashSet::from([begin(false), begin(true)]);
        let mut next: Vec<World> = found.iter().copied().collect();
        while let Some(world) = next.pop() {
            for event in EVENTS {
                let after = world.after(event);
                if found.insert(after) {
                    next.push(after);
                }
            }
        }
        found
    }

    #[test]
    fn every_state_is_reached_and_is_what_it_says() {
        let all = all();
        let mut phases = HashSet::new();
        for world in &all {
            let World {
                state,
                is_open,
                is_used,
                counts,
                is_missed,
            } = *world;
            phases.insert(state.phase);
            match state.phase {
                Phase::Off => {
                    assert!(!is_open && !is_used, "{world:?}");
                    assert!(!is_missed || state.next == Next::End, "{world:?}");
                }
                Phase::Failed => assert!(!is_open && !is_used && is_missed, "{world:?}"),
                Phase::Starting { step, from } if step != Start::TakingUp => {
                    assert!(!is_open && !is_used, "{world:?}");
                    assert_eq!(is_missed, from == From::Failed, "{world:?}");
                    let is_apart = !state.names_log || from == From::Load;
                    assert!(is_apart || step == Start::Base, "two logs: {world:?}");
                }
                Phase::Starting { .. } | Phase::On => {
                    assert!(is_open && is_used && !is_missed, "{world:?}");
                    assert_eq!(counts, state.names_log, "{world:?}");
                }
                Phase::Stopping(_) => assert!(is_open && !is_used && !is_missed, "{world:?}"),
            }
            assert_eq!(state.has_log(), is_used, "{world:?}");
            if !state.is_changing() {
                let is_nothing = matches!(state.next, Next::Stay | Next::End);
                assert!(is_nothing, "nobody would do it: {world:?}");
            }
        }
        // Base comes from Off and Failed; Opening and TakingUp from all three.
        assert_eq!(phases.len(), 3 + 2 + 3 + 3 + 2, "{phases:?}");
    }

    /// Whatever the work of the states comes to, one change after another ends; what is wanted then is there, or missed.
    #[test]
    fn every_change_ends_in_what_is_wanted() {
        for world in all() {
            let next = world.state.next;
            let mut open = vec![(world, 0)];
            while let Some((world, depth)) = open.pop() {
                assert!(depth < 12, "it never ends: {world:?}");
                let Some(work) = world.state.work() else {
                    let phase = world.state.phase;
                    match next {
                        Next::End | Next::Off => assert_eq!(phase, Phase::Off, "{world:?}"),
                        Next::On | Next::Stay => {}
                    }
                    continue;
                };
                open.extend(
                    ends_of(work)
                        .iter()
                        .map(|end| (world.after(*end), depth + 1)),
                );
            }
        }
    }

    /// What is asked for last counts, whatever goes on.
    #[test]
    fn what_is_asked_for_last_counts() {
        for world in all() {
            let is_over = world.state.next == Next::End;
            for (event, wanted) in [(Event::WantOn, Phase::On), (Event::WantOff, Phase::Off)] {
                let mut after = world.after(event);
                while let Some(work) = after.state.work() {
                    // The checkpoint that is made names no log.
                    if work == Work::MakeBase {
                        after = after.after(Event::InForce { names_log: false });
                    }
                    after = after.after(ends_of(work)[0]);
                }
                let wanted = if is_over { Phase::Off } else { wanted };
                assert_eq!(after.state.phase, wanted, "{world:?} after {event:?}");
                assert!(!after.is_missed || is_over, "{world:?} after {event:?}");
            }
        }
    }

    #[test]
    fn nothing_begins_once_the_server_ends() {
        for world in all() {
            let ended = world.after(Event::End);
            assert_eq!(ended.state.next, Next::End);
            for event in EVENTS {
                let after = ended.after(event);
                assert_eq!(after.state.next, Next::End);
                let begins = matches!(after.state.phase, Phase::Starting { .. } | Phase::On);
                assert!(!begins, "{ended:?} after {event:?}");
            }
        }
    }

    #[test]
    fn what_a_state_does_not_wait_for_changes_nothing() {
        for world in all() {
            let ends = world.state.work().map_or(&[][..], ends_of);
            for (_, others) in ENDS_OF_WORK {
                for event in others.iter().filter(|event| !ends.contains(event)) {
                    assert_eq!(world.after(*event), world, "{event:?}");
                }
            }
        }
    }

    #[test]
    fn a_log_that_is_begun_or_will_be_is_said_to_begin() {
        for world in all() {
            let mut after = world;
            let is_on = world.state.phase == Phase::On;
            while let Some(work) = after.state.work() {
                if work == Work::MakeBase {
                    after = after.after(Event::InForce { names_log: false });
                }
                after = after.after(ends_of(work)[0]);
            }
            let comes = after.state.phase == Phase::On && !is_on;
            assert_eq!(world.state.is_beginning(), comes, "{world:?}");
        }
    }
}
