//! What each peer understands: the table of effects and peers.
//!
//! | Effect | Redis 6.2 | 7.0, 7.2, Valkey 7.2, 8 | Redis 7.4 | Redis 8.0, Valkey 9 |
//! |---|---|---|---|---|
//! | `SETETAG` | nothing | nothing | nothing | nothing |
//! | `SETIFGREATER` | `SET` | `SET` | `SET` | `SET` |
//! | `HSETEX` without a deadline | `HSET` | `HSET` | `HSET` | as it is |
//! | `HSETEX … PXAT` | – | – | `HSET`, `HPEXPIREAT` | as it is |
//! | `HSETEX … KEEPTTL` | – | – | – | as it is |
//! | `HPEXPIREAT`, `HPERSIST` | – | – | as it is | as it is |
//! | `FUNCTION RESTORE` | – | as it is | as it is | as it is |
//! | `XSETID … ENTRIESADDED …`, `XGROUP … ENTRIESREAD` | without | as it is | as it is | as it is |
//! | `RESTORE` of a payload | up to version 9 | up to 10 or 11 | up to 12 | up to 12; up to 11, and 80 |
//! | all others | as they are | as they are | as they are | as they are |
//!
//! A dash ends the link with the command's name. If loss is allowed, the effect is instead left
//! out, or sent without the deadline, and counted. Fields whose deadline has passed are removed by
//! an `HDEL` in the log, which every peer understands, so only the time is lost.

use std::fmt;

use durability::log::Parts;

use super::{Sink, put_head, put_part};

/// Families and versions of peers, as far as the stream or the payloads they load differ.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[repr(u8)]
pub enum Peer {
    /// Redis 6.2.
    Redis62 = 1,
    /// Redis 7.0. A replica that does not report its version is treated as this.
    #[default]
    Redis70 = 2,
    /// Redis 7.2.
    Redis72 = 3,
    /// Redis 7.4.
    Redis74 = 4,
    /// Redis 8.0 and later.
    Redis80 = 5,
    /// Valkey 7.2 and 8.
    Valkey72 = 6,
    /// Valkey 9 and later.
    Valkey90 = 7,
}

impl Peer {
    /// All peers.
    pub const ALL: [Self; 7] = [
        Self::Redis62,
        Self::Redis70,
        Self::Redis72,
        Self::Redis74,
        Self::Redis80,
        Self::Valkey72,
        Self::Valkey90,
    ];

    /// Parses the peer that an operator names: `redis 7.0`, `valkey 8.1.2`. Returns `None` for an
    /// unknown family or version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (family, version) = text.trim().split_once([' ', '-', '/'])?;
        let version = version_of(version)?;
        if family.eq_ignore_ascii_case("redis") {
            return match version {
                (0..=5, _) | (6, 0..=1) => None,
                (6, _) => Some(Self::Redis62),
                (7, 0..=1) => Some(Self::Redis70),
                (7, 2..=3) => Some(Self::Redis72),
                (7, _) => Some(Self::Redis74),
                _ => Some(Self::Redis80),
            };
        }
        if family.eq_ignore_ascii_case("valkey") {
            return Some(Self::of_valkey_version(version));
        }
        None
    }

    /// Returns the peer that sent `REPLCONF version`. Only Valkey sends it, from version 8 on.
    #[must_use]
    pub fn of_version_sent(version: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(version).ok()?;
        version_of(text).map(Self::of_valkey_version)
    }

    fn of_valkey_version(version: (u32, u32)) -> Self {
        match version {
            (0..=8, _) => Self::Valkey72,
            _ => Self::Valkey90,
        }
    }

    /// Returns the highest version of an RDB file that it loads.
    #[must_use]
    pub fn rdb_version(self) -> u16 {
        match self {
            Self::Redis62 => 9,
            Self::Redis70 => 10,
            Self::Redis72 | Self::Valkey72 => 11,
            Self::Redis74 | Self::Redis80 => 12,
            Self::Valkey90 => 80,
        }
    }

    /// Whether it has libraries of functions, and counts the entries of streams.
    #[must_use]
    pub fn has_functions(self) -> bool {
        self != Self::Redis62
    }

    /// Whether fields of its hashes can have deadlines.
    #[must_use]
    pub fn has_field_deadlines(self) -> bool {
        matches!(self, Self::Redis74 | Self::Redis80 | Self::Valkey90)
    }

    /// Returns the peer that represents all peers that get the same bytes: the one of them that
    /// understands most.
    #[must_use]
    pub fn family(self) -> Self {
        match self {
            Self::Redis70 | Self::Redis72 | Self::Valkey72 => Self::Redis72,
            other => other,
        }
    }

    fn has_hsetex(self) -> bool {
        matches!(self, Self::Redis80 | Self::Valkey90)
    }

    fn loads_payload_of(self, version: u16) -> bool {
        match self {
            Self::Valkey90 => version <= 11 || version == 80,
            _ => version <= self.rdb_version(),
        }
    }
}

impl fmt::Display for Peer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Redis62 => "redis 6.2",
            Self::Redis70 => "redis 7.0",
            Self::Redis72 => "redis 7.2",
            Self::Redis74 => "redis 7.4",
            Self::Redis80 => "redis 8.0",
            Self::Valkey72 => "valkey 7.2",
            Self::Valkey90 => "valkey 9.0",
        })
    }
}

/// Returns the major and minor number.
fn version_of(text: &str) -> Option<(u32, u32)> {
    let mut numbers = text.trim().split('.');
    let major = numbers.next()?.parse().ok()?;
    let minor = numbers.next().map_or(Ok(0), str::parse).ok()?;
    Some((major, minor))
}

/// The properties that determine the bytes of a stream. A replica that reconnects in another form
/// would find other bytes at its offset, so each form has its own offsets and replication id.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Form {
    /// The reader: a [family](Peer::family). A single peer of it may understand less than is sent.
    pub peer: Peer,
    /// Whether effects that the peer cannot understand are left out (`repl-peer-loss allow`).
    pub allows_loss: bool,
}

impl Default for Form {
    fn default() -> Self {
        Self::of(Peer::default())
    }
}

impl Form {
    /// Returns the form for a peer that loses nothing.
    #[must_use]
    pub fn of(peer: Peer) -> Self {
        Self {
            peer: peer.family(),
            allows_loss: false,
        }
    }

    /// Returns the form with a tag.
    #[must_use]
    pub fn of_tag(tag: u8) -> Option<Self> {
        let forms = Peer::ALL.into_iter().flat_map(|peer| {
            [false, true].map(|allows_loss| Self {
                allows_loss,
                ..Self::of(peer)
            })
        });
        forms.into_iter().find(|form| form.tag() == tag)
    }

    /// Returns the tag that distinguishes it from other forms; 0 for the default form.
    #[must_use]
    pub fn tag(self) -> u8 {
        let own = (self.peer.family() as u8) << 1 | u8::from(self.allows_loss);
        own ^ (Peer::default().family() as u8) << 1
    }
}

/// The commands that the peer gets for an effect.
#[derive(Clone, Debug)]
pub(super) enum Said<'a> {
    Nothing {
        is_lossy: bool,
    },
    Same(Parts<'a>),
    One {
        command: Vec<&'a [u8]>,
        is_lossy: bool,
    },
    Two(Vec<&'a [u8]>, Vec<&'a [u8]>),
}

impl Said<'_> {
    pub(super) fn commands(&self) -> u64 {
        match self {
            Self::Nothing { .. } => 0,
            Self::Same(_) | Self::One { .. } => 1,
            Self::Two(..) => 2,
        }
    }

    pub(super) fn is_lossy(&self) -> bool {
        match self {
            Self::Nothing { is_lossy } | Self::One { is_lossy, .. } => *is_lossy,
            Self::Same(_) | Self::Two(..) => false,
        }
    }

    pub(super) fn put(&self, sink: &mut impl Sink) {
        match self {
            Self::Nothing { .. } => {}
            Self::Same(parts) => put_command(*parts, sink),
            Self::One { command, .. } => put_command(command.iter().copied(), sink),
            Self::Two(first, second) => {
                put_command(first.iter().copied(), sink);
                put_command(second.iter().copied(), sink);
            }
        }
    }
}

fn put_command<'a>(parts: impl ExactSizeIterator<Item = &'a [u8]>, sink: &mut impl Sink) {
    put_head(b"*", parts.len(), sink);
    for part in parts {
        put_part(part, sink);
    }
}

/// Translates a command for a peer. Returns the name of the command as the error if the peer has no
/// equivalent.
pub(super) fn translate(form: Form, parts: Parts<'_>) -> Result<Said<'_>, String> {
    let peer = form.peer;
    let mut rest = parts;
    let name = rest.next().unwrap_or_default();
    match name {
        b"SETETAG" => Ok(Said::Nothing { is_lossy: false }),
        b"SETIFGREATER" => Ok(set_if_greater(rest)),
        b"HSETEX" if !peer.has_hsetex() => hsetex(form, rest),
        b"HPEXPIREAT" | b"HPERSIST" if !peer.has_field_deadlines() => lost(form, name),
        b"FUNCTION" if !peer.has_functions() => lost(form, name),
        // The peer has no shard channels, so none of its clients listens to one.
        b"SPUBLISH" if !peer.has_functions() => Ok(Said::Nothing { is_lossy: false }),
        b"XSETID" if !peer.has_functions() => Ok(short(name, rest, 2)),
        b"XGROUP" if !peer.has_functions() => Ok(without_entries_read(name, rest)),
        b"RESTORE" => match payload_version(rest) {
            Some(version) if !peer.loads_payload_of(version) => lost(form, name),
            _ => Ok(Said::Same(parts)),
        },
        _ => Ok(Said::Same(parts)),
    }
}

/// Whether a peer of a family cannot load what the family gets.
pub(super) fn is_beyond(peer: Peer, mut parts: Parts<'_>) -> bool {
    parts.next() == Some(b"RESTORE")
        && payload_version(parts).is_some_and(|version| !peer.loads_payload_of(version))
}

/// Handles a command that the peer does not have.
fn lost<'a>(form: Form, name: &[u8]) -> Result<Said<'a>, String> {
    if form.allows_loss {
        Ok(Said::Nothing { is_lossy: true })
    } else {
        Err(String::from_utf8_lossy(name).into_owned())
    }
}

/// Translates `key value etag NOGET [PXAT at]`. The log contains it only for a value that was set,
/// so no condition remains.
fn set_if_greater(mut rest: Parts<'_>) -> Said<'_> {
    let mut command: Vec<&[u8]> = vec![b"SET"];
    command.extend(rest.by_ref().take(2));
    let mut options = rest.skip_while(|part| *part != b"PXAT");
    command.extend(options.by_ref().take(2));
    Said::One {
        command,
        is_lossy: false,
    }
}

/// `key [PXAT at | KEEPTTL] FIELDS count (field value)…`
fn hsetex(form: Form, mut rest: Parts<'_>) -> Result<Said<'_>, String> {
    let key = rest.next().unwrap_or_default();
    let option = rest.next().unwrap_or_default();
    let deadline = match option {
        b"PXAT" => rest.next(),
        _ => None,
    };
    let has_deadline = option == b"PXAT" || option == b"KEEPTTL";
    if has_deadline {
        rest.next();
    }
    let count = rest.next().unwrap_or_default();
    let mut set: Vec<&[u8]> = vec![b"HSET", key];
    set.extend(rest);
    let peer = form.peer;
    match deadline {
        _ if !has_deadline => Ok(Said::One {
            command: set,
            is_lossy: false,
        }),
        Some(at) if peer.has_field_deadlines() => {
            let mut expire: Vec<&[u8]> = vec![b"HPEXPIREAT", key, at, b"FIELDS", count];
            expire.extend(rest.step_by(2));
            Ok(Said::Two(set, expire))
        }
        _ if form.allows_loss => Ok(Said::One {
            command: set,
            is_lossy: true,
        }),
        _ => Err("HSETEX".to_owned()),
    }
}

/// Returns the command with only its first arguments.
fn short<'a>(name: &'a [u8], rest: Parts<'a>, arguments: usize) -> Said<'a> {
    let mut command = vec![name];
    command.extend(rest.take(arguments));
    Said::One {
        command,
        is_lossy: false,
    }
}

fn without_entries_read<'a>(name: &'a [u8], rest: Parts<'a>) -> Said<'a> {
    let mut command = vec![name];
    command.extend(rest.take_while(|part| *part != b"ENTRIESREAD"));
    Said::One {
        command,
        is_lossy: false,
    }
}

/// Returns the version that a payload (`key deadline payload …`) contains near its end.
fn payload_version(mut rest: Parts<'_>) -> Option<u16> {
    let payload = rest.nth(2)?;
    let [low, high, ..] = *payload.last_chunk::<10>()?;
    Some(u16::from_le_bytes([low, high]))
}
