//! BITOP.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Deadline, Event, EventClass, Handle, Key};

use crate::families::strings::shared::check_string;
use engine::keys::KeyList;

pub(super) const BITOP: CommandSpec = CommandSpec {
    name: "BITOP",
    arity: Arity::AtLeast(4),
    flags: Flags::WRITE.with(Flags::DENYOOM),
    keys: &[
        KeySpec::one(2, KeyAccess::OW.with(KeyAccess::UPDATE)),
        KeySpec::range(3, -1, 1, KeyAccess::RO.with(KeyAccess::ACCESS)),
    ],
    group: Group::Bitmap,
    since: "2.6.0",
    summary: "Combines the bits of strings and keeps the result at another key.",
    complexity: "O(N)",
    syntax: "<AND | OR | XOR | NOT> destkey key [key ...]",
    handler: bitop,
    ..CommandSpec::BLANK
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Operation {
    And,
    Or,
    Xor,
    Not,
}

impl Operation {
    fn parse(args: &mut Args<'_>) -> Result<Self, CommandError> {
        match args.option_word().as_ref().map(|word| word.as_bytes()) {
            Some(b"AND") => Ok(Self::And),
            Some(b"OR") => Ok(Self::Or),
            Some(b"XOR") => Ok(Self::Xor),
            Some(b"NOT") => Ok(Self::Not),
            _ => Err(CommandError::Syntax),
        }
    }

    /// Combines `result` with the bytes of another source at the same position.
    fn apply(self, result: &mut [u8], source: &[u8]) {
        let pairs = result.iter_mut().zip(source);
        match self {
            Self::And => pairs.for_each(|(result, source)| *result &= source),
            Self::Or => pairs.for_each(|(result, source)| *result |= source),
            Self::Xor => pairs.for_each(|(result, source)| *result ^= source),
            Self::Not => pairs.for_each(|(result, source)| *result = !source),
        }
    }
}

fn bitop(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let operation = Operation::parse(args)?;
    if operation == Operation::Not && args.remaining() != 2 {
        return Err(CommandError::fixed(
            "ERR BITOP NOT must be called with a single source key.",
        ));
    }
    let keys: KeyList<'_> = args.map(|name| context.key(name)).collect();
    let Some((destination, sources)) = keys.split_first() else {
        return Err(CommandError::Syntax);
    };
    let len = context.store.locked(&keys, |store| {
        let result = combine(operation, store, sources)?;
        keep(store, destination, &result)?;
        Ok::<_, CommandError>(result.len())
    })?;
    reply.integer(i64::try_from(len).unwrap_or(i64::MAX));
    Ok(())
}

/// Combines the sources. The result is as long as the longest source; shorter ones are padded with
/// zero bytes.
fn combine(
    operation: Operation,
    store: &mut Handle,
    sources: &[Key<'_>],
) -> Result<Vec<u8>, CommandError> {
    let mut len = 0;
    for source in sources {
        len = len.max(store.read(source, |record| {
            check_string(record)?;
            Ok::<_, CommandError>(record.map_or(0, |record| record.len()))
        })?);
    }
    let mut result = vec![0; len];
    for (index, source) in sources.iter().enumerate() {
        let operation = match (index, operation) {
            // The first source is copied.
            (0, Operation::And | Operation::Xor) => Operation::Or,
            (_, operation) => operation,
        };
        apply_source(operation, store, source, &mut result);
    }
    Ok(result)
}

/// Combines `result` with one source. Not a read, because a read may run twice and XOR must not.
fn apply_source(operation: Operation, store: &mut Handle, source: &Key<'_>, result: &mut [u8]) {
    store.modify(source, |entry| {
        let mut rest = result;
        if let Some(record) = entry.record() {
            record.for_each_chunk(0..record.len(), |chunk| {
                let taken = std::mem::take(&mut rest);
                let (part, behind) = taken.split_at_mut(chunk.len().min(taken.len()));
                operation.apply(part, chunk);
                rest = behind;
            });
        }
        if operation == Operation::And {
            rest.fill(0);
        }
    });
}

fn keep(store: &mut Handle, destination: &Key<'_>, result: &[u8]) -> CommandResult {
    store.modify(destination, |entry| {
        let existed = if result.is_empty() {
            entry.remove()
        } else {
            let existed = entry.is_present();
            entry.set_raw(result, Deadline::Never)?;
            existed
        };
        if result.is_empty() && !existed {
            return Ok(());
        }
        entry.effect(|effect| {
            if existed {
                effect.command(&[b"DEL", destination.bytes()]);
            }
            if !result.is_empty() {
                effect.command(&[b"SETRANGE", destination.bytes(), b"0", result]);
            }
        });
        if !result.is_empty() {
            entry.event(EventClass::STRING, "set");
        } else {
            entry.event(EventClass::GENERIC, Event::DELETED);
        }
        Ok(())
    })
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn result_of(line: &str) -> Value {
        let mut server = TestServer::new();
        server.run("MSET a \"\\xff\\x0f\\xaa\" b \"\\x0f\\xff\"");
        assert_eq!(server.integer(line), 3);
        server.assert_effects_replay();
        server.run("GET d")
    }

    #[test]
    fn shorter_sources_end_in_zero_bytes() {
        let bulk = |bytes: &[u8]| Value::Bulk(bytes.to_vec());
        assert_eq!(result_of("BITOP AND d a b"), bulk(b"\x0f\x0f\0"));
        assert_eq!(result_of("BITOP and d b a"), bulk(b"\x0f\x0f\0"));
        assert_eq!(result_of("BITOP OR d a b"), bulk(b"\xff\xff\xaa"));
        assert_eq!(result_of("BITOP XOR d a b"), bulk(b"\xf0\xf0\xaa"));
        assert_eq!(result_of("BITOP XOR d a a b"), bulk(b"\x0f\xff\0"));
        assert_eq!(result_of("BITOP NOT d a"), bulk(b"\0\xf0\x55"));
        assert_eq!(result_of("BITOP AND d a none"), bulk(b"\0\0\0"));
    }

    #[test]
    fn the_destination_may_be_a_source_and_loses_its_deadline() {
        let mut server = TestServer::new();
        server.run("SET a 12 EX 100");
        assert_eq!(server.integer("BITOP OR a a"), 2);
        assert_eq!(server.text("GET a"), "12");
        assert_eq!(server.effects()[1..], ["DEL a", "SETRANGE a 0 12"]);
        assert_eq!(server.dump()[0].3, None);
        server.assert_effects_replay();
    }

    #[test]
    fn an_empty_result_deletes() {
        let mut server = TestServer::new();
        server.run("SET d v");
        assert_eq!(server.integer("BITOP OR d none"), 0);
        assert_eq!(server.integer("BITOP OR d none"), 0);
        assert_eq!(server.effects(), ["SET d v", "DEL d"]);
        server.assert_effects_replay();
    }

    #[test]
    fn operations_are_checked() {
        let mut server = TestServer::new();
        assert_eq!(server.error("BITOP FOO d a"), "ERR syntax error");
        assert_eq!(
            server.error("BITOP NOT d a b"),
            "ERR BITOP NOT must be called with a single source key."
        );
    }
}
