//! How many copies of a shard are available, and whether one more or one less leaves a majority of
//! them.
//!
//! A log-only copy makes the number of copies odd. Then it may be the only remaining copy that has
//! all committed frames, beside a data copy that lacks some: so its log has to reach back to the
//! end of each data copy, or its tail could not be handed on. If the number is even, another
//! remaining copy has those frames, too.
//!
//! Invariant: no data copy is added or removed if that makes the number odd while there is a
//! log-only copy. When a log-only copy is added, each data copy follows the primary; its log begins
//! where all of them have it, and is trimmed no further.

use super::{ControlState, CopyKind, LEVEL_OF_GROWING, NodeId, Shard};

impl Shard {
    /// Returns the number of members with copies of that kind.
    #[must_use]
    pub fn count_of(&self, kind: CopyKind) -> usize {
        self.members.values().filter(|it| **it == kind).count()
    }

    /// Returns what a member keeps, including a member that is being removed.
    #[must_use]
    pub fn kind_of(&self, node: NodeId) -> Option<CopyKind> {
        let mut sets = self.sets();
        sets.find_map(|set| set.get(&node)).copied()
    }

    /// Returns the log-only copy, if there is one.
    #[must_use]
    pub fn log_copy(&self) -> Option<NodeId> {
        let mut members = self.members.iter();
        let found = members.find(|(_, kind)| **kind == CopyKind::LogOnly);
        found.map(|(id, _)| *id)
    }

    /// Whether adding a copy of that kind keeps the invariant for a log-only copy (see the module).
    #[must_use]
    pub fn may_be_added(&self, kind: CopyKind) -> bool {
        let is_even = self.members.len().is_multiple_of(2);
        match kind {
            CopyKind::LogOnly => self.is_quorum && is_even && self.log_copy().is_none(),
            CopyKind::Data => !is_even || self.log_copy().is_none(),
        }
    }

    /// Whether removing a member keeps the same invariant.
    #[must_use]
    pub fn may_be_removed(&self, node: NodeId) -> bool {
        let is_even = self.members.len().is_multiple_of(2);
        !is_even || self.log_copy().is_none_or(|copy| copy == node)
    }
}

impl ControlState {
    /// Whether a node is in the group and answers.
    #[must_use]
    pub fn is_there(&self, id: NodeId) -> bool {
        self.nodes.get(&id).is_some_and(|node| !node.is_failed)
    }

    /// Whether the members of a shard may change now: its primary is available, and no change is in
    /// progress.
    #[must_use]
    pub fn may_change(&self, shard: &Shard) -> bool {
        self.is_there(shard.primary) && shard.old_members.is_none()
    }

    /// Whether writes that wait for a majority could continue with one more copy: the available
    /// copies agree to it, and are a majority with it.
    #[must_use]
    pub fn may_grow(&self, shard: &Shard) -> bool {
        let (there, count) = self.copies(shard);
        let is_at_once = count % 2 == 0 && self.feature_level >= LEVEL_OF_GROWING;
        let is_agreed = is_at_once || is_majority(there, count);
        !shard.is_quorum || is_agreed && is_majority(there + 1, count + 1)
    }

    /// Whether a shard can spare one of its available copies: the available ones are a majority,
    /// and so are the remaining ones.
    #[must_use]
    pub fn may_spare(&self, shard: &Shard) -> bool {
        let (there, count) = self.copies(shard);
        let (there_then, count_then) = (there.saturating_sub(1), count.saturating_sub(1));
        let is_agreed = is_majority(there, count) && is_majority(there_then, count_then);
        !shard.is_quorum || is_agreed
    }

    /// Returns the number of available copies, and the number of members.
    fn copies(&self, shard: &Shard) -> (usize, usize) {
        let members = shard.members.keys();
        let there = members.filter(|id| self.is_there(**id)).count();
        (there, shard.members.len())
    }
}

fn is_majority(there: usize, count: usize) -> bool {
    there > count / 2
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::state::Node;

    /// Returns a quorum shard of `count` copies, the first of which are available.
    fn shard_of(count: u8, there: u8, feature_level: u16) -> (ControlState, Shard) {
        let mut state = ControlState {
            feature_level,
            ..ControlState::default()
        };
        let mut shard = Shard {
            is_quorum: true,
            ..Shard::default()
        };
        for byte in 1..=count {
            let node = Node {
                is_failed: byte > there,
                ..Node::default()
            };
            state.nodes.insert(NodeId([byte; 20]), node);
            shard.members.insert(NodeId([byte; 20]), CopyKind::Data);
        }
        shard.primary = NodeId([1; 20]);
        (state, shard)
    }

    fn told(count: u8, there: u8, feature_level: u16) -> (bool, bool) {
        let (state, shard) = shard_of(count, there, feature_level);
        (state.may_grow(&shard), state.may_spare(&shard))
    }

    #[test]
    fn one_more_and_one_less_leave_a_majority_or_are_refused() {
        let level = LEVEL_OF_GROWING;
        assert_eq!(told(3, 3, level), (true, true));
        assert_eq!(told(3, 2, level), (true, false));
        assert_eq!(told(3, 1, level), (false, false));
        assert_eq!(told(2, 2, level), (true, true));
        assert_eq!(told(2, 1, level), (true, false));
        assert_eq!(told(2, 1, level - 1), (false, false));
        assert_eq!(told(1, 1, level), (true, false));
    }

    #[test]
    fn a_copy_of_the_log_alone_makes_the_number_odd_and_copies_of_the_data_change_while_it_is_even()
    {
        let (data, log) = (CopyKind::Data, CopyKind::LogOnly);
        let shard_with = |copies: u8, has_log: bool| {
            let (_, mut shard) = shard_of(copies, copies, LEVEL_OF_GROWING);
            if has_log {
                shard.members.insert(NodeId([9; 20]), log);
            }
            shard
        };
        let two = shard_with(2, false);
        assert!(two.may_be_added(log) && two.may_be_added(data));
        assert!(!shard_with(3, false).may_be_added(log));
        let asynchronous = Shard {
            is_quorum: false,
            ..two
        };
        assert!(!asynchronous.may_be_added(log));
        let odd = shard_with(2, true);
        assert!(!odd.may_be_added(log), "a second one");
        // From three members to four, and from three to two.
        assert!(odd.may_be_added(data) && odd.may_be_removed(NodeId([2; 20])));
        assert!(odd.may_be_removed(NodeId([9; 20])));
        // From four to five, or to three: only the log-only copy may go.
        let even = shard_with(3, true);
        assert!(!even.may_be_added(data) && !even.may_be_removed(NodeId([2; 20])));
        assert!(even.may_be_removed(NodeId([9; 20])));
    }

    #[test]
    fn where_nobody_waits_for_a_majority_any_number_will_do() {
        let (state, mut shard) = shard_of(3, 1, LEVEL_OF_GROWING);
        shard.is_quorum = false;
        assert!(state.may_grow(&shard) && state.may_spare(&shard) && state.may_change(&shard));
        shard.old_members = Some(shard.members.clone());
        assert!(!state.may_change(&shard));
    }
}
