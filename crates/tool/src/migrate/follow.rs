//! Changed keys at the source during the copy: the key events of its servers, each over its own
//! connection.
//!
//! A server whose events are not received any more leaves a *gap*: changes there may never be
//! reported.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use protocol::Value;

use super::Options;
use super::end::End;
use super::ledger::Ledger;
use crate::cli::keys::text_of;
use crate::endpoint::{Address, Session};
use crate::error::BenchError;

/// The events that the source has to publish: every event, by key.
const EVENTS: &str = "AK";
/// How long to wait for an event if there is none.
const PATIENCE: Duration = Duration::from_millis(2);
/// Channels of events.
const CHANNELS: &str = "__keyspace@*__:*";
/// Maximum number of changed keys that are kept. Beyond it the migration fails.
const CHANGED_MAX: usize = 20_000_000;

/// A subscription to the events of all servers of the source.
pub(super) struct Followed<'o> {
    options: &'o Options,
    heard: Vec<Heard>,
    /// Keys that are to be copied again. Nothing is kept about other keys.
    changed: BTreeSet<(u32, Vec<u8>)>,
    has_gap: bool,
    /// Servers that were followed, and are no longer primaries.
    former: Vec<Address>,
    /// The directive's previous value.
    before: String,
}

/// A server that is followed.
struct Heard {
    address: Address,
    session: Session,
}

impl<'o> Followed<'o> {
    pub(super) fn new(options: &'o Options) -> Self {
        Self {
            options,
            heard: Vec::new(),
            changed: BTreeSet::new(),
            has_gap: false,
            former: Vec::new(),
            before: String::new(),
        }
    }

    /// Subscribes to servers of the source that are not followed yet: from here on every change
    /// there has an event.
    pub(super) fn hear(&mut self, source: &mut End, ledger: &mut Ledger) -> Result<(), BenchError> {
        let begin_ns = source.now_ns();
        loop {
            let addresses = source.addresses();
            let (heard, former) = std::mem::take(&mut self.heard)
                .into_iter()
                .partition(|heard| addresses.contains(&heard.address));
            self.heard = heard;
            let former: Vec<Heard> = former;
            self.former
                .extend(former.into_iter().map(|heard| heard.address));
            let missing = addresses
                .into_iter()
                .find(|address| !self.heard.iter().any(|heard| heard.address == *address));
            let Some(address) = missing else {
                return Ok(());
            };
            match subscribed(source, &address, ledger) {
                Ok((session, before)) => {
                    self.before = before;
                    self.heard.push(Heard { address, session });
                }
                Err(error @ BenchError::Connection(..)) if source.is_met(&address) => {
                    source.recover(&error, begin_ns)?;
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Takes the available events.
    pub(super) fn take(&mut self) -> Result<(), BenchError> {
        let mut at = 0;
        while at < self.heard.len() {
            match self.heard[at].session.reply() {
                Ok(message) => self.note(&message)?,
                Err(BenchError::Connection(_, error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    at += 1;
                }
                Err(BenchError::Connection(..)) => {
                    self.heard.remove(at);
                    self.has_gap = true;
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// Returns whether events may have been lost since the last call.
    pub(super) fn take_gap(&mut self) -> bool {
        std::mem::take(&mut self.has_gap)
    }

    fn note(&mut self, message: &Value) -> Result<(), BenchError> {
        let (Value::Array(parts) | Value::Push(parts)) = message else {
            return Ok(());
        };
        let Some((database, key)) = parts.get(2).and_then(|channel| changed(&text_of(channel)))
        else {
            return Ok(());
        };
        if self.options.has_key(database, &key) {
            self.changed.insert((database, key));
        }
        if self.changed.len() > CHANGED_MAX {
            return Err(BenchError::Usage(
                "the source changes faster than it is copied: raise --count, or use --replicate"
                    .to_owned(),
            ));
        }
        Ok(())
    }

    /// Removes and returns some changed keys of one database.
    pub(super) fn some(&mut self, count: usize) -> Option<(u32, Vec<Vec<u8>>)> {
        let (database, _) = *self.changed.first().filter(|_| count > 0)?;
        let mut keys = Vec::new();
        while keys.len() < count {
            match self.changed.first() {
                Some((own, _)) if *own == database => {
                    keys.extend(self.changed.pop_first().map(|(_, key)| key));
                }
                _ => break,
            }
        }
        Some((database, keys))
    }

    pub(super) fn waiting(&self) -> usize {
        self.changed.len()
    }

    /// Ends: restores the directive on all servers that can be reached.
    pub(super) fn end(self, source: &mut End) -> Result<(), BenchError> {
        let words = ["CONFIG", "SET", "notify-keyspace-events", &self.before];
        let heard = self.heard.into_iter().map(|heard| heard.address);
        for address in heard.chain(self.former) {
            let set = source.link(&address).and_then(|link| {
                link.session
                    .demand("CONFIG SET notify-keyspace-events", &words)
            });
            match set {
                // An unreachable server restarts with the value in its file.
                Err(BenchError::Connection(..)) | Ok(_) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Makes a server publish its events. Returns the connection, and the directive's previous value.
fn subscribed(
    source: &mut End,
    address: &Address,
    ledger: &mut Ledger,
) -> Result<(Session, String), BenchError> {
    let endpoint = source.endpoint_of(address);
    let link = source.link(address)?;
    let reply = link.session.demand(
        "CONFIG GET notify-keyspace-events",
        &["CONFIG", "GET", "notify-keyspace-events"],
    )?;
    let now = match reply {
        Value::Array(parts) => parts.get(1).map(text_of),
        Value::Map(pairs) => pairs.first().map(|(_, value)| text_of(value)),
        _ => None,
    };
    let now = String::from_utf8_lossy(&now.unwrap_or_default()).into_owned();
    let mut wanted = now.clone();
    wanted.extend(EVENTS.chars().filter(|class| !now.contains(*class)));
    let before = ledger.events_before(&now)?;
    let mut session = endpoint.connect()?;
    session.demand("PSUBSCRIBE", &["PSUBSCRIBE", CHANNELS])?;
    session.set_patience(Some(PATIENCE))?;
    link.session.demand(
        "CONFIG SET notify-keyspace-events",
        &["CONFIG", "SET", "notify-keyspace-events", &wanted],
    )?;
    Ok((session, before))
}

/// Parses database and key from a channel of events.
fn changed(channel: &[u8]) -> Option<(u32, Vec<u8>)> {
    let rest = channel.strip_prefix(b"__keyspace@")?;
    let end = rest.windows(3).position(|part| part == b"__:")?;
    let database = std::str::from_utf8(&rest[..end]).ok()?.parse().ok()?;
    Some((database, rest[end + 3..].to_vec()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn channels_name_database_and_key() {
        assert_eq!(changed(b"__keyspace@12__:a:b"), Some((12, b"a:b".to_vec())));
        assert_eq!(changed(b"__keyspace@0__:__:"), Some((0, b"__:".to_vec())));
        assert_eq!(changed(b"__keyevent@0__:set"), None);
    }
}
