//! Subscriptions, and delivery of a message to the subscribers.
//!
//! ```text
//!   publish ──► topic: workers with subscribers, and how many ──► one letter for each such worker
//!                                                                   └─► its subscribers (`worker`)
//! ```
//!
//! The tables here know workers, not clients: only a worker knows which of its clients get a
//! message. So a message costs one letter per worker, and the fan-out runs on all of them.
//!
//! Invariant: letters of a topic are posted with the topic's lock held, and a worker enters or
//! leaves a topic with that lock held, too. A worker that takes its mail under that lock has
//! everything that was published before, and nothing that is published after.
//!
//! All locks are leaves and held only briefly, so that keys may be locked during a publication.

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, RwLock};

use base::glob::{self, Case};
use engine::{Published, Push, Topic, TopicKind};

use crate::link::WorkerLink;
use crate::mail::{Address, Letter};

/// Number of parts of a table of channels, each with a lock.
const PARTS: usize = 64;

/// Length from which a message is formatted before any lock is taken.
const LONG_MESSAGE_BYTES: usize = 4096;

/// Workers with subscribers of one topic, and the number of subscribers of each.
type Members = Vec<(usize, usize)>;

/// See the module documentation.
pub struct PubSub {
    workers: OnceLock<Arc<[WorkerLink]>>,
    channels: Channels,
    shard_channels: Channels,
    patterns: RwLock<BTreeMap<Arc<[u8]>, Members>>,
    patterns_count: AtomicUsize,
}

impl Default for PubSub {
    fn default() -> Self {
        Self {
            workers: OnceLock::new(),
            channels: Channels::new(),
            shard_channels: Channels::new(),
            patterns: RwLock::default(),
            patterns_count: AtomicUsize::new(0),
        }
    }
}

impl PubSub {
    /// Sets the links to the workers; called once.
    pub fn set_workers(&self, workers: Arc<[WorkerLink]>) {
        let _already_set = self.workers.set(workers);
    }

    /// Whether there is any subscription to a channel or a pattern. Otherwise nothing has to be
    /// published.
    #[inline]
    #[must_use]
    pub fn has_subscribers(&self) -> bool {
        self.channels.count() > 0 || self.patterns_count() > 0
    }

    /// Sends a message to the subscribers of a channel and, unless it is a shard channel, of the
    /// patterns that match its name. Never blocks; keys may be locked.
    pub fn publish(&self, kind: TopicKind, channel: &[u8], message: &[u8]) -> Published {
        let table = self.channels_of(kind);
        let mut published = Published::default();
        if table.count() > 0 {
            let word: &[u8] = match kind {
                TopicKind::ShardChannel => b"smessage",
                _ => b"message",
            };
            let build = || {
                Push::new(|reply| {
                    reply.push(3);
                    reply.bulk(word);
                    reply.bulk(channel);
                    reply.bulk(message);
                })
            };
            let early = (message.len() > LONG_MESSAGE_BYTES).then(build);
            if let Some((name, members)) = table.lock(channel).get_key_value(channel) {
                let topic = Topic {
                    kind,
                    name: Arc::clone(name),
                };
                let push = early.unwrap_or_else(build);
                self.post(&topic, &push, members, &mut published);
            }
        }
        if kind == TopicKind::Channel && self.patterns_count() > 0 {
            self.publish_to_patterns(channel, message, &mut published);
        }
        published
    }

    #[cold]
    fn publish_to_patterns(&self, channel: &[u8], message: &[u8], published: &mut Published) {
        let patterns = self.patterns.read().unwrap_or_else(PoisonError::into_inner);
        let matching = patterns
            .iter()
            .filter(|(pattern, _)| glob::matches(pattern, channel, Case::Sensitive));
        for (name, members) in matching {
            let push = Push::new(|reply| {
                reply.push(4);
                reply.bulk(b"pmessage");
                reply.bulk(name);
                reply.bulk(channel);
                reply.bulk(message);
            });
            let topic = Topic {
                kind: TopicKind::Pattern,
                name: Arc::clone(name),
            };
            self.post(&topic, &push, members, published);
        }
    }

    fn post(&self, topic: &Topic, push: &Push, members: &Members, published: &mut Published) {
        let workers = self.workers.get().map_or(&[][..], |workers| workers);
        for &(worker, count) in members {
            published.receivers += count;
            if let Some(worker) = workers.get(worker) {
                worker.post_push(Letter {
                    to: Address::Topic(topic.clone()),
                    push: push.clone(),
                });
                published.is_crowded |= worker.mail.is_crowded();
            }
        }
    }

    /// Counts a new subscriber of a worker. Calls `meanwhile` while nothing can be published to the
    /// topic. Returns the topic with the shared name.
    pub fn enter(
        &self,
        kind: TopicKind,
        name: &[u8],
        worker: usize,
        meanwhile: impl FnOnce(),
    ) -> Topic {
        let name = match kind {
            TopicKind::Pattern => {
                let mut patterns = self
                    .patterns
                    .write()
                    .unwrap_or_else(PoisonError::into_inner);
                let known = patterns.get_key_value(name).map(|(name, _)| name);
                let name = known.map_or_else(|| Arc::from(name), Arc::clone);
                count_in(patterns.entry(Arc::clone(&name)).or_default(), worker);
                self.patterns_count.store(patterns.len(), Ordering::SeqCst);
                meanwhile();
                name
            }
            _ => self.channels_of(kind).enter(name, worker, meanwhile),
        };
        Topic { kind, name }
    }

    /// Uncounts a subscriber of a worker; `meanwhile` as above.
    pub fn leave(&self, topic: &Topic, worker: usize, meanwhile: impl FnOnce()) {
        if topic.kind != TopicKind::Pattern {
            let table = self.channels_of(topic.kind);
            return table.leave(&topic.name, worker, meanwhile);
        }
        let mut patterns = self
            .patterns
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        if patterns
            .get_mut(&topic.name)
            .is_some_and(|members| is_last_out(members, worker))
        {
            patterns.remove(&topic.name);
            self.patterns_count.store(patterns.len(), Ordering::SeqCst);
        }
        meanwhile();
    }

    /// Returns the number of subscribers of a channel.
    #[must_use]
    pub fn subscribers(&self, kind: TopicKind, channel: &[u8]) -> usize {
        let part = self.channels_of(kind).lock(channel);
        let members = part.get(channel).into_iter().flatten();
        members.map(|(_, count)| count).sum()
    }

    /// Returns the channels with subscribers.
    #[must_use]
    pub fn channels(&self, kind: TopicKind) -> Vec<Arc<[u8]>> {
        let parts = self.channels_of(kind).parts.iter();
        parts
            .flat_map(|part| lock(part).keys().cloned().collect::<Vec<_>>())
            .collect()
    }

    /// Returns the number of channels with subscribers.
    #[must_use]
    pub fn channels_count(&self, kind: TopicKind) -> usize {
        self.channels_of(kind).count()
    }

    /// Returns the number of different patterns with subscribers.
    #[inline]
    #[must_use]
    pub fn patterns_count(&self) -> usize {
        self.patterns_count.load(Ordering::SeqCst)
    }

    fn channels_of(&self, kind: TopicKind) -> &Channels {
        match kind {
            TopicKind::ShardChannel => &self.shard_channels,
            _ => &self.channels,
        }
    }
}

type Part = HashMap<Arc<[u8]>, Members>;

/// Channels of one kind.
struct Channels {
    hasher: RandomState,
    parts: Vec<Mutex<Part>>,
    count: AtomicUsize,
}

impl Channels {
    fn new() -> Self {
        Self {
            hasher: RandomState::new(),
            parts: (0..PARTS).map(|_| Mutex::default()).collect(),
            count: AtomicUsize::new(0),
        }
    }

    fn count(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn lock(&self, channel: &[u8]) -> MutexGuard<'_, Part> {
        let hash = self.hasher.hash_one(channel);
        let index = usize::try_from(hash % PARTS as u64).unwrap_or_default();
        lock(&self.parts[index])
    }

    fn enter(&self, channel: &[u8], worker: usize, meanwhile: impl FnOnce()) -> Arc<[u8]> {
        let mut part = self.lock(channel);
        let known = part
            .get_key_value(channel)
            .map(|(name, _)| Arc::clone(name));
        let name = known.unwrap_or_else(|| {
            self.count.fetch_add(1, Ordering::SeqCst);
            Arc::from(channel)
        });
        count_in(part.entry(Arc::clone(&name)).or_default(), worker);
        meanwhile();
        name
    }

    fn leave(&self, channel: &[u8], worker: usize, meanwhile: impl FnOnce()) {
        let mut part = self.lock(channel);
        if part
            .get_mut(channel)
            .is_some_and(|members| is_last_out(members, worker))
        {
            part.remove(channel);
            self.count.fetch_sub(1, Ordering::SeqCst);
            if part.capacity() > 4 * part.len() + 64 {
                part.shrink_to_fit();
            }
        }
        meanwhile();
    }
}

fn lock(part: &Mutex<Part>) -> MutexGuard<'_, Part> {
    part.lock().unwrap_or_else(PoisonError::into_inner)
}

fn count_in(members: &mut Members, worker: usize) {
    match members.iter_mut().find(|member| member.0 == worker) {
        Some(member) => member.1 += 1,
        None => members.push((worker, 1)),
    }
}

/// Uncounts a subscriber. Returns whether none is left.
fn is_last_out(members: &mut Members, worker: usize) -> bool {
    if let Some(member) = members.iter_mut().find(|member| member.0 == worker) {
        member.1 -= 1;
    }
    members.retain(|member| member.1 > 0);
    members.is_empty()
}
