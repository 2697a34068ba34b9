//! Splits nodes that are too full and joins those that are too empty.

use super::{Child, INNER_MAX, LEAF_MAX, LEAF_STEP, Leaf, Tree};
use crate::sorted_set::members::Members;
use crate::sorted_set::pool::NONE;

/// A node with fewer entries is joined with a neighbour …
const LEAF_MIN: usize = LEAF_MAX / 4;
const INNER_MIN: usize = INNER_MAX / 4;
/// … if both together have at most this many, so that the next few changes do not split the node.
const LEAF_JOINED_MAX: usize = LEAF_MAX / 4 * 3;
const INNER_JOINED_MAX: usize = INNER_MAX / 4 * 3;

impl Tree {
    /// Moves the entries of a leaf from `at` on to a new leaf behind it.
    pub(super) fn split_leaf(&mut self, leaf: u32, at: usize, members: &mut Members) {
        let old = &mut self.leaves[leaf];
        let new = Leaf {
            scores: old.scores.split_off(at).into(),
            members: old.members.split_off(at).into(),
            parent: old.parent,
            previous: leaf,
            next: old.next,
        };
        let child = Child {
            score: new.scores[0],
            member: new.members[0],
            node: NONE,
            count: small(new.scores.len()),
        };
        self.bytes += new.heap_bytes();
        let number = self.leaves.add(new);
        for member in &self.leaves[number].members {
            members.set_leaf(*member, number);
        }
        let next = self.leaves[number].next;
        self.leaves[leaf].next = number;
        if next != NONE {
            self.leaves[next].previous = number;
        }
        self.resize(leaf, at.next_multiple_of(LEAF_STEP));
        self.add_behind(
            leaf,
            0,
            Child {
                node: number,
                ..child
            },
        );
    }

    /// Inserts `child`, which was split off the node `left`, behind `left` below the same parent.
    fn add_behind(&mut self, left: u32, level: u32, child: Child) {
        let parent = self.parent(left, level);
        if parent == NONE {
            self.add_root(left, level, child);
            return;
        }
        let inner = &mut self.inners[parent];
        let Some(at) = inner.position(left) else {
            return;
        };
        let bytes = inner.heap_bytes();
        inner.children[at].count -= child.count;
        inner.children.insert(at + 1, child);
        self.bytes = self.bytes + inner.heap_bytes() - bytes;
        let length = inner.children.len();
        self.set_parent(child.node, level, parent);
        if length > INNER_MAX {
            let is_ascending = at + 2 == length && inner_is_last(self, parent);
            let at = if is_ascending { length - 1 } else { length / 2 };
            self.split_inner(parent, level + 1, at);
        }
    }

    /// Adds a root above the former root and the node that was split off it.
    fn add_root(&mut self, left: u32, level: u32, child: Child) {
        let (score, member) = match level {
            0 => (self.leaves[left].scores[0], self.leaves[left].members[0]),
            _ => {
                let first = self.inners[left].children[0];
                (first.score, first.member)
            }
        };
        let first = Child {
            score,
            member,
            node: left,
            count: small(self.len) - child.count,
        };
        let inner = super::Inner {
            children: vec![first, child].into(),
            parent: NONE,
        };
        self.bytes += inner.heap_bytes();
        let root = self.inners.add(inner);
        self.set_parent(left, level, root);
        self.set_parent(child.node, level, root);
        self.root = root;
        self.height += 1;
    }

    /// Moves the children of an inner node from `at` on to a new node behind it.
    fn split_inner(&mut self, node: u32, level: u32, at: usize) {
        let old = &mut self.inners[node];
        let bytes = old.heap_bytes();
        let new = super::Inner {
            children: old.children.split_off(at).into(),
            parent: old.parent,
        };
        self.bytes = self.bytes + old.heap_bytes() + new.heap_bytes() - bytes;
        let first = new.children[0];
        let count = new.children.iter().map(|one| one.count).sum();
        let number = self.inners.add(new);
        self.adopt(number, level, 0);
        let child = Child {
            node: number,
            count,
            ..first
        };
        self.add_behind(node, level, child);
    }

    /// Sets the parent of the children of an inner node from `at` on.
    fn adopt(&mut self, node: u32, level: u32, at: usize) {
        for at in at..self.inners[node].children.len() {
            let child = self.inners[node].children[at].node;
            self.set_parent(child, level - 1, node);
        }
    }

    /// Joins a leaf with a neighbour if it has become too empty.
    pub(super) fn balance_leaf(&mut self, leaf: u32, members: &mut Members) {
        let length = self.leaves[leaf].scores.len();
        if length >= LEAF_MIN || self.leaves[leaf].parent == NONE {
            return;
        }
        let Some((left, right)) = self.neighbours(leaf, self.leaves[leaf].parent) else {
            if length == 0 {
                self.unlink(leaf);
                self.drop_child(leaf, 0);
            }
            return;
        };
        let total = self.leaves[left].scores.len() + self.leaves[right].scores.len();
        if total <= LEAF_JOINED_MAX || length == 0 {
            self.join_leaves(left, right, members);
        }
    }

    /// Moves the entries of the leaf `right` to its neighbour `left`.
    fn join_leaves(&mut self, left: u32, right: u32, members: &mut Members) {
        self.bytes -= self.leaves[right].heap_bytes();
        let scores = std::mem::take(&mut self.leaves[right].scores);
        let entries = std::mem::take(&mut self.leaves[right].members);
        for member in &entries {
            members.set_leaf(*member, left);
        }
        let length = self.leaves[left].scores.len();
        let total = length + scores.len();
        self.resize(left, total.next_multiple_of(LEAF_STEP));
        self.leaves[left].scores.extend(&scores);
        self.leaves[left].members.extend(&entries);
        let parent = self.leaves[left].parent;
        if let Some(child) = self.inners[parent].child_mut(left) {
            child.count = small(total);
        }
        if length == 0 {
            self.tell_first(left);
        }
        self.unlink(right);
        self.drop_child(right, 0);
    }

    /// Unlinks a leaf from the row of leaves.
    fn unlink(&mut self, leaf: u32) {
        let (previous, next) = (self.leaves[leaf].previous, self.leaves[leaf].next);
        if previous != NONE {
            self.leaves[previous].next = next;
        }
        if next != NONE {
            self.leaves[next].previous = previous;
        }
    }

    /// Frees a node that has no entries left, and balances the nodes above it.
    fn drop_child(&mut self, node: u32, level: u32) {
        let parent = self.parent(node, level);
        match level {
            0 => self.bytes -= self.leaves.remove(node).heap_bytes(),
            _ => self.bytes -= self.inners.remove(node).heap_bytes(),
        }
        let inner = &mut self.inners[parent];
        let at = inner.position(node);
        if let Some(at) = at {
            inner.children.remove(at);
        }
        let first = inner.children.first().copied();
        if at == Some(0)
            && let Some(first) = first
        {
            self.tell_first_of(parent, first);
        }
        self.balance_inner(parent, level + 1);
    }

    /// Updates the nodes above an inner node after its first child changed.
    fn tell_first_of(&mut self, node: u32, first: Child) {
        let (mut node, mut parent) = (node, self.inners[node].parent);
        while parent != NONE {
            let inner = &mut self.inners[parent];
            if let Some(child) = inner.child_mut(node) {
                child.score = first.score;
                child.member = first.member;
            }
            if inner.children[0].node != node {
                return;
            }
            (node, parent) = (parent, inner.parent);
        }
    }

    fn balance_inner(&mut self, node: u32, level: u32) {
        let (length, parent) = (self.inners[node].children.len(), self.inners[node].parent);
        if parent == NONE {
            self.lower_root();
            return;
        }
        if length >= INNER_MIN {
            return;
        }
        let Some((left, right)) = self.neighbours(node, parent) else {
            if length == 0 {
                self.drop_child(node, level);
            }
            return;
        };
        let total = self.inners[left].children.len() + self.inners[right].children.len();
        if total <= INNER_JOINED_MAX || length == 0 {
            self.join_inners(left, right, level);
        }
    }

    fn join_inners(&mut self, left: u32, right: u32, level: u32) {
        let children = std::mem::take(&mut self.inners[right].children);
        let moved: u32 = children.iter().map(|one| one.count).sum();
        let first = children.first().copied();
        let inner = &mut self.inners[left];
        let (length, bytes) = (inner.children.len(), inner.heap_bytes());
        inner.children.extend(&children);
        self.bytes = self.bytes + inner.heap_bytes() - bytes;
        // The node itself is subtracted when it is dropped; its children are already taken out.
        self.bytes -= crate::memory::allocated(children.capacity() * size_of::<Child>());
        self.adopt(left, level, length);
        let parent = self.inners[left].parent;
        if let Some(child) = self.inners[parent].child_mut(left) {
            child.count += moved;
        }
        if length == 0
            && let Some(first) = first
        {
            self.tell_first_of(left, first);
        }
        self.drop_child(right, level);
    }

    /// Removes roots that have only one child.
    fn lower_root(&mut self) {
        while self.height > 0 && self.inners[self.root].children.len() == 1 {
            let child = self.inners[self.root].children[0].node;
            self.bytes -= self.inners.remove(self.root).heap_bytes();
            self.height -= 1;
            self.root = child;
            self.set_parent(child, self.height, NONE);
        }
    }

    /// Returns a node and one beside it below the same parent, the left one first.
    fn neighbours(&self, node: u32, parent: u32) -> Option<(u32, u32)> {
        let children = &self.inners[parent].children;
        let at = self.inners[parent].position(node)?;
        match (children.get(at + 1), at.checked_sub(1)) {
            (Some(right), _) => Some((node, right.node)),
            (None, Some(left)) => Some((children[left].node, node)),
            (None, None) => None,
        }
    }

    fn parent(&self, node: u32, level: u32) -> u32 {
        match level {
            0 => self.leaves[node].parent,
            _ => self.inners[node].parent,
        }
    }

    fn set_parent(&mut self, node: u32, level: u32, parent: u32) {
        match level {
            0 => self.leaves[node].parent = parent,
            _ => self.inners[node].parent = parent,
        }
    }
}

/// Whether an inner node is the last below its parent.
fn inner_is_last(tree: &Tree, node: u32) -> bool {
    let parent = tree.inners[node].parent;
    parent == NONE
        || tree.inners[parent]
            .children
            .last()
            .is_some_and(|one| one.node == node)
}

/// Converts a number of entries. There are fewer entries than references.
fn small(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}
