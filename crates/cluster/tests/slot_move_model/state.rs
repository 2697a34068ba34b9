//! The state of the model: two nodes, each the primary and only copy of a shard, one slot, a link
//! for a move each way, and the group with its proposals.

use std::collections::{BTreeMap, VecDeque};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use cluster::entry::{ShardChange, SlotRange};
use cluster::moves::Ends;
use cluster::state::{FEATURE_LEVEL, roles};
use cluster::{
    Applied, ControlState, Entry, LogEnd, NodeId, NodeRecord, Proposal, RequestId, ShardId,
};

/// The slot that moves.
pub(crate) const SLOT: &[SlotRange] = &[(7, 7)];
pub(crate) const NODES: [NodeId; 2] = [NodeId([1; 20]), NodeId([2; 20])];
pub(crate) const SHARDS: [ShardId; 2] = [ShardId(1), ShardId(2)];
/// The slot's initial content.
pub(crate) const FIRST_WRITE: u8 = 0;

/// The state of the group, or a node's view of it. Two are equal here if their slot and shards are.
#[derive(Clone)]
pub(crate) struct View(Arc<ControlState>);

impl View {
    /// Returns a state with two nodes in a cluster, the first of which has the slot.
    pub(crate) fn first() -> Self {
        let mut state = ControlState::default();
        let record = NodeRecord {
            roles: roles::DATA | roles::CLUSTER,
            feature_level: FEATURE_LEVEL,
            ..NodeRecord::default()
        };
        let joins = NODES.map(|node| Entry::Join {
            node,
            record: record.clone(),
        });
        let shards = [0, 1].map(|at| Entry::Shard {
            shard: SHARDS[at],
            expected_epoch: 0,
            change: ShardChange::Create {
                primary: NODES[at],
                end: LogEnd::default(),
                is_quorum: false,
            },
        });
        let slots = Entry::Slots {
            ranges: SLOT.to_vec(),
            expected: None,
            owner: Some(SHARDS[0]),
        };
        let entries = joins.into_iter().chain(shards).chain([slots]);
        for (index, entry) in (1_u8..).zip(entries) {
            let request = RequestId([200 + index; 16]);
            let applied = state.apply(index.into(), &Proposal { request, entry });
            assert_eq!(applied, Applied::Done);
        }
        Self(Arc::new(state))
    }

    pub(crate) fn state(&self) -> &ControlState {
        &self.0
    }

    /// Returns the node that has the slot.
    pub(crate) fn owner(&self) -> Option<usize> {
        let owner = self.0.slots.owner(SLOT[0].0)?;
        SHARDS.iter().position(|shard| *shard == owner)
    }

    /// Returns the term and epoch of a node's shard.
    pub(crate) fn shard(&self, node: usize) -> (u64, u64) {
        let shard = self.0.shards.get(&SHARDS[node]);
        shard.map_or((0, 0), |shard| (shard.term, shard.epoch))
    }

    pub(crate) fn index(&self) -> u64 {
        self.0.index
    }

    /// Commits an entry.
    pub(crate) fn apply(&mut self, request: u8, entry: Entry) -> Applied {
        let request = RequestId([request; 16]);
        let mut state = ControlState::clone(&self.0);
        let applied = state.apply(state.index + 1, &Proposal { request, entry });
        self.0 = Arc::new(state);
        applied
    }

    fn key(&self) -> impl Hash + PartialEq {
        (self.index(), self.owner(), self.shard(0), self.shard(1))
    }
}

impl Hash for View {
    fn hash<H: Hasher>(&self, hasher: &mut H) {
        self.key().hash(hasher);
    }
}

impl PartialEq for View {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for View {}

impl std::fmt::Debug for View {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (owner, shards) = (self.owner(), (self.shard(0), self.shard(1)));
        write!(f, "index {}, owner {owner:?}, {shards:?}", self.index())
    }
}

/// Messages of the source, ...
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Message {
    Begin,
    Copy(Vec<u8>),
    Push(u8),
    Mark,
    Moved,
}

/// ... and of the target.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Reply {
    Ready,
    Done,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Link {
    pub(crate) is_up: bool,
    pub(crate) there: VecDeque<Message>,
    pub(crate) back: VecDeque<Reply>,
}

/// An effect about the slot in the source's log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Effect {
    Push(u8),
    Flush,
}

/// Which requests about the slot wait at its source.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Leaving {
    #[default]
    Nothing,
    Writes,
    All,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Stage {
    /// The target prepares.
    Begun,
    /// The target is ready; the log is read from here.
    Copying,
    /// The content at the cut was sent; the log is sent behind it.
    CatchingUp,
    /// Writes wait.
    Pausing,
    /// The remaining log was sent, and the mark.
    Marked,
    /// The answer to the mark took too long: writes continue.
    Late,
    /// All requests wait.
    Given,
    /// No database was flushed since the mark was sent.
    Looked,
    /// The entry was proposed.
    Proposed(u8),
    /// It was applied.
    Moved,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Source {
    pub(crate) stage: Stage,
    pub(crate) ends: Ends,
    /// How much of the log was sent, or is in the copy.
    pub(crate) sent: usize,
    pub(crate) flushes: u8,
}

/// State of the end that gets the slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum TakingIn {
    Staging {
        flushes: u8,
    },
    /// The mark was answered: the slot may become this node's at any time.
    Handed {
        flushes: u8,
    },
    /// The source reported that it is.
    Told,
    /// The link has ended: the outcome is unknown.
    Unknown,
    /// The group was asked to end all earlier moves.
    Ending(u8),
}

/// State of the removal of keys that belong to another node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Remover {
    /// The slot was lost.
    Wanted,
    /// The group was asked to end all earlier moves.
    Ending(u8),
    /// The slot's owner is known.
    Looked { is_lost: bool },
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Node {
    pub(crate) view: View,
    pub(crate) office: u64,
    pub(crate) has_lease: bool,
    /// The term of the last frame of its log.
    pub(crate) log_term: u64,
    /// The slot's content here: writes append to it.
    pub(crate) data: Vec<u8>,
    /// How much of it outlives the process.
    pub(crate) durable: usize,
    /// A write that was admitted and has not begun.
    pub(crate) admitted: Option<u8>,
    pub(crate) leaving: Leaving,
    /// Whether no database may be flushed: the keys are here, and the slot may be this node's.
    pub(crate) is_taking: bool,
    pub(crate) flushes: u8,
    /// Effects on the slot that were logged since the move that reads them began.
    pub(crate) log: Vec<Effect>,
    pub(crate) source: Option<Source>,
    pub(crate) taking_in: Option<TakingIn>,
    pub(crate) remover: Option<Remover>,
}

impl Node {
    fn new(view: &View, at: usize, data: Vec<u8>) -> Self {
        let term = view.shard(at).0;
        Self {
            view: view.clone(),
            office: term,
            has_lease: true,
            log_term: term,
            durable: data.len(),
            data,
            admitted: None,
            leaving: Leaving::Nothing,
            is_taking: false,
            flushes: 0,
            log: Vec::new(),
            source: None,
            taking_in: None,
            remover: None,
        }
    }

    /// Ends the process and starts it from what is on disk: some state of the group, and the log.
    pub(crate) fn restart(&mut self, at: usize, known: &View) {
        let mut data = std::mem::take(&mut self.data);
        data.truncate(self.durable);
        let log_term = self.log_term;
        *self = Self {
            office: 0,
            has_lease: false,
            log_term,
            ..Self::new(known, at, data)
        };
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Ask {
    Move(Ends),
    EndMoves(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Asked {
    pub(crate) ask: Ask,
    pub(crate) is_waited_for: bool,
    /// Whether the entry changed the state.
    pub(crate) answer: Option<bool>,
}

/// The events that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Budget {
    pub(crate) attempts: u8,
    pub(crate) writes: u8,
    pub(crate) flushes: u8,
    pub(crate) restarts: u8,
    pub(crate) lost_leases: u8,
    pub(crate) promotions: u8,
    /// Broken links, and cancelled jobs.
    pub(crate) breaks: u8,
    pub(crate) late_marks: u8,
    /// Removals that no operator asked for.
    pub(crate) cleanings: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    pub(crate) group: View,
    pub(crate) asked: BTreeMap<u8, Asked>,
    pub(crate) requests: u8,
    pub(crate) nodes: [Node; 2],
    /// The link of the move whose source is that node.
    pub(crate) links: [Link; 2],
    /// The slot's content according to acknowledged writes.
    pub(crate) truth: Vec<u8>,
    pub(crate) budget: Budget,
    /// Whether the owner of the slot removed its keys.
    pub(crate) removed_own: bool,
    /// Whether a node that does not own the slot acknowledged a write.
    pub(crate) written_elsewhere: bool,
}

impl State {
    pub(crate) fn first(first: &View, budget: Budget) -> Self {
        let truth = vec![FIRST_WRITE];
        Self {
            group: first.clone(),
            asked: BTreeMap::new(),
            requests: 0,
            nodes: [
                Node::new(first, 0, truth.clone()),
                Node::new(first, 1, Vec::new()),
            ],
            links: [Link::default(), Link::default()],
            truth,
            budget,
            removed_own: false,
            written_elsewhere: false,
        }
    }

    pub(crate) fn propose(&mut self, ask: Ask) -> u8 {
        self.requests += 1;
        let asked = Asked {
            ask,
            is_waited_for: true,
            answer: None,
        };
        self.asked.insert(self.requests, asked);
        self.requests
    }

    /// Takes the answer to a request: no request waits for it afterwards.
    pub(crate) fn answer(&mut self, request: u8) -> Option<bool> {
        let answer = self.asked.get(&request)?.answer?;
        self.asked.remove(&request);
        Some(answer)
    }
}
