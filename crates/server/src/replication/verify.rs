//! REPLICATION VERIFY: compares the data of a primary and its replicas, each at the same position
//! in the log.
//!
//! ```text
//!   primary                                    replica
//!   cut, digest-point frame in one step ─ log ─► digest-point frame: cut, between two pieces that are applied
//!   sums of 4,096 groups                        sums of 4,096 groups
//!         │ ◄──────────────── digest ─────────────────┘
//!   groups that differ: verify {number, groups} ─► ready; the same once more, with the keys of these groups
//! ```
//!
//! A cut is a snapshot's, so no thread waits while sums are computed. Only one snapshot can be in
//! progress: a replica that is saving answers that it is busy, and counts as not compared.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use durability::log::{Control, Log};
use persistence::digests::{Digest, GROUPS, ListedKey, Making};
use replication::link::{DigestState, Message};
use store::Store;

/// Maximum number of groups that are searched for differing keys.
const GROUPS_LISTED_MAX: usize = 32;
/// Maximum number of keys that are named.
const KEYS_NAMED_MAX: usize = 100;
/// Maximum number of bytes that are shown of a key.
const KEY_SHOWN_BYTES: usize = 128;
/// Time that replicas have for their sums.
const ANSWER_TIME: Duration = Duration::from_secs(60);
/// Number of attempts, and pause between them, while a replica or this node is busy.
const BUSY_TIMES: usize = 20;
const BUSY_PAUSE: Duration = Duration::from_millis(100);

/// What a comparison needs from the server.
pub(crate) trait VerifyHome: Send + Sync {
    /// Whether this node takes writes.
    fn is_primary(&self) -> bool;

    /// The names of the replicas that are online over the own link.
    fn online_names(&self) -> Vec<String>;

    /// Sends a message to all these replicas.
    fn broadcast(&self, message: &Message<'static>);

    /// The store to compare, or `None` if the server is gone.
    fn store(&self) -> Option<Arc<Store>>;

    /// The log that is sent to replicas.
    fn log(&self) -> Option<Arc<Log>>;

    /// Milliseconds since 1970 UTC.
    fn now_unix_ms(&self) -> u64;

    /// Whether the server is stopping.
    fn is_stopping(&self) -> bool;

    /// Writes a line to the server log.
    fn tell(&self, is_warning: bool, line: fmt::Arguments<'_>);
}

/// Result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Report {
    /// Whether a comparison is running.
    pub(crate) is_running: bool,
    /// Sequence of the last comparison; 0 before the first.
    pub(crate) sequence: u64,
    /// When it ended, in milliseconds since 1970 UTC.
    pub(crate) ended_unix_ms: u64,
    /// Number of replicas with the same data.
    pub(crate) same: usize,
    /// Number of replicas with different data.
    pub(crate) different: usize,
    /// Number of replicas that did not answer.
    pub(crate) unknown: usize,
    /// Keys that differ, each with the replica and the database.
    pub(crate) keys: Vec<String>,
}

/// A replica's answer.
#[derive(Clone, Debug)]
struct Answer {
    number: u64,
    state: DigestState,
    sums: Vec<u64>,
    keys: Vec<ListedKey>,
}

/// A message about a digest point from a replica to its primary.
#[derive(Clone, Debug)]
pub(crate) struct Saying {
    pub(crate) number: u64,
    pub(crate) sequence: u64,
    pub(crate) state: DigestState,
    pub(crate) bytes: Vec<u8>,
}

/// See the module.
#[derive(Default)]
pub(crate) struct Verifier {
    state: Mutex<State>,
    answered: Condvar,
}

#[derive(Default)]
struct State {
    report: Report,
    last_number: u64,
    /// Answers of replicas, by name.
    answers: BTreeMap<String, Answer>,
    /// On a replica: the groups whose keys are to be listed at the digest point of this number.
    wanted: Option<(u64, Vec<u16>)>,
    /// On a replica: messages to its primary.
    sayings: Vec<Saying>,
}

impl Verifier {
    /// Returns the result of the last comparison, and whether one is running.
    pub(crate) fn report(&self) -> Report {
        self.lock().report.clone()
    }

    // On a replica.

    /// Notes that the primary wants the keys of these groups at a digest point.
    pub(crate) fn note_wanted(&self, number: u64, groups: Vec<u16>) {
        let mut state = self.lock();
        state.wanted = Some((number, groups));
        state.sayings.push(Saying {
            number,
            sequence: 0,
            state: DigestState::Ready,
            bytes: Vec::new(),
        });
    }

    /// Takes the messages for the primary.
    pub(crate) fn take_sayings(&self) -> Vec<Saying> {
        std::mem::take(&mut self.lock().sayings)
    }

    /// Handles a digest point in the log. Nothing after it has been applied yet.
    #[allow(
        clippy::disallowed_methods,
        reason = "a thread that ends with the sums"
    )]
    pub(crate) fn reach(self: &Arc<Self>, store: &Arc<Store>, number: u64, sequence: u64) {
        let groups = {
            let mut state = self.lock();
            let wanted = state.wanted.take().filter(|(of, _)| *of == number);
            wanted.map(|(_, groups)| groups)
        };
        let lists = groups.is_some();
        let mut handle = store.handle();
        let begun = Making::begin(&mut handle, &groups.unwrap_or_default());
        drop(handle);
        let Ok(making) = begun else {
            return self.say(number, sequence, DigestState::Busy, Vec::new());
        };
        let (own, owned) = (Arc::clone(self), Arc::clone(store));
        let thread = std::thread::Builder::new().name("digest".into());
        let spawned = thread.spawn(move || {
            let digest = making.finish(&mut owned.handle());
            match digest {
                Some(digest) if lists => {
                    own.say(
                        number,
                        sequence,
                        DigestState::Keys,
                        keys_to_bytes(&digest.keys),
                    );
                }
                Some(digest) => {
                    let bytes = digest.sums.iter().flat_map(|sum| sum.to_le_bytes());
                    own.say(number, sequence, DigestState::Sums, bytes.collect());
                }
                None => own.say(number, sequence, DigestState::Busy, Vec::new()),
            }
        });
        if spawned.is_err() {
            store.cancel_snapshot();
            self.say(number, sequence, DigestState::Busy, Vec::new());
        }
    }

    fn say(&self, number: u64, sequence: u64, state: DigestState, bytes: Vec<u8>) {
        self.lock().sayings.push(Saying {
            number,
            sequence,
            state,
            bytes,
        });
    }

    // On a primary.

    /// Notes a replica's answer.
    pub(crate) fn answer(&self, replica: &str, number: u64, state: DigestState, bytes: &[u8]) {
        let answer = Answer {
            number,
            state,
            sums: match state {
                DigestState::Sums => sums_of(bytes),
                _ => Vec::new(),
            },
            keys: match state {
                DigestState::Keys => keys_of(bytes),
                _ => Vec::new(),
            },
        };
        self.lock().answers.insert(replica.to_owned(), answer);
        self.answered.notify_all();
    }

    /// Begins a comparison on a thread of its own.
    ///
    /// # Errors
    /// Why it cannot begin.
    #[allow(
        clippy::disallowed_methods,
        reason = "a thread that ends with the comparison"
    )]
    pub(crate) fn begin(self: &Arc<Self>, home: Arc<dyn VerifyHome>) -> Result<(), &'static str> {
        if !home.is_primary() {
            return Err("ERR only a primary compares itself with its replicas");
        }
        if home.online_names().is_empty() {
            return Err("ERR there is no replica by the own link to compare with");
        }
        {
            let mut state = self.lock();
            if state.report.is_running {
                return Err("ERR a comparison goes on already");
            }
            state.report.is_running = true;
        }
        let own = Arc::clone(self);
        let thread = std::thread::Builder::new().name("verify".into());
        let spawned = thread.spawn({
            let own = Arc::clone(&own);
            move || own.run(&*home)
        });
        if spawned.is_err() {
            own.lock().report.is_running = false;
            return Err("ERR there is no thread for a comparison");
        }
        Ok(())
    }

    fn run(&self, home: &dyn VerifyHome) {
        let names = home.online_names();
        let mut report = Report::default();
        if let Some((number, sequence, own)) = self.point(home, &[]) {
            report.sequence = sequence;
            let answers = self.collect(number, &names, &[DigestState::Sums, DigestState::Busy]);
            let mut differing = BTreeMap::new();
            for name in &names {
                match answers.get(name) {
                    Some(answer) if answer.state == DigestState::Sums => {
                        let groups = differing_groups(&own.sums, &answer.sums);
                        if groups.is_empty() {
                            report.same += 1;
                        } else {
                            differing.insert(name.clone(), groups);
                        }
                    }
                    _ => report.unknown += 1,
                }
            }
            report.different = differing.len();
            if !differing.is_empty() {
                report.keys = self.name_keys(home, &differing);
            }
        } else {
            report.unknown = names.len();
        }
        report.ended_unix_ms = home.now_unix_ms();
        tell(home, &report);
        self.lock().report = report;
    }

    /// Makes a cut and a digest point in the log in one step. Returns its number, its sequence and
    /// this node's digest there.
    fn point(&self, home: &dyn VerifyHome, groups: &[u16]) -> Option<(u64, u64, Digest)> {
        let number = self.next_number(home);
        self.point_as(home, number, groups)
    }

    fn next_number(&self, home: &dyn VerifyHome) -> u64 {
        let mut state = self.lock();
        state.last_number = (state.last_number + 1).max(home.now_unix_ms());
        state.last_number
    }

    fn point_as(
        &self,
        home: &dyn VerifyHome,
        number: u64,
        groups: &[u16],
    ) -> Option<(u64, u64, Digest)> {
        let (log, store) = (home.log()?, home.store()?);
        let mut handle = store.handle();
        for _ in 0..BUSY_TIMES {
            let turn = store.batch_turn();
            // No other thread is in the store: it has exactly what the log has.
            let begun = handle.exclusive(|handle| {
                if !home.is_primary() {
                    return None;
                }
                let making = Making::begin(handle, groups).ok()?;
                let mut appender = log.appender();
                appender.set_time(home.now_unix_ms());
                appender.control(&Control::DigestPoint { number });
                Some((making, appender.end()))
            });
            drop(turn);
            if let Some((making, sequence)) = begun {
                let _fault = log.write_out(sequence);
                return Some((number, sequence, making.finish(&mut handle)?));
            }
            if home.is_stopping() {
                return None;
            }
            std::thread::sleep(BUSY_PAUSE);
        }
        None
    }

    /// Waits for the replicas' answers about a digest point.
    fn collect(
        &self,
        number: u64,
        names: &[String],
        wanted: &[DigestState],
    ) -> BTreeMap<String, Answer> {
        let is_there = |state: &State, name: &String| {
            state
                .answers
                .get(name)
                .is_some_and(|it| it.number == number && wanted.contains(&it.state))
        };
        let waited = self
            .answered
            .wait_timeout_while(self.lock(), ANSWER_TIME, |state| {
                !names.iter().all(|name| is_there(state, name))
            });
        let (mut state, _) = waited.unwrap_or_else(PoisonError::into_inner);
        let answers = std::mem::take(&mut state.answers);
        let of_this = answers
            .into_iter()
            .filter(|(_, answer)| answer.number == number && wanted.contains(&answer.state));
        of_this.collect()
    }

    /// Compares again, with the keys of the groups that differ.
    fn name_keys(
        &self,
        home: &dyn VerifyHome,
        differing: &BTreeMap<String, Vec<u16>>,
    ) -> Vec<String> {
        let mut groups: Vec<u16> = differing.values().flatten().copied().collect();
        groups.sort_unstable();
        groups.dedup();
        groups.truncate(GROUPS_LISTED_MAX);
        let names: Vec<String> = differing.keys().cloned().collect();
        let number = self.next_number(home);
        let wish = Message::Verify {
            number,
            groups: groups.clone(),
        };
        home.broadcast(&wish);
        let ready = self.collect(number, &names, &[DigestState::Ready]);
        let names: Vec<String> = ready.into_keys().collect();
        let Some((_, _, own)) = self.point_as(home, number, &groups) else {
            return Vec::new();
        };
        let answers = self.collect(number, &names, &[DigestState::Keys, DigestState::Busy]);
        let mut named = Vec::new();
        for (name, answer) in answers {
            for key in differing_keys(own.keys.clone(), answer.keys) {
                if named.len() < KEYS_NAMED_MAX {
                    let shown = &key.key[..key.key.len().min(KEY_SHOWN_BYTES)];
                    let shown = shown.escape_ascii();
                    named.push(format!("{name} {} {shown}", key.database));
                }
            }
        }
        named
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl fmt::Debug for Verifier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Verifier")
            .field("report", &self.report())
            .finish_non_exhaustive()
    }
}

fn tell(home: &dyn VerifyHome, report: &Report) {
    let Report {
        sequence,
        same,
        different,
        unknown,
        keys,
        ..
    } = report;
    if *different == 0 {
        home.tell(
            false,
            format_args!(
                "Compared with replicas at sequence {sequence}: {same} hold the same, {unknown} did not say"
            ),
        );
        return;
    }
    let first = keys.first().map_or("none is named", String::as_str);
    home.tell(true, format_args!(
        "Compared with replicas at sequence {sequence}: {different} hold something else, {same} the same, {unknown} did \
         not say; {} keys differ at least, the first (replica, database, key): {first}",
        keys.len()
    ));
}

fn differing_groups(own: &[u64], theirs: &[u64]) -> Vec<u16> {
    let both = (0_u16..).zip(own.iter().zip(theirs));
    let differing = both.filter(|(_, (own, theirs))| own != theirs);
    let mut groups: Vec<u16> = differing.map(|(group, _)| group).collect();
    if theirs.len() != own.len() {
        groups.push(0);
    }
    groups
}

/// Returns keys that only one side has, or whose records differ.
fn differing_keys(mut own: Vec<ListedKey>, mut theirs: Vec<ListedKey>) -> Vec<ListedKey> {
    own.sort_unstable();
    theirs.sort_unstable();
    let is_in = |key: &ListedKey, all: &[ListedKey]| all.binary_search(key).is_ok();
    let mut all: Vec<ListedKey> = own
        .iter()
        .filter(|key| !is_in(key, &theirs))
        .chain(theirs.iter().filter(|key| !is_in(key, &own)))
        .cloned()
        .collect();
    all.sort_unstable();
    all.dedup_by(|one, other| (one.database, &one.key) == (other.database, &other.key));
    all
}

fn sums_of(bytes: &[u8]) -> Vec<u64> {
    let (sums, _) = bytes.as_chunks::<8>();
    let sums = sums.iter().take(GROUPS);
    sums.map(|sum| u64::from_le_bytes(*sum)).collect()
}

fn keys_to_bytes(keys: &[ListedKey]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for ListedKey { database, key, sum } in keys {
        bytes.extend_from_slice(&database.to_le_bytes());
        bytes.extend_from_slice(&sum.to_le_bytes());
        let length = u32::try_from(key.len()).unwrap_or(u32::MAX);
        bytes.extend_from_slice(&length.to_le_bytes());
        bytes.extend_from_slice(key);
    }
    bytes
}

/// Decodes keys until the end or the first malformed one.
fn keys_of(mut bytes: &[u8]) -> Vec<ListedKey> {
    let mut keys = Vec::new();
    let next = |bytes: &mut &[u8]| {
        let (database, rest) = bytes.split_first_chunk::<2>()?;
        let (sum, rest) = rest.split_first_chunk::<8>()?;
        let (length, rest) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_le_bytes(*length)).ok()?;
        let (key, rest) = rest.split_at_checked(length)?;
        *bytes = rest;
        Some(ListedKey {
            database: u16::from_le_bytes(*database),
            key: key.to_vec(),
            sum: u64::from_le_bytes(*sum),
        })
    };
    while let Some(key) = next(&mut bytes) {
        keys.push(key);
    }
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(key: &str, sum: u64) -> ListedKey {
        ListedKey {
            database: 3,
            key: key.as_bytes().to_vec(),
            sum,
        }
    }

    #[test]
    fn what_differs_is_found_from_both_sides() {
        assert_eq!(differing_groups(&[1, 2, 3], &[1, 5, 4]), [1, 2]);
        assert!(differing_groups(&[1, 2], &[1, 2]).is_empty());
        assert_eq!(differing_groups(&[1, 2], &[1]), [0]);
        let own = vec![key("a", 1), key("b", 2), key("c", 3)];
        let theirs = vec![key("d", 4), key("c", 3), key("b", 9)];
        let found: Vec<_> = differing_keys(own, theirs)
            .into_iter()
            .map(|it| it.key)
            .collect();
        assert_eq!(found, [b"a".to_vec(), b"b".to_vec(), b"d".to_vec()]);
    }

    #[test]
    fn keys_come_back_from_their_bytes_as_far_as_they_are_whole() {
        let keys = vec![key("", 1), key("long enough", u64::MAX)];
        let bytes = keys_to_bytes(&keys);
        assert_eq!(keys_of(&bytes), keys);
        for cut in 0..bytes.len() {
            assert!(keys_of(&bytes[..cut]).len() < 2);
        }
    }
}
