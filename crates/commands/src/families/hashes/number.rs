//! Fields that hold numbers.
//!
//! Fractions are added as 80-bit numbers, as in Redis, to the last digit.

use base::extended::{self, Extended};
use base::number::{IntegerText, parse_i64};
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec};
use protocol::Reply;
use store::{Entry, EventClass};
use structures::{FieldDeadline, Hash};

use super::{TAKEN_KEY, WRITER, change_or_create, limits};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HINCRBY",
        element: Some(2),
        arity: Arity::Exactly(4),
        keys: TAKEN_KEY,
        summary: "Adds a whole number to that of a field, which counts as 0 when absent.",
        syntax: "key field increment:integer",
        handler: hincrby,
        ..WRITER
    },
    CommandSpec {
        name: "HINCRBYFLOAT",
        element: Some(2),
        arity: Arity::Exactly(4),
        keys: TAKEN_KEY,
        since: "2.6.0",
        summary: "Adds a decimal fraction to the number of a field.",
        syntax: "key field increment:double",
        handler: hincrbyfloat,
        ..WRITER
    },
];

fn hincrby(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (name, summand) = (args.bytes()?, args.integer()?);
    let sum = add(context, &key, name, "hincrby", |value| {
        let number = match value {
            None => 0,
            Some(text) => {
                parse_i64(text).ok_or(CommandError::fixed("ERR hash value is not an integer"))?
            }
        };
        let sum = number.checked_add(summand).ok_or(CommandError::fixed(
            "ERR increment or decrement would overflow",
        ))?;
        Ok(IntegerText::new(sum).as_bytes().to_vec())
    })?;
    reply.integer(parse_i64(&sum).unwrap_or_default());
    Ok(())
}

fn hincrbyfloat(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (name, summand) = (args.bytes()?, args.bytes()?);
    let summand = Extended::parse(summand).ok_or(CommandError::NotFloat)?;
    if summand.is_nan() || summand.is_infinite() {
        return Err(CommandError::fixed("ERR value is NaN or Infinity"));
    }
    let sum = add(context, &key, name, "hincrbyfloat", |value| {
        let number = match value {
            None => Some(Extended::from(0)),
            Some(text) if text.len() > extended::TEXT_BYTES_MAX => None,
            Some(text) => Extended::parse(text),
        };
        let number = number.ok_or(CommandError::fixed("ERR hash value is not a float"))?;
        let sum = number + summand;
        if sum.is_nan() || sum.is_infinite() {
            return Err(CommandError::fixed(
                "ERR increment would produce NaN or Infinity",
            ));
        }
        Ok(sum.to_string().into_bytes())
    })?;
    reply.bulk(&sum);
    Ok(())
}

/// Sets a field to the result of `sum` on its value. The field keeps its deadline.
fn add(
    context: &mut Context<'_>,
    key: &store::Key<'_>,
    name: &[u8],
    event: &'static str,
    sum: impl FnOnce(Option<&[u8]>) -> Result<Vec<u8>, CommandError>,
) -> Result<Vec<u8>, CommandError> {
    let (now, limits) = (context.now_unix_ms, limits(context));
    context.store.modify(key, |entry| {
        let (text, has_deadline) = change_or_create(entry, now, |hash: &mut Hash| {
            let field = hash.get(name, now);
            let has_deadline = field
                .as_ref()
                .is_some_and(|one| one.deadline_unix_ms.is_some());
            let text = sum(field.as_ref().map(|field| field.value.as_bytes()))?;
            hash.set(name, &text, FieldDeadline::Keep, now, &limits)?;
            Ok((text, has_deadline))
        })?;
        state_sum(entry, name, &text, has_deadline);
        entry.event(EventClass::HASH, event);
        Ok(text)
    })
}

fn state_sum(entry: &mut Entry<'_>, name: &[u8], text: &[u8], has_deadline: bool) {
    let key = entry.key();
    entry.effect(|effect| {
        if has_deadline {
            let parts = [
                b"HSETEX",
                key.bytes(),
                b"KEEPTTL",
                b"FIELDS",
                b"1",
                name,
                text,
            ];
            effect.command(&parts);
        } else {
            effect.command(&[b"HSET", key.bytes(), name, text]);
        }
    });
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn sums_are_kept_and_stated() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("HINCRBY h n 5"), 5);
        assert_eq!(server.integer("HINCRBY h n -7"), -2);
        assert_eq!(server.text("HINCRBYFLOAT h n 2.5"), "0.5");
        assert_eq!(server.text("HINCRBYFLOAT h new 1e2"), "100");
        assert_eq!(
            server.effects(),
            [
                "HSET h n 5",
                "HSET h n -2",
                "HSET h n 0.5",
                "HSET h new 100"
            ]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn what_is_no_number_is_refused_and_stays() {
        let mut server = TestServer::new();
        server.run("HSET h text abc long 9223372036854775807");
        let not_integer = "ERR hash value is not an integer";
        assert_eq!(server.error("HINCRBY h text 1"), not_integer);
        assert_eq!(
            server.error("HINCRBYFLOAT h text 1"),
            "ERR hash value is not a float"
        );
        assert_eq!(
            server.error("HINCRBY h long 1"),
            "ERR increment or decrement would overflow"
        );
        assert_eq!(
            server.error("HINCRBY none n x"),
            "ERR value is not an integer or out of range"
        );
        assert_eq!(server.text("HGET h text"), "abc");
        assert_eq!(server.integer("EXISTS none"), 0);
    }

    #[test]
    fn a_deadline_survives_an_addition() {
        let mut server = TestServer::new();
        server.run("HSET h n 1");
        server.run("HPEXPIRE h 1000 FIELDS 1 n");
        server.run("HINCRBY h n 1");
        assert_eq!(
            server.effects().last().unwrap(),
            "HSETEX h KEEPTTL FIELDS 1 n 2"
        );
        server.assert_effects_replay();
        server.advance_ms(1000);
        assert_eq!(server.integer("HEXISTS h n"), 0);
    }
}
