//! Which part the node has, and what changes that: the one table of it.
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
//! A primary takes writes. Who follows refuses them. While one takes over from the other, writes wait at the gate.
//!
//! Under a control group every role goes to `Sealed` by `Seal`, and from there by `Follow` or `Unfollow`: a sealed node
//! follows nobody, refuses writes, and its log is appended to by nobody.

use std::sync::atomic::{AtomicU8, Ordering};

/// Which part a node has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It takes writes.
    Primary,
    /// It follows another node, or tries to.
    Following,
    /// It follows nobody any more, and becomes a primary when what follows has ended.
    TakingOver,
    /// It is a primary that hands its office over; writes wait.
    FailingOver,
    /// A control group has sealed it, or has not said yet whom it follows.
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
    /// No replica has, and none will.
    KeptOffice,
    /// The control group seals it.
    Seal,
}

/// Why an event changes nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Refused {
    /// A failover goes on.
    FailingOver,
    /// The node follows another.
    IsReplica,
    /// Nothing of that kind goes on: the event is late.
    Late,
}

/// The role after an event.
///
/// # Errors
/// Where the event has no place.
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

/// The role in one word, for paths that ask often. Written by who holds the lock of the state.
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
