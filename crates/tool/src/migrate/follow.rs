//! Keys that change at the source while they are copied: its key events, by a connection of their own.

use std::collections::BTreeSet;
use std::io::ErrorKind;
use std::time::Duration;

use protocol::Value;

use super::Options;
use super::link::Link;
use crate::cli::keys::text_of;
use crate::endpoint::Session;
use crate::error::BenchError;

/// What the source has to tell: every event, by the key.
const EVENTS: &str = "AK";
/// So long an event is waited for when there is none.
const PATIENCE: Duration = Duration::from_millis(2);
/// Channels of events.
const CHANNELS: &str = "__keyspace@*__:*";
/// More keys that changed are not kept: then the copy begins anew.
const CHANGED_MAX: usize = 20_000_000;

/// A subscription to the events of a server.
pub(super) struct Followed<'o> {
    options: &'o Options,
    session: Session,
    /// What the directive was before.
    before: String,
    /// Keys that are to be copied again: of other keys nothing is kept.
    changed: BTreeSet<(u32, Vec<u8>)>,
}

impl<'o> Followed<'o> {
    /// Begins: from here on every change has an event.
    pub(super) fn begin(options: &'o Options, source: &mut Link) -> Result<Self, BenchError> {
        let reply = source.session.demand(
            "CONFIG GET notify-keyspace-events",
            &["CONFIG", "GET", "notify-keyspace-events"],
        )?;
        let before = match reply {
            Value::Array(parts) => parts.get(1).map(text_of),
            Value::Map(pairs) => pairs.first().map(|(_, value)| text_of(value)),
            _ => None,
        };
        let before = String::from_utf8_lossy(&before.unwrap_or_default()).into_owned();
        let mut wanted = before.clone();
        wanted.extend(EVENTS.chars().filter(|class| !before.contains(*class)));
        let mut session = options.source.connect()?;
        session.demand("PSUBSCRIBE", &["PSUBSCRIBE", CHANNELS])?;
        session.set_patience(Some(PATIENCE))?;
        source.session.demand(
            "CONFIG SET notify-keyspace-events",
            &["CONFIG", "SET", "notify-keyspace-events", &wanted],
        )?;
        Ok(Self {
            options,
            session,
            before,
            changed: BTreeSet::new(),
        })
    }

    /// Takes the events that are there.
    pub(super) fn take(&mut self) -> Result<(), BenchError> {
        loop {
            match self.session.reply() {
                Ok(message) => self.note(&message)?,
                Err(BenchError::Connection(_, error))
                    if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) =>
                {
                    return Ok(());
                }
                Err(error) => return Err(error),
            }
        }
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

    /// Some keys that changed, of one database; they are forgotten here.
    pub(super) fn some(&mut self, count: usize) -> Option<(u32, Vec<Vec<u8>>)> {
        let (database, _) = *self.changed.first()?;
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

    /// Ends: the directive is what it was.
    pub(super) fn end(self, source: &mut Link) -> Result<(), BenchError> {
        let words = ["CONFIG", "SET", "notify-keyspace-events", &self.before];
        source
            .session
            .demand("CONFIG SET notify-keyspace-events", &words)?;
        Ok(())
    }
}

/// Database and key of a channel of events.
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
