//! Tests of sequences of entries, of refusals, and of encodings.

#![allow(clippy::unwrap_used, reason = "a failed expectation is a failed test")]

mod growing;

use proptest::prelude::*;

use super::*;
use crate::entry::{Entry, Proposal, ShardChange, SlotRange};
use crate::leader_lease::Report;
use crate::message::{CopyStatus, Fetch, Heartbeat, HeartbeatReply, Message, Seal, SealAnswer};
use crate::planted::{Bug, plant};

const SHARD: ShardId = ShardId(0);

fn node(byte: u8) -> NodeId {
    NodeId([byte; 20])
}

fn record(start_count: u64) -> NodeRecord {
    NodeRecord {
        name: "one".into(),
        host: "10.0.0.1".into(),
        client_port: 6379,
        link_port: 16379,
        zone: "a".into(),
        roles: roles::DATA,
        start_count,
        feature_level: FEATURE_LEVEL,
        hostname: "one.example".into(),
        tls_port: 6380,
    }
}

/// Applies entries in sequence.
#[derive(Default)]
struct Log {
    state: ControlState,
    requests: u64,
}

impl Log {
    fn apply(&mut self, entry: Entry) -> Applied {
        self.requests += 1;
        let mut request = RequestId::default();
        request.0[..8].copy_from_slice(&self.requests.to_le_bytes());
        let proposal = Proposal { request, entry };
        let decoded = Proposal::decode(&proposal.encode()).unwrap();
        assert_eq!(decoded, proposal);
        self.state.apply(self.state.index + 1, &decoded)
    }

    fn join(&mut self, byte: u8) -> Applied {
        self.apply(Entry::Join {
            node: node(byte),
            record: record(1),
        })
    }

    fn change(&mut self, change: ShardChange) -> Applied {
        let expected_epoch = self.state.shards.get(&SHARD).map_or(0, |shard| shard.epoch);
        self.apply(Entry::Shard {
            shard: SHARD,
            expected_epoch,
            change,
        })
    }

    fn shard(&self) -> &Shard {
        &self.state.shards[&SHARD]
    }

    fn promote(&self, to: u8, term: u64) -> Entry {
        Entry::Promote {
            shard: SHARD,
            expected_term: self.shard().term,
            expected_epoch: self.shard().epoch,
            term,
            primary: node(to),
            end: LogEnd {
                term: 1,
                sequence: 77,
            },
        }
    }
}

/// Three members in one set.
fn three() -> Log {
    let mut log = Log::default();
    for byte in 1..=3 {
        assert_eq!(log.join(byte), Applied::Done);
    }
    let create = ShardChange::Create {
        primary: node(1),
        end: LogEnd::default(),
        is_quorum: true,
    };
    assert_eq!(log.change(create), Applied::Done);
    for byte in 2..=3 {
        let kind = CopyKind::Data;
        let add = ShardChange::Add {
            node: node(byte),
            kind,
        };
        assert_eq!(log.change(add), Applied::Done);
        assert_eq!(log.change(ShardChange::Finish), Applied::Done);
    }
    log
}

#[test]
fn a_node_joins_once_and_gets_the_index_as_its_number() {
    let mut log = Log::default();
    assert_eq!(log.join(1), Applied::Done);
    assert_eq!(log.join(1), Applied::Refused);
    assert_eq!(log.join(2), Applied::Done);
    let ids: Vec<_> = log.state.nodes.values().map(|node| node.raft_id).collect();
    assert_eq!(ids, [1, 3]);
}

#[test]
fn an_older_copy_of_a_node_is_refused() {
    let mut log = Log::default();
    log.join(1);
    let node = node(1);
    let says = |start_count| Entry::Node {
        node,
        record: record(start_count),
    };
    assert_eq!(log.apply(says(3)), Applied::Done);
    assert_eq!(log.apply(says(2)), Applied::Refused);
    assert_eq!(log.apply(says(3)), Applied::Done);
}

#[test]
fn a_promotion_counts_in_its_epoch_and_term_alone() {
    let mut log = three();
    let first = log.promote(2, 2);
    let second = log.promote(3, 2);
    assert_eq!(log.apply(first), Applied::Done);
    assert_eq!((log.shard().primary, log.shard().term), (node(2), 2));
    assert_eq!(log.apply(second), Applied::Stale);
    let same_term = log.promote(1, 2);
    assert_eq!(log.apply(same_term), Applied::Refused);
    let nobody = log.promote(9, 3);
    assert_eq!(log.apply(nobody), Applied::Refused);
}

#[test]
fn an_entry_that_is_applied_unchecked_is_seen() {
    plant(Some(Bug::ApplyUnchecked));
    let mut log = three();
    let (first, second) = (log.promote(2, 2), log.promote(3, 2));
    log.apply(first);
    log.apply(second);
    plant(None);
    // Two primaries in one term.
    assert_eq!((log.shard().primary, log.shard().term), (node(3), 2));
}

#[test]
fn members_change_one_at_a_time_and_both_sets_decide() {
    let mut log = three();
    log.join(4);
    let add = ShardChange::Add {
        node: node(4),
        kind: CopyKind::Data,
    };
    assert_eq!(log.change(add), Applied::Done);
    let another = ShardChange::Remove { node: node(2) };
    assert_eq!(log.change(another), Applied::Refused);
    let all = |bytes: &[u8]| bytes.iter().map(|byte| node(*byte)).collect();
    // Two of the old three, and two of the new four.
    assert!(log.shard().suffices(&all(&[1, 2])));
    assert!(!log.shard().suffices(&all(&[1, 4])));
    let ends = |all: &[(u8, u64)]| {
        let all = all.iter();
        all.map(|(byte, end)| (node(*byte), *end)).collect()
    };
    assert_eq!(
        log.shard()
            .committed(&ends(&[(1, 9), (2, 7), (3, 5), (4, 9)])),
        7
    );
    assert_eq!(log.shard().committed(&ends(&[(1, 9), (4, 9)])), 0);
    assert_eq!(log.change(ShardChange::Finish), Applied::Done);
    assert_eq!(log.shard().committed(&ends(&[(1, 9), (2, 9), (4, 8)])), 8);
}

#[test]
fn who_is_needed_does_not_leave() {
    let mut log = three();
    assert_eq!(log.apply(Entry::Leave { node: node(2) }), Applied::Refused);
    let of_primary = ShardChange::Remove { node: node(1) };
    assert_eq!(log.change(of_primary), Applied::Refused);
    assert_eq!(
        log.change(ShardChange::Remove { node: node(2) }),
        Applied::Done
    );
    assert_eq!(log.apply(Entry::Leave { node: node(2) }), Applied::Refused);
    assert_eq!(log.change(ShardChange::Finish), Applied::Done);
    assert_eq!(log.apply(Entry::Leave { node: node(2) }), Applied::Done);
}

#[test]
fn a_repeated_request_is_done_once() {
    let mut log = three();
    let proposal = Proposal {
        request: RequestId([7; 16]),
        entry: log.promote(2, 2),
    };
    assert_eq!(log.state.apply(100, &proposal), Applied::Done);
    let after = log.state.shards.clone();
    assert_eq!(log.state.apply(101, &proposal), Applied::Done);
    assert_eq!(log.state.shards, after);
}

#[test]
fn documents_have_versions() {
    let mut log = Log::default();
    let mut write = |expected_version, body: Option<&[u8]>| {
        log.apply(Entry::Document {
            kind: DocumentKind::User,
            name: b"ann".to_vec(),
            expected_version,
            body: body.map(<[u8]>::to_vec),
        })
    };
    assert_eq!(write(0, Some(b"on")), Applied::Done);
    assert_eq!(write(0, Some(b"off")), Applied::Stale);
    assert_eq!(write(1, Some(b"off")), Applied::Done);
    assert_eq!(write(3, None), Applied::Done);
    assert!(log.state.documents.is_empty());
}

#[test]
fn a_level_rises_when_all_nodes_know_it() {
    let mut log = Log::default();
    log.join(1);
    let level = |level| Entry::FeatureLevel { level };
    assert_eq!(log.apply(level(FEATURE_LEVEL)), Applied::Done);
    assert_eq!(log.apply(level(FEATURE_LEVEL + 1)), Applied::Refused);
    let mut old = record(1);
    old.feature_level = 0;
    let join = Entry::Join {
        node: node(2),
        record: old,
    };
    assert_eq!(log.apply(join), Applied::Refused);
}

#[test]
fn a_state_comes_back_from_its_bytes() {
    let mut log = three();
    log.apply(Entry::Document {
        kind: DocumentKind::Config,
        name: b"maxmemory".to_vec(),
        expected_version: 0,
        body: Some(b"1gb".to_vec()),
    });
    log.change(ShardChange::Remove { node: node(3) });
    log.apply(slots(&[(5, 9)], None, Some(SHARD)));
    let bytes = log.state.encode();
    assert_eq!(ControlState::decode(&bytes).unwrap(), log.state);
    for end in 0..bytes.len() {
        assert!(ControlState::decode(&bytes[..end]).is_err());
    }
}

fn slots(ranges: &[SlotRange], expected: Option<ShardId>, owner: Option<ShardId>) -> Entry {
    Entry::Slots {
        ranges: ranges.to_vec(),
        expected,
        owner,
    }
}

#[test]
fn slots_go_from_the_owner_that_is_expected() {
    let mut log = three();
    assert_eq!(log.join(4), Applied::Done);
    let (one, two) = (Some(SHARD), Some(ShardId(2)));
    log.apply(Entry::Shard {
        shard: ShardId(2),
        expected_epoch: 0,
        change: ShardChange::Create {
            primary: node(4),
            end: LogEnd::default(),
            is_quorum: false,
        },
    });
    let all = [(0, 16_383)];
    assert_eq!(log.apply(slots(&all, None, one)), Applied::Done);
    assert_eq!(log.shard().epoch, log.state.index);
    // All or none, and not again.
    assert_eq!(log.apply(slots(&[(7, 7)], None, two)), Applied::Stale);
    assert_eq!(
        log.apply(slots(&[(7, 7), (9, 12)], one, two)),
        Applied::Done
    );
    assert_eq!(log.apply(slots(&[(6, 7)], one, two)), Applied::Stale);
    assert_eq!(log.state.slots.of(ShardId(2)), [(7, 7), (9, 12)]);
    assert_eq!(log.apply(slots(&[(9, 10)], two, None)), Applied::Done);
    assert_eq!(log.state.slots.count(), 16_382);
    for wrong in [&[][..], &[(0, 16_384)], &[(5, 4)], &[(1, 5), (5, 6)]] {
        let refused = log.apply(slots(wrong, one, two));
        assert_eq!(refused, Applied::Refused, "{wrong:?}");
    }
    let unknown = slots(&[(9, 10)], None, Some(ShardId(9)));
    assert_eq!(log.apply(unknown), Applied::Refused);
}

#[test]
fn slots_move_between_shards_that_are_as_they_were() {
    let mut log = three();
    assert_eq!(log.join(4), Applied::Done);
    let two = ShardId(2);
    log.apply(Entry::Shard {
        shard: two,
        expected_epoch: 0,
        change: ShardChange::Create {
            primary: node(4),
            end: LogEnd::default(),
            is_quorum: false,
        },
    });
    log.apply(slots(&[(0, 99)], None, Some(SHARD)));
    let epoch = |log: &Log, shard: ShardId| log.state.shards[&shard].epoch;
    let moved = |log: &Log, ranges: &[SlotRange]| Entry::Move {
        ranges: ranges.to_vec(),
        from: (SHARD, epoch(log, SHARD)),
        to: (two, epoch(log, two)),
    };
    let (first, second) = (moved(&log, &[(0, 9)]), moved(&log, &[(10, 19)]));
    assert_eq!(log.apply(first), Applied::Done);
    assert_eq!(log.state.slots.of(two), [(0, 9)]);
    assert_eq!(epoch(&log, two), log.state.index);
    // Both shards have changed since it began.
    assert_eq!(log.apply(second), Applied::Stale);
    let foreign = moved(&log, &[(5, 15)]);
    assert_eq!(log.apply(foreign), Applied::Stale);
    let begun = moved(&log, &[(10, 19)]);
    assert_eq!(log.apply(Entry::EndMoves { shard: two }), Applied::Done);
    assert_eq!(log.apply(begun), Applied::Stale);
    let nothing = moved(&log, &[]);
    assert_eq!(log.apply(nothing), Applied::Refused);
    let again = moved(&log, &[(10, 19)]);
    assert_eq!(log.apply(again), Applied::Done);
    let unknown = Entry::EndMoves { shard: ShardId(9) };
    assert_eq!(log.apply(unknown), Applied::Refused);
}

#[test]
fn slots_are_written_as_before() {
    let proposal = Proposal {
        request: RequestId([7; 16]),
        entry: slots(&[(1, 2), (16_383, 16_383)], None, Some(ShardId(3))),
    };
    let mut golden = vec![1];
    golden.extend([7; 16]);
    golden.extend([
        12, 2, 0, 0, 0, 1, 0, 2, 0, 0xFF, 0x3F, 0xFF, 0x3F, 0, 1, 3, 0, 0, 0,
    ]);
    assert_eq!(proposal.encode(), golden);
}

#[test]
fn a_newer_version_and_an_unknown_kind_are_said_by_name() {
    let log = three();
    let proposal = Proposal {
        request: RequestId::default(),
        entry: log.promote(2, 2),
    };
    let mut bytes = proposal.encode();
    bytes[17] = 200;
    assert_eq!(Proposal::decode(&bytes), Err(Malformed::Kind(200)));
    bytes[0] = 9;
    assert_eq!(Proposal::decode(&bytes), Err(Malformed::Version(9)));
}

#[test]
fn messages_come_back_from_their_bytes() {
    let end = LogEnd {
        term: 3,
        sequence: 9,
    };
    let copy = CopyStatus {
        shard: SHARD,
        seal: 2,
        office: 3,
        taking: 0,
        end,
        applied: 5,
        left: 6,
    };
    let all = [
        Message::Heartbeat(Heartbeat {
            node: node(1),
            number: 7,
            start_count: 2,
            index: 12,
            copies: vec![copy],
            acknowledged: Some(Report {
                reign: (4, 2),
                ago_ms: 9,
            }),
            sent_ms: None,
        }),
        Message::Heartbeat(Heartbeat {
            node: node(1),
            sent_ms: Some(77),
            ..Heartbeat::default()
        }),
        Message::Reply(HeartbeatReply {
            number: 7,
            index: 12,
            leases: vec![(SHARD, 3)],
            drift_ppm: None,
            lease_ms: None,
        }),
        Message::Reply(HeartbeatReply {
            drift_ppm: Some(4),
            lease_ms: Some(1_500),
            ..HeartbeatReply::default()
        }),
        Message::Reply(HeartbeatReply {
            drift_ppm: Some(-5_001),
            ..HeartbeatReply::default()
        }),
    ];
    all.into_iter().for_each(check_message);
}

fn check_message(message: Message) {
    let bytes = message.encode();
    assert_eq!(Message::decode(&bytes), Ok(message));
    for end in 0..bytes.len() {
        assert!(Message::decode(&bytes[..end]).is_err());
    }
}

#[test]
fn seals_and_their_answers_come_back_from_their_bytes() {
    let seal = Seal {
        shard: SHARD,
        term: 3,
        epoch: 9,
    };
    let end = LogEnd {
        term: 2,
        sequence: 70,
    };
    let all = [
        Message::Seal(seal),
        Message::Fetch(Fetch {
            seal,
            from: node(7),
            end,
        }),
        Message::Answer(SealAnswer {
            node: node(2),
            seal,
            end,
            applied: 5,
            is_blank: true,
            successor: Some(node(3)),
            is_certain: true,
            is_fresh: false,
            declines: true,
            begins: None,
        }),
        Message::Answer(SealAnswer {
            node: node(2),
            seal,
            end,
            applied: 5,
            is_blank: false,
            successor: None,
            is_certain: true,
            is_fresh: false,
            declines: false,
            begins: Some(4),
        }),
    ];
    all.into_iter().for_each(check_message);
}

proptest! {
    #[test]
    fn any_bytes_are_read_without_a_panic(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let _any = ControlState::decode(&bytes).is_ok();
        let _any = Message::decode(&bytes).is_ok();
        if let Ok(proposal) = Proposal::decode(&bytes) {
            prop_assert_eq!(proposal.encode(), bytes);
        }
    }
}

/// Nodes 1 to 3 in cluster mode, each with a shard of the same number.
fn cluster() -> Log {
    let mut log = Log::default();
    for byte in 1..=3 {
        let record = NodeRecord {
            roles: roles::DATA | roles::CLUSTER,
            ..NodeRecord::default()
        };
        let node = node(byte);
        assert_eq!(log.apply(Entry::Join { node, record }), Applied::Done);
        assert_eq!(log.begin_shard(byte, byte.into()), Applied::Done);
    }
    log
}

impl Log {
    fn begin_shard(&mut self, primary: u8, shard: u32) -> Applied {
        self.apply(Entry::Shard {
            shard: ShardId(shard),
            expected_epoch: 0,
            change: ShardChange::Create {
                primary: node(primary),
                end: LogEnd::default(),
                is_quorum: false,
            },
        })
    }

    fn move_to(&mut self, shard: u32, byte: u8) -> Applied {
        let shard = ShardId(shard);
        let expected_epoch = self.state.shards[&shard].epoch;
        let change = ShardChange::Add {
            node: node(byte),
            kind: CopyKind::Data,
        };
        let applied = self.apply(Entry::Shard {
            shard,
            expected_epoch,
            change,
        });
        if applied == Applied::Done {
            let expected_epoch = self.state.shards[&shard].epoch;
            let finish = Entry::Shard {
                shard,
                expected_epoch,
                change: ShardChange::Finish,
            };
            assert_eq!(self.apply(finish), Applied::Done);
        }
        applied
    }
}

#[test]
fn a_node_is_of_one_shard() {
    let mut log = cluster();
    assert_eq!(log.begin_shard(1, 9), Applied::Refused, "it has one");
    assert_eq!(
        log.apply(slots(&[(0, 99)], None, Some(ShardId(1)))),
        Applied::Done
    );
    assert_eq!(log.move_to(2, 1), Applied::Refused, "it owns slots");
    assert_eq!(log.move_to(1, 2), Applied::Done);
    assert!(!log.state.shards.contains_key(&ShardId(2)));
    assert_eq!(log.state.shard_of(node(2)), Some(ShardId(1)));
    assert_eq!(log.move_to(3, 2), Applied::Done, "a replica moves on");
    assert_eq!(log.state.shards[&ShardId(1)].members.len(), 1);
    assert_eq!(log.state.shard_of(node(2)), Some(ShardId(3)));
    assert_eq!(log.move_to(1, 3), Applied::Refused, "it has a replica");
}

#[test]
fn who_is_alone_and_owns_nothing_leaves_with_its_shard() {
    let mut log = cluster();
    assert_eq!(
        log.apply(slots(&[(5, 5)], None, Some(ShardId(1)))),
        Applied::Done
    );
    assert_eq!(log.apply(Entry::Leave { node: node(1) }), Applied::Refused);
    assert_eq!(log.apply(Entry::Leave { node: node(3) }), Applied::Done);
    assert!(!log.state.shards.contains_key(&ShardId(3)));
    assert_eq!(
        log.apply(Entry::Leave { node: node(3) }),
        Applied::Stale,
        "told again"
    );
}

#[test]
fn nodes_of_a_group_are_all_in_cluster_mode_or_none() {
    let mut log = cluster();
    let data = |roles| Entry::Join {
        node: node(9),
        record: NodeRecord {
            roles,
            ..NodeRecord::default()
        },
    };
    assert_eq!(log.apply(data(roles::DATA)), Applied::Refused);
    assert_eq!(log.apply(data(roles::WITNESS)), Applied::Done);
}
