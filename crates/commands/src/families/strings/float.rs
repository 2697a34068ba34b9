//! INCRBYFLOAT: decimal fractions stored as strings.
//!
//! Sums are computed with 80-bit numbers, as in Redis, to the last digit.

use base::extended::{self, Extended};
use base::number;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use store::{Deadline, Entry, EventClass, Record};

use super::shared::{UPDATED_KEY, check_string, state_set};
use crate::families::etags;

pub(super) const INCRBYFLOAT: CommandSpec = CommandSpec {
    name: "INCRBYFLOAT",
    arity: Arity::Exactly(3),
    flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
    keys: UPDATED_KEY,
    group: Group::String,
    since: "2.6.0",
    summary: "Adds a decimal fraction to the number kept at a key.",
    syntax: "key increment:double",
    handler: incrbyfloat,
    ..CommandSpec::BLANK
};

fn incrbyfloat(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let summand = args.bytes()?;
    let text = context.store.modify(&key, |entry| {
        let record = entry.record();
        let etag = record.as_ref().map_or(0, Record::etag);
        let number = match record {
            None => Extended::from(0),
            Some(record) => number_at(&record)?,
        };
        let sum = number + Extended::parse(summand).ok_or(CommandError::NotFloat)?;
        if sum.is_nan() || sum.is_infinite() {
            return Err(CommandError::fixed(
                "ERR increment would produce NaN or Infinity",
            ));
        }
        let text = sum.to_string();
        entry.set_text(text.as_bytes(), Deadline::Keep)?;
        state_text(entry, text.as_bytes(), etag);
        entry.event(EventClass::STRING, "incrbyfloat");
        Ok(text)
    })?;
    reply.bulk_str(&text);
    Ok(())
}

fn number_at(record: &Record<'_>) -> Result<Extended, CommandError> {
    check_string(Some(record))?;
    if let Some(number) = record.integer() {
        return Ok(number.into());
    }
    if record.len() > extended::TEXT_BYTES_MAX {
        return Err(CommandError::NotFloat);
    }
    Extended::parse(&record.to_vec()).ok_or(CommandError::NotFloat)
}

/// States that a key holds `text`, stored as text. `etag` is the etag it had: only one of the two
/// stated commands may increment it.
fn state_text(entry: &mut Entry<'_>, text: &[u8], etag: u64) {
    if number::parse_i64(text).is_none() {
        return state_set(entry, text, Deadline::Keep);
    }
    let key = entry.key();
    if etag == 0 {
        state_set(entry, text, Deadline::Keep);
    } else {
        let deadline_unix_ms = entry.record().and_then(|record| record.deadline_unix_ms());
        entry.effect(|effect| {
            effect.command(&[b"DEL", key.bytes()]);
            etags::state(effect, key.bytes(), text, etag, deadline_unix_ms);
        });
    }
    entry.effect(|effect| effect.command(&[b"INCRBYFLOAT", key.bytes(), b"0"]));
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn sums_are_exact_to_the_last_digit() {
        let mut server = TestServer::new();
        server.run("SET k 10.50");
        assert_eq!(server.text("INCRBYFLOAT k 0.1"), "10.6");
        assert_eq!(server.text("INCRBYFLOAT k -5"), "5.6");
        server.run("SET k 5.0e3");
        assert_eq!(server.text("INCRBYFLOAT k 2.0e2"), "5200");
        assert_eq!(server.text("INCRBYFLOAT new 3.0"), "3");
        assert_eq!(server.text("INCRBYFLOAT new 0x10"), "19");
    }

    #[test]
    fn a_whole_sum_is_stated_so_that_it_stays_text() {
        let mut server = TestServer::new();
        server.run("SET k 1 EX 100");
        server.run("INCRBYFLOAT k 1");
        server.run("INCRBYFLOAT k 0.5");
        assert_eq!(
            server.effects()[1..],
            ["SET k 2 KEEPTTL", "INCRBYFLOAT k 0", "SET k 2.5 KEEPTTL"]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn what_is_no_number_is_refused() {
        let mut server = TestServer::new();
        server.run("MSET text abc empty '' padded ' 1'");
        for line in [
            "INCRBYFLOAT text 1",
            "INCRBYFLOAT empty 1",
            "INCRBYFLOAT padded 1",
            "INCRBYFLOAT k x",
            "INCRBYFLOAT k nan",
            "INCRBYFLOAT k 1e5000",
        ] {
            assert_eq!(
                server.error(line),
                "ERR value is not a valid float",
                "{line}"
            );
        }
        assert_eq!(
            server.error("INCRBYFLOAT k inf"),
            "ERR increment would produce NaN or Infinity"
        );
        assert!(server.effects().len() == 3, "only what MSET wrote");
    }
}
