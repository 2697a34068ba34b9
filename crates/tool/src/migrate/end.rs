//! One end of a migration: a server, or the primaries of a cluster, each key at the node that owns
//! it.
//!
//! What must stay true
//!  1. A request that may have been executed is repeated: only requests that permit this are sent
//!     here (DUMP, RESTORE with REPLACE, DEL).
//!  2. An end whose slot owners, process or connection changed is *disturbed* until the caller has
//!     taken note: meanwhile events, cursors and acknowledged writes may have been lost.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::Write as _;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};
use protocol::Value;

use super::link::Link;
use super::slots::{Sent, Slots, sent};
use crate::cli::keys::{Step, scan_step, together};
use crate::endpoint::{Address, Endpoint, info_field};
use crate::error::BenchError;

/// How long nodes are asked again before giving up.
const GIVE_UP_NS: u64 = 60_000_000_000;
/// Pause between two attempts.
const PAUSE: Duration = Duration::from_millis(50);

/// A request about one key.
pub(super) type Request<'r> = Vec<&'r [u8]>;

/// The present state of a server.
pub(super) struct Looked {
    pub(super) process: String,
    /// Its databases with keys, and their numbers.
    pub(super) keyspace: Vec<(u32, u64)>,
}

/// See the module.
pub(super) struct End {
    endpoint: Endpoint,
    /// The owners of slots, or `None` for a server without cluster mode.
    slots: Option<Slots>,
    links: HashMap<Address, Link>,
    /// Addresses that have answered.
    met: BTreeSet<Address>,
    is_disturbed: bool,
    is_quiet: bool,
    pub(super) clock: SystemClock,
    /// Whether it reports deadlines as times, otherwise as remaining time.
    pub(super) tells_deadlines: bool,
    /// Whether it reports deadlines of members besides their values.
    pub(super) tells_member_deadlines: bool,
}

impl End {
    /// Asks the server at an endpoint for its properties.
    pub(super) fn connect(endpoint: &Endpoint, is_quiet: bool) -> Result<Self, BenchError> {
        let mut link = Link::connect(endpoint)?;
        let info = link.session.info("cluster")?;
        let slots = match info_field(&info, "cluster_enabled") {
            Some("1") => Some(ask_slots(&mut link, &endpoint.address)?),
            _ => None,
        };
        let tells_deadlines = link.tells_deadlines;
        let tells_member_deadlines = link.tells_member_deadlines;
        let mut end = Self {
            endpoint: endpoint.clone(),
            slots,
            links: HashMap::new(),
            met: BTreeSet::new(),
            is_disturbed: false,
            is_quiet,
            clock: SystemClock::new(),
            tells_deadlines,
            tells_member_deadlines,
        };
        if end.slots.is_none() {
            end.take_up(&endpoint.address, link);
        }
        Ok(end)
    }

    pub(super) fn is_cluster(&self) -> bool {
        self.slots.is_some()
    }

    /// Returns whether it was disturbed since the last call.
    pub(super) fn take_disturbed(&mut self) -> bool {
        std::mem::take(&mut self.is_disturbed)
    }

    /// Returns the servers that have keys.
    pub(super) fn addresses(&self) -> Vec<Address> {
        match &self.slots {
            Some(slots) => slots.nodes().to_vec(),
            None => vec![self.endpoint.address.clone()],
        }
    }

    /// Returns the endpoint of one of its servers.
    pub(super) fn endpoint_of(&self, address: &Address) -> Endpoint {
        Endpoint {
            address: address.clone(),
            ..self.endpoint.clone()
        }
    }

    /// Returns the connection to one of its servers.
    pub(super) fn link(&mut self, address: &Address) -> Result<&mut Link, BenchError> {
        if !self.links.contains_key(address) {
            let link = Link::connect(&self.endpoint_of(address))?;
            self.take_up(address, link);
        }
        let lost = std::io::Error::from(std::io::ErrorKind::NotConnected);
        let link = self.links.get_mut(address);
        link.ok_or_else(|| BenchError::Connection(address.clone(), lost))
    }

    fn take_up(&mut self, address: &Address, link: Link) {
        let is_new = self.met.insert(address.clone());
        // A lost connection may have lost events and replies with it, whichever process answers
        // now.
        self.is_disturbed |= !is_new;
        self.links.insert(address.clone(), link);
    }

    /// Drops the connection to a server, with all that it may have had to report.
    fn lose(&mut self, address: &Address) {
        self.is_disturbed |= self.links.remove(address).is_some();
    }

    /// Like [`End::lose`], for a server with reports that no other server has: they are unknown,
    /// whether it was connected or not.
    fn miss(&mut self, address: &Address) {
        self.lose(address);
        self.is_disturbed = true;
    }

    /// Whether the server at an address has answered before.
    pub(super) fn is_met(&self, address: &Address) -> bool {
        self.met.contains(address)
    }

    /// Collects a report from each server.
    pub(super) fn of_all<T>(
        &mut self,
        mut ask: impl FnMut(&mut Link) -> Result<T, BenchError>,
    ) -> Result<Vec<T>, BenchError> {
        let begin_ns = self.clock.monotonic_ns();
        loop {
            let addresses = self.addresses();
            let told: Result<Vec<T>, BenchError> = addresses
                .iter()
                .map(|address| {
                    let told = ask(self.link(address)?);
                    if told.is_err() {
                        self.lose(address);
                    }
                    told
                })
                .collect();
            match told {
                Err(error @ BenchError::Connection(..)) => self.recover(&error, begin_ns)?,
                told => return told,
            }
        }
    }

    /// Returns the databases with keys, with the numbers of all servers added up.
    pub(super) fn keyspace(&mut self) -> Result<BTreeMap<u32, u64>, BenchError> {
        let told = self.of_all(|link| link.session.keyspace())?;
        let mut keyspace = BTreeMap::new();
        for (number, keys) in told.into_iter().flatten() {
            *keyspace.entry(number).or_default() += keys;
        }
        Ok(keyspace)
    }

    /// Returns a server's process and its databases with keys, or `None` if it was lost.
    pub(super) fn look(&mut self, address: &Address) -> Result<Option<Looked>, BenchError> {
        let looked = self.link(address).and_then(|link| {
            let keyspace = link.session.keyspace()?;
            Ok(Looked {
                process: link.process.clone(),
                keyspace,
            })
        });
        match looked {
            Err(BenchError::Connection(..)) => {
                self.miss(address);
                Ok(None)
            }
            looked => looked.map(Some),
        }
    }

    /// Like [`End::look`], for a server that may be unavailable for a while. `None` if it no longer
    /// belongs to this end.
    pub(super) fn look_patiently(
        &mut self,
        address: &Address,
    ) -> Result<Option<Looked>, BenchError> {
        let begin_ns = self.clock.monotonic_ns();
        loop {
            if let Some(looked) = self.look(address)? {
                return Ok(Some(looked));
            }
            let lost = std::io::ErrorKind::NotConnected.into();
            self.recover(&BenchError::Connection(address.clone(), lost), begin_ns)?;
            if !self.addresses().contains(address) {
                return Ok(None);
            }
        }
    }

    /// Makes a step of SCAN at one server, or returns `None` if it was lost.
    pub(super) fn scan(
        &mut self,
        address: &Address,
        process: &str,
        database: u32,
        walk: (&[u8], Option<&str>, u64),
    ) -> Result<Option<Step>, BenchError> {
        let (cursor, pattern, count) = walk;
        let step = self.link(address).and_then(|link| {
            if link.process != process {
                return Ok(None);
            }
            link.select(database)?;
            scan_step(&mut link.session, cursor, pattern, None, count).map(Some)
        });
        match step {
            Err(BenchError::Connection(..)) => {
                self.miss(address);
                Ok(None)
            }
            step => step,
        }
    }

    /// Sends each request to the owner of its key. Returns the replies in the order of the
    /// requests. Redirected or unanswered requests are repeated.
    pub(super) fn ask(
        &mut self,
        database: u32,
        keys: &[&[u8]],
        requests: &[Request<'_>],
    ) -> Result<Vec<Value>, BenchError> {
        let begin_ns = self.clock.monotonic_ns();
        let mut replies: Vec<Option<Value>> = vec![None; requests.len()];
        let mut open: Vec<usize> = (0..requests.len()).collect();
        loop {
            let mut again: Vec<usize> = Vec::new();
            let mut reason = None;
            for (address, wanted) in self.by_owner(keys, &open) {
                let Some(address) = address else {
                    again.extend(wanted);
                    continue;
                };
                let some: Vec<Request<'_>> =
                    wanted.iter().map(|at| requests[*at].clone()).collect();
                match self.ask_one(&address, database, &some) {
                    Ok(answers) => {
                        for (at, answer) in wanted.into_iter().zip(answers) {
                            if let Some(why) = self.passing(&answer, &address) {
                                again.push(at);
                                reason = Some(why);
                            }
                            replies[at] = Some(answer);
                        }
                    }
                    Err(error @ BenchError::Connection(..)) => {
                        self.lose(&address);
                        again.extend(wanted);
                        reason = Some(error);
                    }
                    Err(error) => return Err(error),
                }
            }
            if again.is_empty() {
                let whole: Option<Vec<Value>> = replies.into_iter().collect();
                return Ok(whole.unwrap_or_default());
            }
            let reason = reason.unwrap_or_else(|| BenchError::Refused {
                request: "a key".to_owned(),
                reply: "no node has its hash slot".to_owned(),
            });
            self.recover(&reason, begin_ns)?;
            open = again;
        }
    }

    /// Returns why a request has to be repeated, if it does: without a cluster no other server has
    /// the key.
    fn passing(&self, answer: &Value, address: &Address) -> Option<BenchError> {
        let Value::Error(text) = answer else {
            return None;
        };
        let is_passing = self.is_cluster() || text.starts_with(b"LOADING");
        let is_passing = is_passing && sent(answer, address) == Some(Sent::Again);
        is_passing.then(|| BenchError::Refused {
            request: format!("a key at {address}"),
            reply: String::from_utf8_lossy(text).into_owned(),
        })
    }

    /// Groups the requests by server, with `None` for slots without an owner.
    fn by_owner(&self, keys: &[&[u8]], open: &[usize]) -> Vec<(Option<Address>, Vec<usize>)> {
        let mut groups: Vec<(Option<Address>, Vec<usize>)> = Vec::new();
        for at in open {
            let owner = match &self.slots {
                Some(slots) => slots.owner(keys[*at]),
                None => Some(&self.endpoint.address),
            };
            match groups.iter_mut().find(|(known, _)| known.as_ref() == owner) {
                Some((_, group)) => group.push(*at),
                None => groups.push((owner.cloned(), vec![*at])),
            }
        }
        groups
    }

    fn ask_one(
        &mut self,
        address: &Address,
        database: u32,
        requests: &[Request<'_>],
    ) -> Result<Vec<Value>, BenchError> {
        let link = self.link(address)?;
        link.select(database)?;
        let mut answers = together(&mut link.session, requests)?;
        for (answer, request) in answers.iter_mut().zip(requests) {
            if let Some(Sent::Ask(there)) = sent(answer, address) {
                let asked = self.ask_there(&there, request);
                // If that server is lost, the request is repeated at the slot's owner.
                *answer = asked.unwrap_or_else(|_| Value::Error(b"TRYAGAIN".to_vec()));
            }
        }
        Ok(answers)
    }

    /// Sends a request to the node that is importing the slot.
    fn ask_there(&mut self, address: &Address, words: &Request<'_>) -> Result<Value, BenchError> {
        let asked = self.link(address).and_then(|link| {
            let both = together(&mut link.session, &[vec![b"ASKING"], words.clone()])?;
            Ok(both.into_iter().next_back().unwrap_or(Value::Null))
        });
        if asked.is_err() {
            self.lose(address);
        }
        asked
    }

    /// After a pause, asks for the slot owners. Fails if that has gone on for too long.
    pub(super) fn recover(&mut self, reason: &BenchError, begin_ns: u64) -> Result<(), BenchError> {
        let elapsed_ns = self.clock.monotonic_ns().saturating_sub(begin_ns);
        if elapsed_ns > GIVE_UP_NS {
            return Err(BenchError::Refused {
                request: format!("after {} s", elapsed_ns / 1_000_000_000),
                reply: reason.to_string(),
            });
        }
        if !self.is_quiet && elapsed_ns < 1_000_000 {
            // Without standard error the message is lost.
            let _told = writeln!(std::io::stderr(), "asks again: {reason}");
        }
        std::thread::sleep(PAUSE);
        if self.slots.is_some() {
            // The next attempt shows whether any node answered.
            self.refresh();
        }
        Ok(())
    }

    /// Asks the first node that answers for the slot owners.
    pub(super) fn refresh(&mut self) {
        let mut addresses = self.addresses();
        addresses.push(self.endpoint.address.clone());
        for address in addresses {
            let slots = self
                .link(&address)
                .and_then(|link| ask_slots(link, &address));
            let Ok(slots) = slots else {
                self.links.remove(&address);
                continue;
            };
            // A cluster that briefly has no owners keeps the previous ones.
            if slots.nodes().is_empty() {
                continue;
            }
            self.is_disturbed |= self.slots.as_ref() != Some(&slots);
            self.slots = Some(slots);
            return;
        }
    }

    pub(super) fn now_ns(&self) -> u64 {
        self.clock.monotonic_ns()
    }
}

fn ask_slots(link: &mut Link, asked: &Address) -> Result<Slots, BenchError> {
    let reply = link
        .session
        .demand("CLUSTER SLOTS", &["CLUSTER", "SLOTS"])?;
    Slots::read(&reply, asked)
}
