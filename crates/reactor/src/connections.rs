//! The connections of one loop, in slots that are reused under a new generation.
//!
//! A slot keeps no buffer while its connection is idle: `input` has no capacity and `pending` is
//! absent. Invariants
//!  1. `input` contains what the service did not consume, and nothing else.
//!  2. `pending` is present exactly while output waits, for the socket or for a ticket. Its bytes
//!     precede anything written later.
//!  3. A slot's generation grows when its connection is removed and is never 0, so an id that
//!     outlives its connection finds nothing.

use rustix::event::epoll::EventFlags;

use crate::pending::Pending;
use crate::service::CloseReason;
use crate::transport::Carrier;

/// The id of a connection of one loop. It never denotes another connection later.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ConnectionId {
    index: u32,
    generation: u32,
}

impl ConnectionId {
    /// The id of no connection.
    pub const NOBODY: Self = Self {
        index: u32::MAX,
        generation: 0,
    };

    /// Returns the slot, for tables parallel to the loop's. It is reused after the connection is
    /// closed.
    #[must_use]
    pub const fn index(self) -> u32 {
        self.index
    }

    /// Converts it to one number, for epoll. Generation 0 is free for other uses.
    pub(crate) const fn to_token(self) -> u64 {
        (self.generation as u64) << 32 | self.index as u64
    }

    /// Returns the id in a token.
    #[expect(
        clippy::cast_possible_truncation,
        reason = "takes the two halves apart"
    )]
    pub(crate) const fn from_token(token: u64) -> Self {
        Self {
            index: token as u32,
            generation: (token >> 32) as u32,
        }
    }
}

/// The loop's state of a connection.
pub(crate) struct Connection {
    pub(crate) carrier: Carrier,
    /// Unconsumed input.
    pub(crate) input: Vec<u8>,
    /// The length that `input` must have before the service is called again.
    pub(crate) needed: usize,
    /// Output that the socket did not accept, or that must not be sent yet.
    pub(crate) pending: Option<Box<Pending>>,
    pub(crate) phase: Phase,
    /// Whether it is not read until the service resumes it.
    pub(crate) paused: bool,
    /// Whether it is received into the service's own memory.
    pub(crate) lent_room: bool,
    /// Whether it is in the list of connections that have input left to be served.
    pub(crate) queued: bool,
    /// Whether it is in the list of connections whose sockets were full.
    pub(crate) is_suspect: bool,
    /// Whether its socket accepted bytes since it was added to that list, or was last checked
    /// there.
    pub(crate) has_taken: bool,
    /// The events that epoll watches now.
    pub(crate) interest: Interest,
}

/// Phase of the end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    /// It is not ending.
    Open,
    /// It ends after its output was sent.
    Draining(CloseReason),
    /// It ends at the end of this turn.
    Doomed(CloseReason),
    /// The service has released it, but its peer has not closed its side yet.
    Lingering,
}

/// The events for which epoll watches a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Interest {
    /// Input.
    Input,
    /// Space for output.
    Output,
    /// Input and space for output.
    Both,
    /// Only the peer's disconnect.
    Departure,
    /// Nothing: its output must not be sent yet. epoll reports a complete disconnect in any case.
    Nothing,
}

impl Interest {
    pub(crate) fn flags(self) -> EventFlags {
        match self {
            Self::Input => EventFlags::IN,
            Self::Output => EventFlags::OUT,
            Self::Both => EventFlags::IN | EventFlags::OUT,
            Self::Departure => EventFlags::RDHUP,
            Self::Nothing => EventFlags::empty(),
        }
    }
}

impl Connection {
    pub(crate) fn new(carrier: Carrier) -> Self {
        Self {
            carrier,
            input: Vec::new(),
            needed: 0,
            pending: None,
            phase: Phase::Open,
            paused: false,
            lent_room: false,
            queued: false,
            is_suspect: false,
            has_taken: false,
            interest: Interest::Input,
        }
    }

    /// Returns the bytes of waiting output.
    pub(crate) fn pending_bytes(&self) -> usize {
        self.pending.as_ref().map_or(0, |pending| pending.len())
    }

    /// Whether output waits only for the socket.
    #[inline]
    pub(crate) fn waits_for_socket(&self) -> bool {
        let pending = self.pending.as_ref();
        pending.is_some_and(|pending| pending.sendable_bytes() > 0)
    }

    /// Whether nothing more is sent to it: the service has released it, or its output exceeded the
    /// limit.
    #[inline]
    pub(crate) fn is_silent(&self) -> bool {
        matches!(
            self.phase,
            Phase::Lingering | Phase::Doomed(CloseReason::OutputLimit)
        )
    }

    /// Returns the events for which epoll should watch it.
    pub(crate) fn wanted_interest(&self) -> Interest {
        if self.waits_for_socket() {
            if self.may_receive() {
                Interest::Both
            } else {
                Interest::Output
            }
        } else if self.pending.is_some() {
            if self.may_receive() {
                Interest::Input
            } else {
                Interest::Nothing
            }
        } else if self.phase == Phase::Lingering || (self.phase == Phase::Open && !self.paused) {
            Interest::Input
        } else {
            Interest::Departure
        }
    }

    /// Returns the bytes of its buffers.
    pub(crate) fn buffer_bytes(&self) -> usize {
        let pending = self.pending.as_ref();
        self.input.capacity()
            + pending.map_or(0, |pending| pending.held_bytes())
            + self.carrier.held_bytes()
    }

    /// Whether the loop may pass input to the service.
    #[inline]
    pub(crate) fn may_receive(&self) -> bool {
        let pending = self.pending.as_ref();
        self.phase == Phase::Open
            && !self.paused
            && pending.is_none_or(|pending| pending.lets_serve())
    }
}

/// All connections of a loop.
#[derive(Default)]
pub(crate) struct Connections {
    slots: Vec<Slot>,
    free: Vec<u32>,
}

struct Slot {
    generation: u32,
    connection: Option<Connection>,
}

impl Connections {
    /// Returns the number of connections.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    /// Adds a connection.
    pub(crate) fn insert(&mut self, connection: Connection) -> ConnectionId {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot {
                generation: 1,
                connection: None,
            });
            // Descriptors are 31-bit numbers, so there are fewer than 2^32 slots.
            u32::try_from(self.slots.len() - 1).expect("more connections than descriptors")
        });
        let slot = &mut self.slots[index as usize];
        slot.connection = Some(connection);
        ConnectionId {
            index,
            generation: slot.generation,
        }
    }

    /// Returns the connection, or `None` if the id is stale.
    #[inline]
    pub(crate) fn get_mut(&mut self, id: ConnectionId) -> Option<&mut Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.connection.as_mut()
    }

    /// Returns the connection, or `None` if the id is stale.
    pub(crate) fn get(&self, id: ConnectionId) -> Option<&Connection> {
        let slot = self.slots.get(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        slot.connection.as_ref()
    }

    /// Removes a connection. Its id is stale from now on.
    pub(crate) fn remove(&mut self, id: ConnectionId) -> Option<Connection> {
        let slot = self.slots.get_mut(id.index as usize)?;
        if slot.generation != id.generation {
            return None;
        }
        let connection = slot.connection.take()?;
        slot.generation = slot.generation.wrapping_add(1).max(1);
        self.free.push(id.index);
        Some(connection)
    }

    /// Returns all connections, by slot.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Connection> {
        self.slots
            .iter()
            .filter_map(|slot| slot.connection.as_ref())
    }

    /// Returns the ids of all connections, by slot.
    pub(crate) fn ids(&self) -> Vec<ConnectionId> {
        (0_u32..)
            .zip(&self.slots)
            .filter(|(_, slot)| slot.connection.is_some())
            .map(|(index, slot)| ConnectionId {
                index,
                generation: slot.generation,
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::in_process::in_process_pair;

    fn connection() -> Connection {
        Connection::new(Carrier::Other(Box::new(in_process_pair(1).0)))
    }

    /// Checks what an idle connection costs here, besides its socket.
    #[test]
    fn a_slot_is_small_and_owns_no_buffer() {
        assert!(size_of::<Slot>() <= 80, "{} bytes", size_of::<Slot>());
        assert_eq!(connection().buffer_bytes(), 0);
    }

    #[test]
    fn an_id_outlives_its_connection_without_harm() {
        let mut connections = Connections::default();
        let first = connections.insert(connection());
        assert!(connections.get(first).is_some());
        assert!(connections.remove(first).is_some());
        let second = connections.insert(connection());
        assert_eq!(second.index(), first.index());
        assert!(connections.get(first).is_none());
        assert!(connections.get_mut(first).is_none());
        assert!(connections.remove(first).is_none());
        assert_eq!(connections.len(), 1);
        assert_eq!(connections.ids(), [second]);
    }

    #[test]
    fn generations_skip_zero() {
        let mut connections = Connections::default();
        let id = connections.insert(connection());
        connections.remove(id);
        connections.slots[0].generation = u32::MAX;
        let last = connections.insert(connection());
        connections.remove(last);
        let next = connections.insert(connection());
        assert!(next.generation > 0);
        assert_eq!(ConnectionId::from_token(next.to_token()), next);
    }
}
