//! Locations in an area: GEOSEARCH GEOSEARCHSTORE GEORADIUS GEORADIUSBYMEMBER and the read-only
//! forms.

use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{
    Arity, Begin, CommandSpec, Deprecation, Find, Flags, Group, KeyAccess, KeySpec,
};
use protocol::Reply;
use structures::geo::{Place, Shape};
use structures::{ElementText, SortedSet, SortedSetLimits};

use super::READ_KEY;
use super::places::{write_distance, write_place};
use super::query::{Form, Order, Query};
use crate::families::sorted_sets::shared::store_result;
use crate::structure::{self, write_count};
use engine::keys::KeyList;

const COST: &str = "O(N+log(M)) where N is the number of members in the cells around the area, and M \
                    the number of members inside.";

const SEARCH: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(7),
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::Geo,
    since: "6.2.0",
    history: &[("7.0.0", "Units may be written in capitals.")],
    complexity: COST,
    ..CommandSpec::BLANK
};

/// The base row of GEORADIUS and its variants.
const RADIUS: CommandSpec = CommandSpec {
    arity: Arity::AtLeast(6),
    since: "3.2.0",
    ..SEARCH
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "GEOSEARCH",
        summary: "Finds the places in a circle or box.",
        syntax: "key <FROMMEMBER member | FROMLONLAT longitude:double latitude:double> \
                 <BYRADIUS radius:double <M | KM | FT | MI> | \
                 <BYBOX width:double> height:double <M | KM | FT | MI>> \
                 [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        handler: |context, args, reply| {
            let source = args.bytes()?;
            search(context, args, reply, Form::Search, source)
        },
        ..SEARCH
    },
    CommandSpec {
        name: "GEOSEARCHSTORE",
        arity: Arity::AtLeast(8),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[
            KeySpec::one(1, KeyAccess::OW.with(KeyAccess::UPDATE)),
            KeySpec::one(2, KeyAccess::RO.with(KeyAccess::ACCESS)),
        ],
        summary: "Keeps the places in a circle or box at a key.",
        syntax: "destination source \
                 <FROMMEMBER member | FROMLONLAT longitude:double latitude:double> \
                 <BYRADIUS radius:double <M | KM | FT | MI> | \
                 <BYBOX width:double> height:double <M | KM | FT | MI>> \
                 [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
        handler: |context, args, reply| {
            let target = args.bytes()?;
            let source = args.bytes()?;
            search_and_store(
                context,
                args,
                reply,
                Form::SearchStore,
                source,
                Some(target),
            )
        },
        ..SEARCH
    },
    CommandSpec {
        name: "GEORADIUS",
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLE_KEYS),
        keys: &[
            KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS)),
            target("STORE", 6),
            target("STOREDIST", 6),
        ],
        history: &[
            ("6.2.0", "Added `ANY`."),
            ("7.0.0", "Units may be written in capitals."),
        ],
        deprecated: instead("`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument"),
        summary: "Finds the places around a place, and may keep them at a key.",
        syntax: "key longitude:double latitude:double radius:double <M | KM | FT | MI> [WITHCOORD] \
                 [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
        handler: |context, args, reply| {
            let source = args.bytes()?;
            search_and_store(
                context,
                args,
                reply,
                Form::Radius { stores: true },
                source,
                None,
            )
        },
        ..RADIUS
    },
    CommandSpec {
        name: "GEORADIUSBYMEMBER",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.with(Flags::DENYOOM).with(Flags::MOVABLE_KEYS),
        keys: &[
            KeySpec::one(1, KeyAccess::RO.with(KeyAccess::ACCESS)),
            target("STORE", 5),
            target("STOREDIST", 5),
        ],
        deprecated: instead(
            "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
        ),
        summary: "Finds the places around a member, and may keep them at a key.",
        syntax: "key member radius:double <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
                 [COUNT count [ANY]] [ASC | DESC] [STORE key] [STOREDIST key]",
        handler: |context, args, reply| {
            let (source, form) = (args.bytes()?, Form::RadiusByMember { stores: true });
            search_and_store(context, args, reply, form, source, None)
        },
        ..RADIUS
    },
    CommandSpec {
        name: "GEORADIUS_RO",
        since: "3.2.10",
        history: &[("6.2.0", "Added `ANY`.")],
        deprecated: instead("`GEOSEARCH` with the `BYRADIUS` argument"),
        summary: "Finds the places around a place.",
        syntax: "key longitude:double latitude:double radius:double <M | KM | FT | MI> [WITHCOORD] \
                 [WITHDIST] [WITHHASH] [COUNT count [ANY]] [ASC | DESC]",
        handler: |context, args, reply| {
            let source = args.bytes()?;
            search(context, args, reply, Form::Radius { stores: false }, source)
        },
        ..RADIUS
    },
    CommandSpec {
        name: "GEORADIUSBYMEMBER_RO",
        arity: Arity::AtLeast(5),
        since: "3.2.10",
        history: &[],
        deprecated: instead("`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments"),
        summary: "Finds the places around a member.",
        syntax: "key member radius:double <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
                 [COUNT count [ANY]] [ASC | DESC]",
        handler: |context, args, reply| {
            let source = args.bytes()?;
            search(
                context,
                args,
                reply,
                Form::RadiusByMember { stores: false },
                source,
            )
        },
        ..RADIUS
    },
];

const fn target(word: &'static str, from: i16) -> KeySpec {
    KeySpec {
        begin: Begin::Keyword(word, from),
        find: Find::Range {
            last: 0,
            step: 1,
            limit: 0,
        },
        access: KeyAccess::OW.with(KeyAccess::UPDATE),
        notes: "",
    }
}

const fn instead(what: &'static str) -> Option<Deprecation> {
    Some(Deprecation {
        since: "6.2.0",
        replaced_by: what,
    })
}

/// A member inside the area.
struct Hit<'s> {
    member: ElementText<'s>,
    score: f64,
    place: Place,
    distance_m: f64,
}

/// Replies with the members in an area.
fn search(
    context: &mut Context<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    form: Form,
    source: &[u8],
) -> CommandResult {
    let source = context.key(source);
    let behind = args.request().len() - args.remaining();
    structure::read(context, &source, reply, |set: Option<&SortedSet>, reply| {
        let mut args = Args::new(args.request(), behind);
        let query = Query::parse(&mut args, form, None, set)?;
        let hits = set.map_or_else(Vec::new, |set| find(set, &query));
        write_hits(&hits, &query, reply);
        Ok::<_, CommandError>(())
    })?
}

/// Stores the members in an area at the destination key, if there is one.
fn search_and_store(
    context: &mut Context<'_>,
    args: &Args<'_>,
    reply: &mut Reply<'_>,
    form: Form,
    source: &[u8],
    target: Option<&[u8]>,
) -> CommandResult {
    let behind = args.request().len() - args.remaining();
    let named = target.or_else(|| stored_at(args));
    let Some(named) = named else {
        return search(context, args, reply, form, source);
    };
    let (source, locked) = (context.key(source), context.key(named));
    let keys: KeyList<'_> = [source, locked].into_iter().collect();
    let limits = context.shared.settings.thresholds.sorted_set_limits();
    let count = context.locked(&keys, |context| {
        let found = structure::read(context, &source, reply, |set: Option<&SortedSet>, _| {
            let mut args = Args::new(args.request(), behind);
            let query = Query::parse(&mut args, form, target, set)?;
            let hits = set.map_or_else(Vec::new, |set| find(set, &query));
            Ok::<_, CommandError>((result_of(&hits, &query, &limits)?, hits.len()))
        })?;
        let (result, count) = found?;
        let event = match target {
            Some(_) => "geosearchstore",
            None => "georadiusstore",
        };
        store_result(context, &locked, result, event)?;
        Ok::<_, CommandError>(count)
    })?;
    write_count(reply, count);
    Ok(())
}

/// Returns the sorted set to store for the members found.
fn result_of(
    hits: &[Hit<'_>],
    query: &Query<'_>,
    limits: &SortedSetLimits,
) -> Result<SortedSet, CommandError> {
    let longest = hits.iter().map(|hit| hit.member.as_bytes().len()).max();
    let mut result = SortedSet::for_members(hits.len(), longest.unwrap_or(0), limits);
    for hit in hits {
        let score = match query.stores_distances {
            true => hit.distance_m / query.unit_m,
            false => hit.score,
        };
        let added = result.insert(hit.member.as_bytes(), score, limits);
        added.map_err(|_| CommandError::OutOfMemory)?;
    }
    Ok(result)
}

/// Returns the last key after STORE or STOREDIST, which is the destination if the options are
/// valid.
fn stored_at<'a>(args: &Args<'a>) -> Option<&'a [u8]> {
    let words: Vec<&[u8]> = args.request().iter().collect();
    let start = words.len() - args.remaining();
    let is_word = |word: &[u8]| {
        word.eq_ignore_ascii_case(b"STORE") || word.eq_ignore_ascii_case(b"STOREDIST")
    };
    let mut found = None;
    let mut at = start;
    while at + 1 < words.len() {
        if is_word(words[at]) {
            found = Some(words[at + 1]);
            at += 1;
        } else if words[at].eq_ignore_ascii_case(b"COUNT") {
            at += 1;
        }
        at += 1;
    }
    found
}

/// Number of members from which the requested ones are selected before sorting.
const SELECTED_FROM: usize = 1024;

/// Returns the requested members in the requested order.
fn find<'s>(set: &'s SortedSet, query: &Query<'_>) -> Vec<Hit<'s>> {
    let Some(shape) = query.shape() else {
        return Vec::new();
    };
    let limit = if query.takes_any { query.count } else { 0 };
    let mut hits = hits_in(set, &shape, limit);
    if let Some(order) = query.order {
        let compare = |one: &Hit<'_>, two: &Hit<'_>| match order {
            Order::Nearest => one.distance_m.total_cmp(&two.distance_m),
            Order::Farthest => two.distance_m.total_cmp(&one.distance_m),
        };
        if (1..hits.len() / 4).contains(&query.count) && hits.len() >= SELECTED_FROM {
            hits.select_nth_unstable_by(query.count, compare);
            hits.truncate(query.count);
        }
        hits.sort_by(compare);
    }
    if query.count > 0 {
        hits.truncate(query.count);
    }
    hits
}

/// Returns the members in an area in the order of its cells, at most `limit` (0 for all).
fn hits_in<'s>(set: &'s SortedSet, shape: &Shape, limit: usize) -> Vec<Hit<'s>> {
    let mut hits = Vec::new();
    for (first, end) in shape.score_ranges() {
        let ranks = set.rank_of_score(first, false)..set.rank_of_score(end, false);
        for one in set.range(ranks) {
            let place = Place::of_score(one.score);
            let Some(distance_m) = shape.distance_inside_m(&place) else {
                continue;
            };
            hits.push(Hit {
                member: one.member,
                score: one.score,
                place,
                distance_m,
            });
            if hits.len() == limit {
                return hits;
            }
        }
    }
    hits
}

#[allow(
    clippy::cast_possible_truncation,
    reason = "what is no cell's number is shown as some"
)]
fn write_hits(hits: &[Hit<'_>], query: &Query<'_>, reply: &mut Reply<'_>) {
    let options = [query.with_distance, query.with_score, query.with_place];
    let more = options.into_iter().filter(|is_set| *is_set).count();
    reply.array(hits.len());
    for hit in hits {
        if more > 0 {
            reply.array(1 + more);
        }
        reply.bulk(hit.member.as_bytes());
        if query.with_distance {
            write_distance(hit.distance_m / query.unit_m, reply);
        }
        if query.with_score {
            reply.integer(hit.score as i64);
        }
        if query.with_place {
            write_place(&hit.place, reply);
        }
    }
}

#[cfg(test)]
mod tests {
    use testkit::engine_server::TestServer;

    fn sicily() -> TestServer {
        let mut server = TestServer::new();
        server.run(
            "GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 12.758489 38.788135 \
             edge1 17.241510 38.788135 edge2",
        );
        server.effects();
        server
    }

    #[test]
    fn places_in_circles_and_boxes_are_found() {
        let mut server = sicily();
        assert_eq!(
            server.texts("GEOSEARCH s FROMLONLAT 15 37 BYRADIUS 200 km ASC"),
            ["Catania", "Palermo"]
        );
        assert_eq!(
            server.texts("GEOSEARCH s FROMLONLAT 15 37 BYBOX 400 400 km DESC"),
            ["edge1", "edge2", "Palermo", "Catania"]
        );
        assert_eq!(
            server.texts("GEOSEARCH s FROMMEMBER Palermo BYRADIUS 100 km"),
            ["Palermo", "edge1"]
        );
        assert_eq!(
            server.texts("GEORADIUS s 15 37 200 km COUNT 1"),
            ["Catania"]
        );
        assert_eq!(server.texts("GEORADIUSBYMEMBER_RO s edge2 1 m"), ["edge2"]);
        assert_eq!(server.texts("GEORADIUS none 15 37 200 km"), [""; 0]);
    }

    #[test]
    fn results_are_stored() {
        let mut server = sicily();
        assert_eq!(
            server.integer("GEOSEARCHSTORE d s FROMLONLAT 15 37 BYRADIUS 200 km"),
            2
        );
        assert_eq!(
            server.integer("GEORADIUS s 15 37 200 km COUNT 1 STOREDIST d"),
            1
        );
        assert_eq!(server.integer("GEORADIUSBYMEMBER none x 1 m STORE d"), 0);
        let effects = server.effects();
        assert_eq!(
            effects[..2],
            [
                "ZADD d 3479099956230698 Palermo 3479447370796909 Catania",
                "DEL d"
            ]
        );
        assert!(effects[2].starts_with("ZADD d 56.4412578701582"));
        assert_eq!(effects[3], "DEL d");
    }

    #[test]
    fn the_nearest_of_many_are_found_in_order() {
        let mut server = TestServer::new();
        for number in 0..2_000 {
            server.run(&format!("GEOADD many 10.{number:04} 40 {number}"));
        }
        let nearest = server.texts("GEOSEARCH many FROMLONLAT 10.0999 40 BYRADIUS 100 km COUNT 4");
        assert_eq!(nearest[0], "999");
        assert_eq!(nearest.len(), 4);
        let farthest = "GEOSEARCH many FROMLONLAT 10 40 BYRADIUS 100 km COUNT 3 DESC";
        assert_eq!(server.texts(farthest), ["1999", "1998", "1997"]);
    }

    #[test]
    fn options_are_checked() {
        let mut server = sicily();
        for (line, part) in [
            (
                "GEOSEARCH s BYRADIUS 1 m ASC ASC",
                "FROMLONLAT can be specified for GEOSEARCH",
            ),
            (
                "GEOSEARCH s FROMMEMBER Palermo ASC ASC ASC",
                "BYRADIUS and BYBOX can be",
            ),
            (
                "GEOSEARCH s FROMMEMBER nobody BYRADIUS 1 m",
                "could not decode",
            ),
            (
                "GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m ANY",
                "requires COUNT",
            ),
            (
                "GEOSEARCH s FROMMEMBER Palermo BYRADIUS 1 m COUNT 0",
                "COUNT must be > 0",
            ),
            (
                "GEOSEARCH s FROMMEMBER Palermo BYRADIUS x m",
                "need numeric radius",
            ),
            (
                "GEOSEARCH s FROMMEMBER Palermo BYBOX -1 1 m",
                "cannot be negative",
            ),
            (
                "GEORADIUS s 1 1 1 m WITHDIST STORE d",
                "STORE option in GEORADIUS is not",
            ),
            ("GEORADIUS_RO s 1 1 1 m STORE d", "ERR syntax error"),
            (
                "GEOSEARCH s FROMLONLAT 1 1 FROMMEMBER Palermo BYRADIUS 1 m",
                "ERR syntax error",
            ),
        ] {
            assert!(server.error(line).contains(part), "{line}");
        }
    }
}
