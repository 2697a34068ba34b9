//! DEBUG POPULATE: creates keys for tests.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use protocol::Reply;
use store::{Deadline, FreeMemory, StoreError};

use super::debug::pass_as;

/// Size of the buffer in which Redis composes names and values, including a final zero.
const TEXT_BYTES_MAX: usize = 127;

/// Number of keys after which other threads may take the store exclusively.
const STEP_KEYS: u64 = 1024;

/// Approximate memory of a record besides its key and value.
const RECORD_BYTES: u64 = 16;

/// Number of bytes that are written in the time of one look-up.
const BYTES_PER_LOOKUP: u64 = 4096;

/// `POPULATE count [prefix] [size]`: creates strings `prefix:N` with the value `value:N`, truncated
/// or padded with zeros to `size` bytes, for every N below `count`. Existing keys stay as they are.
///
/// Each key is a separate write: other clients may see some of them before all exist.
pub(super) fn populate(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let count = positive(args.bytes()?)?;
    let prefix = args.next().unwrap_or(b"key");
    let prefix = prefix.split(|byte| *byte == 0).next().unwrap_or(prefix);
    let value_bytes = match args.remaining() {
        0 => 0,
        _ => positive(args.bytes()?)?,
    };
    if value_bytes > context.shared.settings.string_bytes_max() {
        return Err(StoreError::TooLarge.into());
    }
    let lookups = count.saturating_mul(1 + value_bytes / BYTES_PER_LOOKUP);
    context
        .pace
        .admit(usize::try_from(lookups).unwrap_or(usize::MAX))?;
    let bytes = count.saturating_mul(value_bytes.max(RECORD_BYTES));
    let bytes = usize::try_from(bytes).unwrap_or(usize::MAX);
    let database = context.session.database;
    if context.store.free_memory_for(database, 1, bytes) == FreeMemory::Lacking {
        return Err(CommandError::fixed("ERR OOM in dictTryExpand"));
    }
    let mut texts = Texts::new(prefix, value_bytes);
    for number in 0..count {
        if number % STEP_KEYS == 0 {
            let_others_in(context)?;
        }
        texts.compose(number);
        put(context, &texts)?;
    }
    reply.ok();
    Ok(())
}

fn positive(text: &[u8]) -> Result<u64, CommandError> {
    let number = base::number::parse_i64(text).and_then(|number| u64::try_from(number).ok());
    number.ok_or(CommandError::fixed(
        "ERR value is out of range, must be positive",
    ))
}

/// Lets threads that wait for the whole store proceed, and lets the log be written. Does nothing in
/// a transaction, which has the store exclusively.
fn let_others_in(context: &mut Context<'_>) -> CommandResult {
    if context.store.is_alone() {
        return Ok(());
    }
    context.outside(|_| ());
    // Workers notice that the log has space again.
    while context.pace.is_aside && context.shared.gate.is_log_full() {
        if context.shared.refusals.is_log_faulty() {
            break;
        }
        context.outside(|server| server.rest());
    }
    // As in Redis, this also runs on a replica, which then differs from its primary: tests of
    // comparisons use that.
    let like: &[u8] = match context.server.is_replica() {
        true => b"GET",
        false => b"SET",
    };
    pass_as(context, like)
}

/// Creates a key unless it exists.
fn put(context: &mut Context<'_>, texts: &Texts) -> CommandResult {
    let (name, value) = (texts.name.as_slice(), texts.value.as_slice());
    if !context.store.is_alone() {
        context.store.make_room(name.len() + value.len())?;
    }
    let key = context.key(name);
    context.store.modify(&key, |entry| {
        if entry.is_present() {
            return Ok(());
        }
        entry.set(value, Deadline::Never)?;
        entry.effect(|effect| effect.command(&[b"SET", name, value]));
        Ok(())
    })
}

/// Name and value of one key.
struct Texts {
    name: Vec<u8>,
    prefix_bytes: usize,
    value: Vec<u8>,
    /// Length of the value; 0 for its natural length.
    value_bytes: usize,
}

impl Texts {
    fn new(prefix: &[u8], value_bytes: u64) -> Self {
        Self {
            name: prefix.to_vec(),
            prefix_bytes: prefix.len(),
            value: Vec::new(),
            value_bytes: usize::try_from(value_bytes).unwrap_or(usize::MAX),
        }
    }

    fn compose(&mut self, number: u64) {
        self.name.truncate(self.prefix_bytes);
        self.value.clear();
        let number = IntegerText::new_u64(number);
        self.name.push(b':');
        self.name.extend_from_slice(number.as_bytes());
        self.value.extend_from_slice(b"value:");
        self.value.extend_from_slice(number.as_bytes());
        self.name.truncate(TEXT_BYTES_MAX);
        if self.value_bytes > 0 {
            self.value.resize(self.value_bytes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn keys_are_made_and_stated() {
        let mut server = TestServer::with_debug();
        server.run("SET p:1 there EX 100");
        server.effects();
        server.run("DEBUG POPULATE 3 p");
        assert_eq!(server.effects(), ["SET p:0 value:0", "SET p:2 value:2"]);
        server.run("DEBUG POPULATE 2 cut 3");
        server.run("DEBUG POPULATE 2 filled 10");
        server.run("MULTI");
        server.run("DEBUG POPULATE 2");
        server.run("EXEC");
        assert_eq!(server.text("GET p:1"), "there");
        assert_eq!(server.text("GET cut:1"), "val");
        assert_eq!(server.text("GET filled:1"), "value:1\0\0\0");
        assert_eq!(server.text("GET key:1"), "value:1");
        assert_eq!(server.integer("DBSIZE"), 9);
        server.assert_effects_replay();
    }

    #[test]
    fn nothing_is_made_of_what_is_too_much() {
        let mut server = TestServer::with_debug();
        for (arguments, error) in [
            ("-1", "ERR value is out of range, must be positive"),
            ("x", "ERR value is out of range, must be positive"),
            ("1 a -1", "ERR value is out of range, must be positive"),
            (
                "1 a 99999999999",
                "ERR string exceeds maximum allowed size (proto-max-bulk-len)",
            ),
            ("9223372036854775807", "ERR OOM in dictTryExpand"),
            ("1000000000000 a 500000000", "ERR OOM in dictTryExpand"),
        ] {
            let line = format!("DEBUG POPULATE {arguments}");
            assert_eq!(server.error(&line), error, "{line}");
        }
        assert_eq!(server.integer("DBSIZE"), 0);
    }

    #[test]
    fn where_nothing_may_be_written_nothing_is() {
        let mut server = TestServer::with_debug();
        server.shared.refusals.set_log_fault(Some("disk full"));
        assert!(server.error("DEBUG POPULATE 1").starts_with("MISCONF"));
        server.run("DEBUG DIGEST");
    }
}
