//! PERSIST: removes the deadline of a key. A KeyDB primary may also name a member whose deadline it
//! removes: here that is a field of a hash. For clients it is an argument too many.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use protocol::Reply;
use store::{EventClass, Key};
use structures::{Hash, Object};

pub(super) fn persist(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    if args.remaining() > 0 {
        return persist_field(context, &key, args.bytes()?, reply);
    }
    let changed = context.store.modify(&key, |entry| {
        let has_deadline = entry
            .record()
            .is_some_and(|record| record.deadline_unix_ms().is_some());
        if has_deadline {
            entry.set_deadline(None)?;
            entry.effect(|effect| effect.command(&[b"PERSIST", key.bytes()]));
            entry.event(EventClass::GENERIC, "persist");
        }
        Ok::<_, CommandError>(has_deadline)
    })?;
    reply.integer(i64::from(changed));
    Ok(())
}

/// Removes the deadline of a field. A value that is not a hash has none.
fn persist_field(
    context: &mut Context<'_>,
    key: &Key<'_>,
    name: &[u8],
    reply: &mut Reply<'_>,
) -> CommandResult {
    let now = context.now_unix_ms;
    let changed = context.store.modify(key, |entry| {
        let is_hash = entry.record().is_some_and(|record| {
            let object = record.object();
            matches!(object.as_deref(), Some(Object::Hash(_)))
        });
        if !is_hash {
            return Ok(false);
        }
        let changed = entry.change::<Hash, _>(|hash| {
            let field = hash.get(name, now);
            let has_deadline = field.is_some_and(|field| field.deadline_unix_ms.is_some());
            if has_deadline {
                hash.set_deadline(name, None)?;
            }
            Ok::<_, CommandError>(has_deadline)
        })?;
        let changed = changed.transpose()?.unwrap_or(false);
        if changed {
            let words = [b"HPERSIST", key.bytes(), b"FIELDS", b"1", name];
            entry.effect(|effect| effect.command(&words));
            entry.event(EventClass::HASH, "hpersist");
        }
        Ok::<_, CommandError>(changed)
    })?;
    reply.integer(i64::from(changed));
    Ok(())
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    #[test]
    fn a_primary_may_take_the_deadline_of_a_field_away() {
        let mut server = TestServer::new();
        let arity = "ERR wrong number of arguments for 'persist' command";
        for line in ["HSET h a 1 b 2", "SADD s a", "HPEXPIRE h 500 FIELDS 2 a b"] {
            server.run(line);
        }
        assert_eq!(server.error("PERSIST h a"), arity);
        server.set_primary(true);
        assert_eq!(server.error("PERSIST h a b"), arity);
        for (line, answer) in [
            ("PERSIST h a", 1),
            ("PERSIST h a", 0),
            ("PERSIST h none", 0),
            ("PERSIST none a", 0),
            ("PERSIST s a", 0),
        ] {
            assert_eq!(server.integer(line), answer, "{line}");
        }
        assert_eq!(server.effects().last().unwrap(), "HPERSIST h FIELDS 1 a");
        server.advance_ms(500);
        assert_eq!(server.integer("HLEN h"), 1);
        server.assert_effects_replay();
    }
}
