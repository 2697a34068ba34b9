//! Iteration over members: ZSCAN.

use base::float::FloatText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use structures::{Encoding, SortedSet};

use super::shared::READ_KEY;
use crate::structure;
use crate::walk::{WalkOptions, WalkWords, parse_cursor, write_cursor};

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "ZSCAN",
    arity: Arity::AtLeast(3),
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::SortedSet,
    since: "2.8.0",
    summary: "Walks the members of a sorted set a few at a time.",
    complexity: "O(1) a call, O(N) for the whole walk.",
    syntax: "key cursor [MATCH pattern] [COUNT count] [NOSCORES]",
    tips: &["nondeterministic_output"],
    handler: zscan,
    ..CommandSpec::BLANK
}];

fn zscan(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let cursor = parse_cursor(args.bytes()?)?;
    let options = WalkOptions::parse(args, WalkWords::NoScores);
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        let Some(set) = set else {
            write_cursor(0, reply);
            reply.array(0);
            return Ok(());
        };
        // The options are checked only if there is a set.
        let options = options.clone()?;
        let mut found = Vec::new();
        let next = set.scan(cursor, options.count, |one| {
            if options.accepts(one.member.as_bytes()) {
                found.push((one.member.as_bytes().to_vec(), score_text(set, one.score)));
            }
        });
        write_cursor(next, reply);
        reply.array(found.len() * if options.without_values { 1 } else { 2 });
        for (member, score) in &found {
            reply.bulk(member);
            if !options.without_values {
                reply.bulk(score.as_bytes());
            }
        }
        Ok::<_, CommandError>(())
    })?
}

/// Returns a score as text. Scores are texts here, also in RESP3: those of a small set as they are
/// written elsewhere, those of a large set with seventeen digits.
fn score_text(set: &SortedSet, score: f64) -> FloatText {
    match set.encoding() {
        Encoding::Listpack => FloatText::shortest(score),
        _ => FloatText::seventeen(score),
    }
}

#[cfg(test)]
mod tests {
    use protocol::Value;

    use testkit::engine_server::TestServer;

    #[test]
    fn a_walk_meets_every_member_of_every_form() {
        for count in [5, 1_000] {
            let mut server = TestServer::new();
            for number in 0..count {
                server.run(&format!("ZADD z {number} m{number}"));
            }
            let (mut seen, mut cursor) = (Vec::new(), "0".to_owned());
            loop {
                let Value::Array(parts) = server.run(&format!("ZSCAN z {cursor} COUNT 20")) else {
                    panic!("a walk has two parts");
                };
                let [Value::Bulk(next), Value::Array(members)] = &parts[..] else {
                    panic!("a walk has two parts");
                };
                seen.extend(members.iter().step_by(2).cloned());
                cursor = String::from_utf8(next.clone()).unwrap();
                if cursor == "0" {
                    break;
                }
            }
            seen.sort_by_key(|one| format!("{one:?}"));
            seen.dedup();
            assert_eq!(seen.len(), count);
        }
    }

    #[test]
    fn options_count_only_when_there_is_a_set() {
        let mut server = TestServer::new();
        let empty = Value::Array(vec![Value::Bulk(b"0".to_vec()), Value::Array(vec![])]);
        assert_eq!(server.run("ZSCAN none 0 NONSENSE"), empty);
        server.run("ZADD z 1 a 2 b");
        assert_eq!(server.error("ZSCAN z 0 NONSENSE"), "ERR syntax error");
        assert_eq!(server.error("ZSCAN z x"), "ERR invalid cursor");
        let found = Value::Array(vec![Value::Bulk(b"b".to_vec()), Value::Bulk(b"2".to_vec())]);
        assert_eq!(
            server.run("ZSCAN z 0 MATCH b*"),
            Value::Array(vec![Value::Bulk(b"0".to_vec()), found])
        );
        let found = Value::Array(vec![Value::Bulk(b"b".to_vec())]);
        assert_eq!(
            server.run("ZSCAN z 0 NOSCORES MATCH b* COUNT 5"),
            Value::Array(vec![Value::Bulk(b"0".to_vec()), found])
        );
        assert_eq!(server.error("ZSCAN z 0 NOVALUES"), "ERR syntax error");
    }
}
