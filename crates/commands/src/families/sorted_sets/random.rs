//! Random members: ZRANDMEMBER.

use std::collections::HashSet;

use base::random::Prng;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group};
use protocol::Reply;
use structures::SortedSet;

use super::shared::{READ_KEY, Shape};
use crate::chance::{RandomCount, Wanted};
use crate::structure;

pub(super) const COMMANDS: &[CommandSpec] = &[CommandSpec {
    name: "ZRANDMEMBER",
    arity: Arity::AtLeast(2),
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::SortedSet,
    since: "6.2.0",
    summary: "Gives members by chance: one, several different ones, or so many draws.",
    complexity: "O(M*log(N)) where M is the number of members returned and N that of the set.",
    syntax: "key [count [WITHSCORES]]",
    tips: &["nondeterministic_output"],
    handler: zrandmember,
    ..CommandSpec::BLANK
}];

fn zrandmember(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let mut random = context.random.fork();
    if args.remaining() == 0 {
        return structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
            let drawn = set.and_then(|set| {
                let rank = random.index(set.len());
                set.range(rank..rank + 1).next()
            });
            match drawn {
                Some(one) => reply.bulk(one.member.as_bytes()),
                None => reply.null(),
            }
        });
    }
    let count = RandomCount::parse(args, Some("WITHSCORES"))?.within(context.replies_bytes_max());
    let pace = context.pace;
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        let Some(set) = set else {
            reply.array(0);
            return Ok(());
        };
        pace.admit(count.wanted()?.steps(set.len()))?;
        let ranks = choose(set.len(), count.wanted()?, &mut random);
        let shape = Shape::of(count.with_word, reply);
        shape.begin(reply, ranks.len());
        for rank in ranks {
            let drawn = set.range(rank..rank + 1);
            drawn.for_each(|one| shape.write(reply, &one));
        }
        Ok::<_, CommandError>(())
    })?
}

/// Returns random ranks below `len`.
fn choose(len: usize, wanted: Wanted, random: &mut Prng) -> Vec<usize> {
    let wanted = match wanted {
        Wanted::Draws(count) => return (0..count).map(|_| random.index(len)).collect(),
        Wanted::Different(count) => count.min(len),
    };
    // Floyd's sampling (Bentley, CACM 30/9): one draw per wanted rank.
    let mut seen = HashSet::with_capacity(wanted);
    let mut chosen = Vec::with_capacity(wanted);
    for last in len - wanted..len {
        let drawn = random.index(last + 1);
        let rank = if seen.insert(drawn) { drawn } else { last };
        seen.insert(rank);
        chosen.push(rank);
    }
    chosen
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use base::random::Prng;
    use protocol::Value;

    use super::{Wanted, choose};
    use testkit::engine_server::TestServer;

    #[test]
    fn chosen_ranks_are_different_ones() {
        let mut random = Prng::seeded(3);
        for (len, count) in [(1, 1), (10, 3), (10, 10), (10, 20), (1_000, 999)] {
            let chosen = choose(len, Wanted::Different(count), &mut random);
            let different: BTreeSet<usize> = chosen.iter().copied().collect();
            assert_eq!(chosen.len(), len.min(count));
            assert_eq!(different.len(), chosen.len());
            assert!(chosen.iter().all(|rank| *rank < len));
        }
        assert_eq!(choose(3, Wanted::Draws(50), &mut random).len(), 50);
    }

    #[test]
    fn members_come_by_chance() {
        let mut server = TestServer::new();
        server.run("ZADD z 1 a 2 b 3 c");
        assert!(["a", "b", "c"].contains(&&server.text("ZRANDMEMBER z")[..]));
        let mut all = server.texts("ZRANDMEMBER z 5");
        all.sort();
        assert_eq!(all, ["a", "b", "c"]);
        assert_eq!(server.texts("ZRANDMEMBER z -7 WITHSCORES").len(), 14);
        assert_eq!(server.run("ZRANDMEMBER none"), Value::Null);
        assert_eq!(server.texts("ZRANDMEMBER none 2"), [""; 0]);
        assert_eq!(server.error("ZRANDMEMBER z 1 x"), "ERR syntax error");
    }
}
