//! Changes of sets.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, KeyAccess, KeySpec};
use protocol::Reply;
use store::{Entry, Event, EventClass, Key};
use structures::{Set, SetLimits};

use super::members::Members;
use super::read::choose;
use super::{READER, limits, state, write_members};
use crate::chance::Wanted;
use crate::structure::begins_batch;

/// The base row of this file.
const WRITER: CommandSpec = CommandSpec {
    flags: Flags::WRITE.with(Flags::FAST),
    ..READER
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "SADD",
        element: Some(2),
        arity: Arity::AtLeast(3),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::FAST),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::INSERT))],
        history: &[("2.4.0", "Takes several members.")],
        summary: "Adds members to a set; says how many were not there before.",
        complexity: "O(N) where N is the number of members to be added.",
        syntax: "key member [member ...]",
        handler: sadd,
        ..WRITER
    },
    CommandSpec {
        name: "SREM",
        element: Some(2),
        arity: Arity::AtLeast(3),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::DELETE))],
        history: &[("2.4.0", "Takes several members.")],
        summary: "Removes members, and with the last one the key; says how many were there.",
        complexity: "O(N) where N is the number of members to be removed.",
        syntax: "key member [member ...]",
        handler: srem,
        ..WRITER
    },
    CommandSpec {
        name: "SPOP",
        arity: Arity::AtLeast(2),
        keys: TAKEN_KEY,
        history: &[("3.2.0", "Takes a count.")],
        summary: "Removes members by chance and gives them.",
        complexity: "O(1) without a count, otherwise O(N) where N is the count.",
        syntax: "key [count]",
        tips: &["nondeterministic_output"],
        handler: spop,
        ..WRITER
    },
    CommandSpec {
        name: "SMOVE",
        arity: Arity::Exactly(4),
        keys: &[
            KeySpec::one(
                1,
                KeyAccess::RW
                    .with(KeyAccess::ACCESS)
                    .with(KeyAccess::DELETE),
            ),
            KeySpec::one(2, KeyAccess::RW.with(KeyAccess::INSERT)),
        ],
        summary: "Moves a member from one set to another, in one step.",
        syntax: "source destination member",
        handler: smove,
        ..WRITER
    },
];

/// The key of a command that removes members and returns them.
const TAKEN_KEY: &[KeySpec] = &[KeySpec::one(
    1,
    KeyAccess::RW
        .with(KeyAccess::ACCESS)
        .with(KeyAccess::DELETE),
)];

fn sadd(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let members = args.rest();
    let limits = limits(context);
    let added = context.store.modify(&key, |entry| {
        let added = entry.change_or_create(|set: &mut Set| {
            set.expect(
                members.clone().next().unwrap_or_default(),
                members.len(),
                &limits,
            )?;
            let (mut added, mut ahead) = (0, members);
            for (index, member) in members.enumerate() {
                if begins_batch(index, members.len()) {
                    set.prefetch(ahead.by_ref());
                }
                added += usize::from(set.insert(member, &limits)?);
            }
            Ok::<_, CommandError>(added)
        })??;
        if added > 0 {
            state(entry, b"SADD", members);
            entry.event(EventClass::SET, "sadd");
        }
        Ok::<_, CommandError>(added)
    })?;
    reply.count(added);
    Ok(())
}

fn srem(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let members = args.rest();
    let removed = context.store.modify(&key, |entry| {
        let removed = entry.change(|set: &mut Set| {
            let (mut removed, mut ahead) = (0, members);
            for (index, member) in members.enumerate() {
                if begins_batch(index, members.len()) {
                    set.prefetch(ahead.by_ref());
                }
                removed += usize::from(set.remove(member));
            }
            removed
        })?;
        let removed = removed.unwrap_or(0);
        if removed > 0 {
            state(entry, b"SREM", members);
            entry.event_of_taking(EventClass::SET, "srem");
        }
        Ok::<_, CommandError>(removed)
    })?;
    reply.count(removed);
    Ok(())
}

fn spop(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    if args.remaining() == 0 {
        return pop_one(context, &key, reply);
    }
    if args.remaining() > 1 {
        return Err(CommandError::Syntax);
    }
    let count = args.integer().ok();
    let count = count.and_then(|count| usize::try_from(count).ok());
    let count = count.ok_or(CommandError::fixed(
        "ERR value is out of range, must be positive",
    ))?;
    let (mut random, pace) = (context.random.fork(), context.pace);
    context.store.modify(&key, |entry| {
        let Some(record) = entry.record() else {
            reply.set(0);
            return Ok(());
        };
        let set = record.structure::<Set>()?;
        pace.admit(Wanted::Different(count).steps(set.len()))?;
        if count >= set.len() {
            write_members(&set, reply);
            entry.remove();
            let key = entry.key();
            entry.effect(|effect| effect.command(&[b"DEL", key.bytes()]));
            entry.event_of_taking(EventClass::SET, "spop");
            return Ok(());
        }
        let mut taken = Members::default();
        for member in choose(&set, Wanted::Different(count), &mut random) {
            taken.push(member.as_bytes());
        }
        reply.set(taken.len());
        taken.iter().for_each(|member| reply.bulk(member));
        take(entry, &taken)
    })
}

fn pop_one(context: &mut Context<'_>, key: &Key<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let Context { store, random, .. } = context;
    store.modify(key, |entry| {
        let mut taken = Members::default();
        if let Some(record) = entry.record() {
            let set = record.structure::<Set>()?;
            if let Some(member) = set.random(|| random.next_u64()) {
                taken.push(member.as_bytes());
            }
        }
        match taken.iter().next() {
            Some(member) => reply.bulk(member),
            None => reply.null(),
        }
        take(entry, &taken)
    })
}

/// Removes existing members, and states it.
fn take(entry: &mut Entry<'_>, taken: &Members) -> CommandResult {
    if taken.is_empty() {
        return Ok(());
    }
    entry.change(|set: &mut Set| {
        for member in taken.iter() {
            set.remove(member);
        }
    })?;
    state(entry, b"SREM", taken.iter());
    entry.event_of_taking(EventClass::SET, "spop");
    Ok(())
}

fn smove(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let source = context.key(args.bytes()?);
    let destination = context.key(args.bytes()?);
    let member = args.bytes()?;
    let limits = limits(context);
    let moved = context.store.locked(&[source, destination], |store| {
        let is_there = store.inspect(&source, |record| {
            let set = record.map(|record| record.structure::<Set>()).transpose()?;
            Ok::<_, CommandError>(set.map(|set| set.contains(member)))
        })?;
        let Some(is_there) = is_there else {
            return Ok(false);
        };
        store.inspect(&destination, |record| {
            record.map(|record| record.structure::<Set>()).transpose()?;
            Ok::<_, CommandError>(())
        })?;
        if !is_there || source.bytes() == destination.bytes() {
            return Ok(is_there);
        }
        // The addition comes first: it can fail, and nothing may be lost then.
        let added = store.modify(&destination, |entry| add(entry, member, &limits))?;
        store.modify(&source, |entry| {
            entry.change(|set: &mut Set| set.remove(member))?;
            state(entry, b"SREM", std::iter::once(member));
            entry.event_of_taking(EventClass::SET, "srem");
            Ok::<_, CommandError>(())
        })?;
        if added.is_new_key {
            store.event(&destination, EventClass::NEW, Event::CREATED);
        }
        if added.is_new_member {
            store.event(&destination, EventClass::SET, "sadd");
        }
        Ok::<_, CommandError>(true)
    })?;
    reply.integer(i64::from(moved));
    Ok(())
}

/// The result of adding one member.
struct Added {
    is_new_key: bool,
    is_new_member: bool,
}

/// Adds one member, and states it if it is new. The caller raises the events.
fn add(entry: &mut Entry<'_>, member: &[u8], limits: &SetLimits) -> Result<Added, CommandError> {
    let is_new_key = !entry.is_present();
    entry.leave_new_unsaid();
    let is_new_member = entry.change_or_create(|set: &mut Set| {
        set.expect(member, 1, limits)?;
        set.insert(member, limits)
    })??;
    if is_new_member {
        state(entry, b"SADD", std::iter::once(member));
    }
    Ok(Added {
        is_new_key,
        is_new_member,
    })
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn members_come_and_go() {
        let mut server = TestServer::new();
        assert_eq!(server.integer("SADD s a b a"), 2);
        assert_eq!(server.integer("SADD s a"), 0);
        assert_eq!(server.integer("SADD s c"), 1);
        assert_eq!(server.integer("SREM s a none"), 1);
        assert_eq!(server.integer("SREM none a"), 0);
        assert_eq!(server.integer("SREM s b c"), 2);
        assert_eq!(server.integer("EXISTS s"), 0);
        assert_eq!(
            server.effects(),
            ["SADD s a b a", "SADD s c", "SREM s a none", "SREM s b c"]
        );
        server.assert_effects_replay();
    }

    #[test]
    fn what_is_popped_is_stated() {
        let mut server = TestServer::new();
        server.run("SADD s a b c d e f");
        let popped = server.text("SPOP s");
        assert_eq!(server.effects()[1..], [format!("SREM s {popped}")]);
        server.run("SPOP s 2");
        assert_eq!(server.integer("SCARD s"), 3);
        server.run("SPOP s 9");
        assert_eq!(server.effects()[1..], ["DEL s"]);
        assert_eq!(server.run("SPOP s"), Value::Null);
        server.assert_effects_replay();
    }

    #[test]
    fn a_member_moves_as_one_step() {
        let mut server = TestServer::new();
        server.run("SADD one a b");
        server.run("SADD two a");
        assert_eq!(server.integer("SMOVE one two b"), 1);
        assert_eq!(server.integer("SMOVE one two a"), 1);
        assert_eq!(server.integer("EXISTS one"), 0);
        assert_eq!(server.integer("SMOVE one two a"), 0);
        assert_eq!(server.integer("SMOVE two two a"), 1);
        assert_eq!(server.integer("SMOVE two two none"), 0);
        assert_eq!(
            server.effects()[2..],
            ["SADD two b", "SREM one b", "SREM one a"]
        );
        server.assert_effects_replay();
    }
}
