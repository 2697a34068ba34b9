//! Decides how a request of a forwarding client is handled, by its row and by the owners of its
//! slots.

use std::collections::BTreeMap;

use base::hash_slot;
use base::number::parse_u64;
use engine::engine::{check, resolve};
use engine::hash_slots::Routes;
use engine::key_query::{Whose, whose};
use engine::spec::{InTransaction, Scatter};
use engine::{CommandSpec, Flags, Group, Session, Table, key_places};
use protocol::{Request, encode_arguments};

use super::merge::{How, Merge, taken_apart};
use super::window::{Aim, Part};

/// See the module.
#[derive(Debug)]
pub(crate) enum Way {
    /// The engine runs it, or refuses it.
    Own(Own),
    /// It is refused with this error.
    Refused(&'static str),
    /// One node answers it. The bytes to send are at the end of the buffer.
    One(Sent, Part),
    /// Several nodes answer it.
    Several(Sent, Merge),
}

/// Properties of a request that the engine runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Own {
    /// Whether it may wait for keys: then nothing may be in flight before it.
    pub(crate) blocks: bool,
    /// Whether it ends watching keys at another node.
    pub(crate) ends_watch: bool,
}

impl Own {
    /// A request without special properties.
    pub(crate) const PLAIN: Self = Self {
        blocks: false,
        ends_watch: false,
    };
}

impl Way {
    /// Whether it may wait for keys.
    pub(crate) fn blocks(&self) -> bool {
        match self {
            Self::Own(own) => own.blocks,
            Self::One(sent, _) => sent.blocks,
            Self::Refused(_) | Self::Several(..) => false,
        }
    }
}

/// Properties of a request that is sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Sent {
    pub(crate) is_read: bool,
    pub(crate) blocks: bool,
    /// Whether it watches keys there.
    pub(crate) watches: bool,
    /// Whether it ends the client's transaction.
    pub(crate) is_exec: bool,
    /// Whether it may take long at its node or concerns the session there: other clients' requests
    /// must not wait for it.
    pub(crate) needs_own: bool,
}

/// Input for handling requests.
pub(crate) struct Rules<'a> {
    pub(crate) table: &'static Table,
    pub(crate) routes: &'a Routes,
    /// Whether writes to keys of several slots are sent in parts.
    pub(crate) splits_writes: bool,
    /// The other node where keys are watched, if any.
    pub(crate) watched: Option<[u8; 20]>,
}

const CROSS_SLOT: &str = "CROSSSLOT Keys in request don't hash to the same slot";
const NOT_AS_WATCHED: &str =
    "CROSSSLOT Keys in request don't hash to the same slot as the watched ones";
const SHARD_CHANNEL: &str =
    "ERR a shard channel of another node cannot be subscribed to by a connection that forwards";

impl Rules<'_> {
    /// Decides how a request is handled, and appends what is to be sent to `bytes`. `raw` is the
    /// request as received.
    pub(crate) fn way(
        &self,
        session: &Session,
        request: Request<'_>,
        raw: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Way {
        let plain = Way::Own(Own::default());
        let found = self.table.find(request.name());
        let resolved = found.map(|found| resolve(self.table, found, request));
        let Some(Ok((index, spec, _))) = resolved else {
            return plain;
        };
        if check(self.table, (index, spec), request, session).is_err() {
            return plain;
        }
        if spec.in_transaction == InTransaction::Runs {
            return self.exec(session, spec, request, raw, bytes);
        }
        let own = Own {
            blocks: spec.flags.has(Flags::BLOCKING),
            ends_watch: ends_watch(spec),
        };
        if session.transaction.is_some() {
            return Way::Own(Own {
                blocks: false,
                ..own
            });
        }
        let watches = spec.in_transaction == InTransaction::Refuses;
        let is_brief = spec.flags.has(Flags::FAST) || spec.flags.has(Flags::BRIEF);
        let sent = Sent {
            is_read: spec.flags.has(Flags::READONLY),
            blocks: own.blocks,
            watches,
            is_exec: false,
            needs_own: own.blocks || watches || !is_brief,
        };
        if spec.keys.is_empty() {
            return match self.of_all(spec, request, raw, bytes) {
                Some(Ok(merge)) => Way::Several(sent, merge),
                Some(Err(text)) => Way::Refused(text),
                None => Way::Own(own),
            };
        }
        match whose(session, self.routes, self.table, spec, request) {
            Whose::Own if sent.watches && self.watched.is_some() => Way::Refused(NOT_AS_WATCHED),
            Whose::Own => Way::Own(own),
            Whose::Other { .. } | Whose::Nobodys { .. } if is_subscription(spec) => {
                Way::Refused(SHARD_CHANNEL)
            }
            Whose::Other { slot, owner } => {
                let node = self.routes.endpoints.get(usize::from(owner));
                let is_other = self.watched.is_some_and(|it| {
                    node.is_none_or(|node| node.id != it) || session.watches.is_some()
                });
                if sent.watches && (is_other || session.watches.is_some()) {
                    return Way::Refused(NOT_AS_WATCHED);
                }
                Way::One(sent, Part::new(Aim::Slot(slot), push(bytes, raw)))
            }
            Whose::Nobodys { slot } => Way::One(sent, Part::new(Aim::Slot(slot), push(bytes, raw))),
            Whose::Several => match self.split(spec, request, bytes) {
                Some(merge) => Way::Several(sent, merge),
                None => Way::Refused(CROSS_SLOT),
            },
        }
    }

    /// EXEC: sends the commands that are queued here to the node that has their keys.
    fn exec(
        &self,
        session: &Session,
        spec: &'static CommandSpec,
        request: Request<'_>,
        raw: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Way {
        let plain = Way::Own(Own {
            blocks: false,
            ends_watch: true,
        });
        let Some(transaction) = session.transaction.as_deref() else {
            return plain;
        };
        if transaction.is_spoilt() {
            return plain;
        }
        let aim = match whose(session, self.routes, self.table, spec, request) {
            Whose::Own => match self.watched {
                // Only that node knows whether the watched keys have changed.
                Some(node) if has_no_keys(session, self.table) => Aim::Node(node),
                Some(_) => return Way::Refused(NOT_AS_WATCHED),
                None => return plain,
            },
            Whose::Other { slot, owner } => {
                let node = self.routes.endpoints.get(usize::from(owner));
                let is_there = |it| node.is_some_and(|node| node.id == it);
                if session.watches.is_some() || self.watched.is_some_and(|it| !is_there(it)) {
                    return Way::Refused(NOT_AS_WATCHED);
                }
                Aim::Slot(slot)
            }
            Whose::Nobodys { slot } => Aim::Slot(slot),
            Whose::Several => return plain,
        };
        let start = bytes.len();
        bytes.extend_from_slice(b"*1\r\n$5\r\nMULTI\r\n");
        let mut count = 1;
        transaction.for_each_request(|request| {
            encode(bytes, request.iter());
            count += 1;
        });
        push(bytes, raw);
        let mut part = Part::new(aim, start..bytes.len());
        part.extra_replies = count;
        let sent = Sent {
            is_exec: true,
            needs_own: true,
            ..Sent::default()
        };
        Way::One(sent, part)
    }

    /// Splits a request with keys of several slots into parts, or returns `None` if that is not
    /// possible.
    fn split(
        &self,
        spec: &CommandSpec,
        request: Request<'_>,
        bytes: &mut Vec<u8>,
    ) -> Option<Merge> {
        if spec.flags.has(Flags::WRITE) && !self.splits_writes {
            return None;
        }
        let values = usize::from(spec.scatter == Scatter::Done);
        let places = key_places::of(self.table, spec, &request)?;
        let mut by_slot: BTreeMap<u16, Vec<usize>> = BTreeMap::new();
        for (at, _) in &places {
            by_slot
                .entry(hash_slot::of(request.arg(*at)?))
                .or_default()
                .push(*at);
        }
        let mut parts = Vec::new();
        let mut order = BTreeMap::new();
        for (slot, keys) in &by_slot {
            let start = bytes.len();
            let mut arguments = vec![request.name()];
            for (place, at) in keys.iter().enumerate() {
                order.insert(*at, (parts.len(), place));
                for at in *at..=*at + values {
                    arguments.push(request.arg(at)?);
                }
            }
            encode(bytes, arguments.into_iter());
            parts.push(Part::new(Aim::Slot(*slot), start..bytes.len()));
        }
        let how = match spec.scatter {
            Scatter::Values => How::Values(order.into_values().collect()),
            Scatter::Sum => How::Sum,
            Scatter::Done => How::Done,
            _ => return None,
        };
        Some(Merge::new(how, parts))
    }

    /// Handles a request that concerns all nodes. Returns `None` if it concerns only this one.
    fn of_all(
        &self,
        spec: &CommandSpec,
        request: Request<'_>,
        raw: &[u8],
        bytes: &mut Vec<u8>,
    ) -> Option<Result<Merge, &'static str>> {
        if spec.scatter == Scatter::Cursor {
            return self.cursor(request, bytes);
        }
        let nodes = self.primaries();
        let own = self.routes.endpoints.get(usize::from(self.routes.own));
        let own = nodes
            .iter()
            .position(|node| own.is_some_and(|own| own.id == *node));
        if nodes.is_empty() || (nodes.len() == 1 && own.is_some()) {
            return None;
        }
        let how = match spec.scatter {
            Scatter::SumOfAll => How::Sum,
            Scatter::ElementsOfAll => How::Elements,
            Scatter::DoneByAll => How::Done,
            Scatter::OwnOfAll => How::One(own.unwrap_or(0)),
            Scatter::AnyOfAll => {
                let some = base::random::Prng::from_os().below(nodes.len() as u64);
                How::Any(usize::try_from(some).unwrap_or(0))
            }
            _ => return None,
        };
        let bytes = push(bytes, raw);
        let part = |node| Part::new(Aim::Node(node), bytes.clone());
        let parts = nodes.into_iter().map(part).collect();
        Some(Ok(Merge::new(how, parts)))
    }

    /// SCAN: sends it to the node that its cursor names.
    fn cursor(
        &self,
        request: Request<'_>,
        bytes: &mut Vec<u8>,
    ) -> Option<Result<Merge, &'static str>> {
        let given = parse_u64(request.arg(1)?)?;
        let firsts = self.first_slots();
        let (mut slot, own) = taken_apart(given);
        if given == 0 {
            slot = *firsts.first()?;
        }
        let owner = self.routes.owner(slot);
        if owner.is_none() {
            return Some(Err("ERR invalid cursor"));
        }
        let next = firsts.into_iter().find(|first| *first > slot);
        let text = own.to_string();
        let start = bytes.len();
        let arguments: Vec<&[u8]> = request
            .iter()
            .enumerate()
            .map(|(at, argument)| if at == 1 { text.as_bytes() } else { argument })
            .collect();
        encode(bytes, arguments.into_iter());
        let endpoint = self.routes.endpoints.get(usize::from(owner?))?;
        let part = Part::new(Aim::Node(endpoint.id), start..bytes.len());
        Some(Ok(Merge::new(How::Cursor(slot, next), vec![part])))
    }

    /// Returns the first slot of each owner, in ascending order.
    fn first_slots(&self) -> Vec<u16> {
        let mut seen = Vec::new();
        let mut firsts = Vec::new();
        for slot in 0..=hash_slot::LAST {
            if let Some(owner) = self.routes.owner(slot)
                && seen.last() != Some(&owner)
                && !seen.contains(&owner)
            {
                seen.push(owner);
                firsts.push(slot);
            }
        }
        firsts
    }

    /// Returns all primaries with slots.
    fn primaries(&self) -> Vec<[u8; 20]> {
        let firsts = self.first_slots().into_iter();
        let owners = firsts.filter_map(|slot| self.routes.owner(slot));
        owners
            .filter_map(|owner| self.routes.endpoints.get(usize::from(owner)))
            .map(|endpoint| endpoint.id)
            .collect()
    }
}

/// Whether no queued command names a key.
fn has_no_keys(session: &Session, table: &Table) -> bool {
    let Some(transaction) = session.transaction.as_deref() else {
        return true;
    };
    let mut has_none = true;
    transaction.for_each_request(|request| {
        let found = table.find(request.name());
        has_none &= found.is_none_or(|found| found.spec.keys.is_empty());
    });
    has_none
}

/// Whether a command is a subscription to a channel with a slot.
fn is_subscription(spec: &CommandSpec) -> bool {
    spec.flags.has(Flags::PUBSUB.with(Flags::NOSCRIPT))
}

/// Whether a command ends watching keys: UNWATCH, DISCARD, and commands that reset the connection.
fn ends_watch(spec: &CommandSpec) -> bool {
    match spec.in_transaction {
        InTransaction::Begins | InTransaction::Refuses | InTransaction::Runs => false,
        InTransaction::AtOnce => true,
        InTransaction::Queued => spec.group == Group::Transactions,
    }
}

fn encode<'a>(bytes: &mut Vec<u8>, arguments: impl Iterator<Item = &'a [u8]>) {
    let arguments: Vec<&[u8]> = arguments.collect();
    encode_arguments(bytes, arguments.into_iter());
}

/// Appends `raw` to `bytes`, and returns the range of the copy.
fn push(bytes: &mut Vec<u8>, raw: &[u8]) -> std::ops::Range<usize> {
    let start = bytes.len();
    bytes.extend_from_slice(raw);
    start..bytes.len()
}
