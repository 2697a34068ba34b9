//! The life of the log as one table: which state follows which event, and which actions are due.
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
//! A log that is on changes to `Failed` if another log was to replace it and could not be begun.
//!
//! This module decides and does nothing: [`super::LogOwner`] does the work that a state stands for
//! ([`State::work`]) and reports the result. A request during a change is noted in [`State::next`],
//! and served after it.
//!
//! Invariants, each checked by a test over all states and events
//!  1. A log is opened only if the checkpoint in force names none, or at a start, exactly where the
//!     recovered log ends. Otherwise a start would read two logs one after the other without the
//!     writes between them.
//!  2. Files of the log are removed only in states in which none is open.
//!  3. Once the server ends, nothing begins.

/// State of the log's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// The present phase.
    pub phase: Phase,
    /// Whether the checkpoint in force continues with a log, so that a start would read it. While
    /// there is a log, it then counts, which means that its content is kept.
    pub names_log: bool,
    /// What is wanted after the present change.
    pub next: Next,
}

/// The present phase of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Phase {
    /// There is no log, and none is wanted.
    Off,
    /// A log is being begun.
    Starting {
        /// Its progress.
        step: Start,
        /// The state before.
        from: From,
    },
    /// All effects go to the log.
    On,
    /// The log is being ended.
    Stopping(Stop),
    /// There is no log although one is wanted: writes are refused.
    Failed,
}

/// Progress of beginning a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Start {
    /// A checkpoint is made that takes the previous log out of force.
    Base,
    /// Its files are created.
    Opening,
    /// Threads that change the store take it up, one by one.
    TakingUp,
}

/// The state before a log is begun.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum From {
    /// Nothing: the server starts, and the log continues from what was loaded.
    Load,
    /// A server without a log.
    Off,
    /// A server that misses its log, until the new one is in use.
    Failed,
}

/// Progress of ending a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// Threads that change the store let go of it, one by one.
    LettingGo,
    /// Its content is made durable.
    Closing,
}

/// What is wanted after a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Next {
    /// What the change leads to.
    Stay,
    /// A log.
    On,
    /// No log.
    Off,
    /// The server ends: no log, for good.
    End,
}

/// An event in the log's life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Event {
    /// The data is loaded, and a log is wanted.
    Load,
    /// A log is wanted, perhaps with other options.
    WantOn,
    /// No log is wanted.
    WantOff,
    /// The server ends, and no thread writes any more.
    End,
    /// The base checkpoint was made.
    BaseMade,
    /// The base checkpoint failed.
    BaseFailed,
    /// The files were created.
    Opened,
    /// The files could not be created; no caller has learned of it.
    OpenFailed,
    /// The files could not be created; the caller that asked for the log learns of it, and the
    /// state is as before.
    OpenRefused,
    /// Every thread that changes the store appends its effects to the log.
    TakenUp,
    /// No thread appends any more.
    LetGo,
    /// The files are closed.
    Closed,
    /// A log that was to replace another one could not be begun, and the other one is gone.
    Lost,
    /// A checkpoint is in force, which continues with a log or with none.
    InForce {
        /// Whether it continues with a log.
        names_log: bool,
    },
}

/// Actions that are due at once, in this order. None of them takes long, except [`Action::Remove`]
/// and [`Action::Cut`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Action {
    /// Send all effects to the log that was opened.
    Use,
    /// Send no effects to a log any more.
    Drop,
    /// Publish whether the log's content is kept: [`State::names_log`].
    Count,
    /// Change the durability level of the log.
    SetLevel,
    /// Request a checkpoint that continues with the log.
    AskForBase,
    /// Refuse writes, and report to the operator why there is no log.
    Miss,
    /// No longer refuse writes for that.
    MissNoMore,
    /// Remove what the checkpoint in force holds from the log.
    Cut,
    /// Remove the files of the log, to which no checkpoint leads.
    Remove,
}

/// Work that a state stands for. It takes as long as a device or other threads need.
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
    /// No log, and no checkpoint that continues with one.
    pub const OFF: Self = Self {
        phase: Phase::Off,
        names_log: false,
        next: Next::Stay,
    };

    /// Returns the work to do before the next state, by one thread.
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

    /// Whether there is a log to which effects go, or are about to go.
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

    /// Whether a log is being begun or ended.
    #[must_use]
    pub fn is_changing(self) -> bool {
        self.work().is_some()
    }

    /// Whether a log is being begun, or will be next.
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

    /// Begins a log: with a checkpoint first if another log is in force.
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

    /// Ends the log. A running checkpoint may have been cut while all effects went to the log, and
    /// then continues with it up to its end. So from here on the checkpoint in force counts as
    /// continuing with a log.
    fn stopping(self) -> Self {
        let next = self.and_next(Next::Stay);
        Self {
            phase: Phase::Stopping(Stop::LettingGo),
            names_log: true,
            ..next
        }
    }

    /// Handles a beginning that failed, if the caller that asked for it does not know.
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

/// The table. An event for which a state does not wait changes nothing.
#[must_use]
pub fn step(state: State, event: Event) -> (State, &'static [Action]) {
    match event {
        Event::Load | Event::WantOn | Event::WantOff | Event::End => asked(state, event),
        Event::InForce { names_log } => in_force(state, names_log),
        _ => done(state, event),
    }
}

/// Handles a request.
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

/// Handles the end of a state's work.
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

/// Handles the checkpoint after which a log is begun.
fn based(state: State, from: From) -> (State, &'static [Action]) {
    match state.next {
        Next::Off | Next::End => state.not_begun(),
        // It did not take the previous log out of force: it was never made.
        Next::Stay | Next::On if state.names_log => state.not_begun(),
        Next::Stay | Next::On => {
            let step = Start::Opening;
            (state.with(Phase::Starting { step, from }), &[])
        }
    }
}

/// Handles that all effects go to the log.
fn taken_up(state: State, from: From) -> (State, &'static [Action]) {
    match (state.next, from) {
        (Next::Off | Next::End, From::Load) => (state.stopping(), &[Action::Drop]),
        (Next::Off | Next::End, From::Off | From::Failed) => {
            (state.stopping(), &[Action::AskForBase, Action::Drop])
        }
        // The code that loaded the data does the rest.
        (Next::Stay | Next::On, From::Load) => (state.with(Phase::On), &[]),
        (Next::Stay | Next::On, From::Off | From::Failed) => {
            (state.with(Phase::On), &[Action::AskForBase])
        }
    }
}

/// Handles that the files of the log are closed.
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

/// Handles that a checkpoint is in force.
fn in_force(state: State, names_log: bool) -> (State, &'static [Action]) {
    use Phase::{Starting, Stopping};
    let state = State { names_log, ..state };
    match (state.phase, names_log) {
        // The log before it is removed; or the cut was made before all effects went to this log.
        _ if state.has_log() && names_log => (state, &[Action::Count, Action::Cut]),
        _ if state.has_log() => (state, &[Action::Count]),
        // Its files are open: unneeded ones are removed when they are closed.
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

    /// A state, with the actions that led to it.
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

    /// Returns all reachable states, for every order of events, including events for which no state
    /// waits.
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

    /// Whatever the results of the work, one change after another ends; then what is wanted is
    /// there, or missed.
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

    /// The last request counts, whatever is in progress.
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
