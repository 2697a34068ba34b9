//! The roles of a node, and the one table of transitions between them.
//!
//! ```text
//!            ┌──────── Unfollow ────────┐
//!            ▼                          │
//!        TakingOver ──── TookOver ──► Primary ◄──── KeptOffice ──── FailingOver
//!            │  ▲                       │  │                          ▲   │
//!        Follow │                       │  └──────── FailOver ────────┘   │
//!            ▼  │ Unfollow              │ Follow                          │
//!        Following ◄────────────────────┴────────── HandedOver ───────────┘
//! ```
//!
//! A primary takes writes. A replica refuses them. During a change between the two, writes wait at
//! the gate.
//!
//! Under a control group every role goes to `Sealed` by `Seal`, and from there by `Follow` or
//! `Unfollow`. A sealed node follows no node and refuses writes, and nothing is appended to its
//! log.

use std::sync::atomic::{AtomicU8, Ordering};

/// Role of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows another node, or tries to.
    Following,
    /// It has stopped following, and becomes a primary when the following thread has ended.
    TakingOver,
    /// It is a primary that hands over its office; writes wait.
    FailingOver,
    /// A control group has sealed it, or has not named a primary for it yet.
    Sealed,
}

/// What changes the role.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// REPLICAOF host port.
    Follow,
    /// REPLICAOF NO ONE.
    Unfollow,
    /// A new term has begun here.
    TookOver,
    /// FAILOVER.
    FailOver,
    /// A replica has taken over from this node.
    HandedOver,
    /// No replica has taken over, and none will.
    KeptOffice,
    /// The control group seals this node.
    Seal,
}

/// Why an event is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A failover is in progress.
    FailingOver,
    /// The node follows another node.
    IsReplica,
    /// Nothing of that kind is in progress: the event came too late.
    Late,
}

/// Returns the role after an event.
///
/// # Errors
/// The event is not allowed in this role.
pub fn next(role: Role, event: Event) -> Result<Role, Refused> {
    match (role, event) {
        (_, Event::Seal) => Ok(Role::Sealed),
        (Role::FailingOver, Event::HandedOver)
        | (Role::Primary | Role::Following | Role::TakingOver | Role::Sealed, Event::Follow) => {
            Ok(Role::Following)
        }
        (Role::Primary, Event::Unfollow)
        | (Role::TakingOver, Event::TookOver)
        | (Role::FailingOver, Event::KeptOffice) => Ok(Role::Primary),
        (Role::Following | Role::TakingOver | Role::Sealed, Event::Unfollow) => {
            Ok(Role::TakingOver)
        }
        (Role::Primary, Event::FailOver) => Ok(Role::FailingOver),
        (Role::FailingOver, Event::Follow | Event::Unfollow | Event::FailOver) => {
            Err(Refused::FailingOver)
        }
        (Role::Following | Role::TakingOver | Role::Sealed, Event::FailOver) => {
            Err(Refused::IsReplica)
        }
        (_, Event::TookOver | Event::HandedOver | Event::KeptOffice) => Err(Refused::Late),
    }
}

/// The role in one word, for paths that read it often. Written under the lock of the state.
#[derive(Debug)]
pub(super) struct RoleWord(AtomicU8);

impl RoleWord {
    pub(super) const fn new() -> Self {
        Self(AtomicU8::new(0))
    }

    #[inline]
    pub(super) fn get(&self) -> Role {
        match self.0.load(Ordering::Acquire) {
            1 => Role::Following,
            2 => Role::TakingOver,
            3 => Role::FailingOver,
            4 => Role::Sealed,
            _ => Role::Primary,
        }
    }

    pub(super) fn set(&self, role: Role) {
        let word = match role {
            Role::Primary => 0,
            Role::Following => 1,
            Role::TakingOver => 2,
            Role::FailingOver => 3,
            Role::Sealed => 4,
        };
        self.0.store(word, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROLES: [Role; 5] = [
        Role::Primary,
        Role::Following,
        Role::TakingOver,
        Role::FailingOver,
        Role::Sealed,
    ];
    const EVENTS: [Event; 7] = [
        Event::Follow,
        Event::Unfollow,
        Event::TookOver,
        Event::FailOver,
        Event::HandedOver,
        Event::KeptOffice,
        Event::Seal,
    ];

    #[test]
    fn a_follower_becomes_a_primary_only_by_taking_over() {
        for role in ROLES {
            for event in EVENTS {
                if next(role, event) == Ok(Role::Primary) && role != Role::Primary {
                    let ends = [
                        (Role::TakingOver, Event::TookOver),
                        (Role::FailingOver, Event::KeptOffice),
                    ];
                    assert!(ends.contains(&(role, event)), "{role:?} {event:?}");
                }
            }
        }
    }

    #[test]
    fn while_a_failover_goes_on_nobody_else_changes_the_role() {
        for event in [Event::Follow, Event::Unfollow, Event::FailOver] {
            assert_eq!(next(Role::FailingOver, event), Err(Refused::FailingOver));
        }
        assert_eq!(
            next(Role::Following, Event::FailOver),
            Err(Refused::IsReplica)
        );
    }

    #[test]
    fn what_comes_late_changes_nothing() {
        for role in [Role::Primary, Role::Following] {
            for event in [Event::TookOver, Event::HandedOver, Event::KeptOffice] {
                assert_eq!(next(role, event), Err(Refused::Late));
            }
        }
    }

    #[test]
    fn a_sealed_node_takes_over_or_follows_and_nothing_else() {
        for role in ROLES {
            assert_eq!(next(role, Event::Seal), Ok(Role::Sealed));
        }
        for event in EVENTS {
            let outcome = next(Role::Sealed, event);
            let known = match event {
                Event::Follow => Ok(Role::Following),
                Event::Unfollow => Ok(Role::TakingOver),
                Event::Seal => Ok(Role::Sealed),
                Event::FailOver => Err(Refused::IsReplica),
                _ => Err(Refused::Late),
            };
            assert_eq!(outcome, known, "{event:?}");
        }
    }

    #[test]
    fn the_word_keeps_every_role() {
        let word = RoleWord::new();
        for role in ROLES {
            word.set(role);
            assert_eq!(word.get(), role);
        }
    }
}
