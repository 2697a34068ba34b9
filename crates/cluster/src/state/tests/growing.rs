//! Tests of one more copy in a shard whose writes wait for a majority.

use super::*;

const SHARD: ShardId = ShardId(1);

/// Creates a quorum shard of `copies` copies in a group at that level, with one more node.
fn shard_of(copies: u8, level: u16, is_quorum: bool) -> Log {
    let mut state = ControlState::default();
    let members = (1..=copies).map(|byte| (node(byte), CopyKind::Data));
    let shard = Shard {
        term: 1,
        epoch: 1,
        primary: node(1),
        members: members.collect(),
        is_quorum,
        ..Shard::default()
    };
    for byte in 1..=copies + 1 {
        state.nodes.insert(node(byte), Node::default());
    }
    state.shards.insert(SHARD, shard);
    state.feature_level = level;
    state.index = 10;
    Log { state, requests: 0 }
}

fn add(byte: u8, expected_epoch: u64) -> Entry {
    Entry::Shard {
        shard: SHARD,
        expected_epoch,
        change: ShardChange::Add {
            node: node(byte),
            kind: CopyKind::Data,
        },
    }
}

/// Returns the shard after it got one more copy.
fn grown(copies: u8, level: u16, is_quorum: bool) -> Shard {
    let mut log = shard_of(copies, level, is_quorum);
    assert_eq!(log.apply(add(copies + 1, 9)), Applied::Stale);
    assert_eq!(log.apply(add(copies + 1, 1)), Applied::Done);
    let shard = log.state.shards[&SHARD].clone();
    assert!(shard.members.contains_key(&node(copies + 1)) && shard.epoch > 1);
    assert_eq!(log.apply(add(copies + 1, shard.epoch)), Applied::Refused);
    shard
}

#[test]
fn one_more_of_two_copies_counts_at_once_though_one_of_them_is_lost() {
    let shard = grown(2, LEVEL_OF_GROWING, true);
    assert_eq!(shard.old_members, None);
    let ends = |nodes: &[u8]| nodes.iter().map(|byte| (node(*byte), 9)).collect();
    let answers = |nodes: &[u8]| nodes.iter().map(|byte| node(*byte)).collect();
    assert_eq!(shard.committed(&ends(&[1, 3])), 9, "2 is lost");
    assert!(shard.suffices(&answers(&[2, 3])), "2 has all of before");
    assert!(!shard.suffices(&answers(&[3])) && !shard.suffices(&answers(&[2])));
}

#[test]
fn one_more_of_an_odd_number_needs_those_of_before() {
    for copies in [1, 3] {
        let shard = grown(copies, LEVEL_OF_GROWING, true);
        assert!(shard.old_members.is_some(), "{copies}");
    }
    assert!(grown(4, LEVEL_OF_GROWING, true).old_members.is_none());
}

#[test]
fn one_more_is_a_change_as_before_where_not_all_know_better_or_nobody_waits() {
    assert!(grown(2, LEVEL_OF_GROWING - 1, true).old_members.is_some());
    assert!(grown(2, LEVEL_OF_GROWING, false).old_members.is_some());
}
