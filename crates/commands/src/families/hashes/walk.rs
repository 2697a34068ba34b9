//! Iteration over fields, and random fields.

use std::collections::HashSet;

use base::random::Prng;
use engine::args::Args;
use engine::context::Context;
use engine::error::CommandResult;
use engine::spec::{Arity, CommandSpec, Flags};
use protocol::{Reply, Resp};
use structures::{Field, Hash};

use super::{READER, read};
use crate::chance::{RandomCount, Selection, Wanted, are_few};
use crate::structure;
use crate::walk::{WalkOptions, WalkWords, parse_cursor, write_cursor};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "HSCAN",
        arity: Arity::AtLeast(3),
        flags: Flags::READONLY,
        since: "2.8.0",
        summary: "Walks the fields of a hash a few at a time.",
        complexity: "O(1) a call, O(N) for the whole walk.",
        syntax: "key cursor [MATCH pattern] [COUNT count] [NOVALUES]",
        tips: &["nondeterministic_output"],
        handler: hscan,
        ..READER
    },
    CommandSpec {
        name: "HRANDFIELD",
        arity: Arity::AtLeast(2),
        flags: Flags::READONLY,
        since: "6.2.0",
        summary: "Gives fields by chance: one, several different ones, or so many draws.",
        complexity: "O(N) where N is the number of fields returned",
        syntax: "key [count [WITHVALUES]]",
        tips: &["nondeterministic_output"],
        handler: hrandfield,
        ..READER
    },
];

fn hscan(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let cursor = parse_cursor(args.bytes()?)?;
    let now = context.now_unix_ms;
    structure::read(context, &key, reply, |hash: Option<&Hash>, reply| {
        // An absent key is answered before the options are checked, as in Redis.
        let Some(hash) = hash else {
            write_cursor(0, reply);
            reply.array(0);
            return Ok(());
        };
        let options = WalkOptions::parse(&mut args.clone(), WalkWords::NoValues)?;
        let mut found = Vec::new();
        let next = hash.scan(cursor, options.count, now, |field| {
            if options.accepts(field.name.as_bytes()) {
                found.push(field);
            }
        });
        write_cursor(next, reply);
        reply.array(found.len() * if options.without_values { 1 } else { 2 });
        for field in &found {
            reply.bulk(field.name.as_bytes());
            if !options.without_values {
                reply.bulk(field.value.as_bytes());
            }
        }
        Ok(())
    })?
}

fn hrandfield(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let now = context.now_unix_ms;
    let mut random = context.random.fork();
    if args.remaining() == 0 {
        return read(context, &key, reply, |hash, reply| {
            match hash.random(now, || random.next_u64()) {
                Some(field) => reply.bulk(field.name.as_bytes()),
                None => reply.null(),
            }
        });
    }
    let count = RandomCount::parse(args, Some("WITHVALUES"))?.within(context.replies_bytes_max());
    let pace = context.pace;
    structure::read(context, &key, reply, |hash: Option<&Hash>, reply| {
        let Some(hash) = hash else {
            reply.array(0);
            return Ok(());
        };
        pace.admit_steps(count.wanted()?.steps(hash.len()))?;
        let chosen = choose(hash, count.wanted()?, now, &mut random);
        write_chosen(&chosen, count.with_word, reply);
        Ok(())
    })?
}

/// Returns random fields.
fn choose<'h>(hash: &'h Hash, wanted: Wanted, now: u64, random: &mut Prng) -> Vec<Field<'h>> {
    match wanted {
        Wanted::Draws(count) => {
            let mut draw = || hash.random(now, || random.next_u64());
            std::iter::from_fn(&mut draw).take(count).collect()
        }
        Wanted::Different(count) if are_few(count, hash.len_at(now)) => {
            choose_few(hash, count, now, random)
        }
        Wanted::Different(count) => {
            let mut selection = Selection::new(count, hash.len_at(now));
            let fields = hash.iter(now);
            fields.filter(|_| selection.takes(random)).collect()
        }
    }
}

/// Draws until there are `wanted` different fields, which are a small part of all.
fn choose_few<'h>(hash: &'h Hash, wanted: usize, now: u64, random: &mut Prng) -> Vec<Field<'h>> {
    let (mut seen, mut chosen) = (HashSet::new(), Vec::with_capacity(wanted));
    while chosen.len() < wanted {
        let Some(field) = hash.random(now, || random.next_u64()) else {
            break;
        };
        if seen.insert(field.name.as_bytes().to_vec()) {
            chosen.push(field);
        }
    }
    chosen
}

fn write_chosen(chosen: &[Field<'_>], with_values: bool, reply: &mut Reply<'_>) {
    let in_pairs = with_values && reply.version() == Resp::V3;
    let flat = if with_values && !in_pairs { 2 } else { 1 };
    reply.array(chosen.len() * flat);
    for field in chosen {
        if in_pairs {
            reply.array(2);
        }
        reply.bulk(field.name.as_bytes());
        if with_values {
            reply.bulk(field.value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    fn texts(value: Value) -> Vec<String> {
        let Value::Array(elements) = value else {
            panic!("expected an array, got {value:?}");
        };
        let text = |element| match element {
            Value::Bulk(text) => String::from_utf8(text).unwrap(),
            other => panic!("expected a string, got {other:?}"),
        };
        elements.into_iter().map(text).collect()
    }

    fn filled(count: usize) -> TestServer {
        let mut server = TestServer::new();
        for number in 0..count {
            server.run(&format!("HSET h f{number} {number}"));
        }
        server
    }

    #[test]
    fn chosen_fields_are_different_ones() {
        for len in [5, 100, 1_000] {
            let mut server = filled(len);
            for count in [1, 3, len / 2, len, len + 5] {
                let mut chosen = texts(server.run(&format!("HRANDFIELD h {count}")));
                chosen.sort();
                chosen.dedup();
                assert_eq!(chosen.len(), count.min(len));
            }
            let drawn = texts(server.run("HRANDFIELD h -2000 WITHVALUES"));
            assert_eq!(drawn.len(), 4_000);
            assert!(drawn.chunks(2).all(|pair| pair[0][1..] == pair[1]));
        }
    }

    #[test]
    fn a_walk_meets_every_field_once() {
        let mut server = filled(1_000);
        let (mut cursor, mut seen) = ("0".to_owned(), Vec::new());
        loop {
            let Value::Array(parts) = server.run(&format!("HSCAN h {cursor} NOVALUES COUNT 20"))
            else {
                panic!("expected two parts");
            };
            let [Value::Bulk(next), fields] = &parts[..] else {
                panic!("expected two parts");
            };
            seen.extend(texts(fields.clone()));
            cursor = String::from_utf8(next.clone()).unwrap();
            if cursor == "0" {
                break;
            }
        }
        seen.sort();
        assert_eq!(seen.len(), 1_000);
        seen.dedup();
        assert_eq!(seen.len(), 1_000);
    }
}
