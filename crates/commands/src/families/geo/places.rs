//! Locations by name: GEOADD GEOPOS GEODIST GEOHASH.

use base::number::IntegerText;
use engine::args::Args;
use engine::context::Context;
use engine::error::{CommandError, CommandResult};
use engine::spec::{Arity, CommandSpec, Flags, Group, KeyAccess, KeySpec};
use protocol::{Reply, Resp};
use structures::SortedSet;
use structures::geo::Place;

use super::{READ_KEY, place, unit_m};
use crate::families::sorted_sets::{self, Rules};
use crate::structure;

const READER: CommandSpec = CommandSpec {
    flags: Flags::READONLY,
    keys: READ_KEY,
    group: Group::Geo,
    since: "3.2.0",
    ..CommandSpec::BLANK
};

pub(super) const COMMANDS: &[CommandSpec] = &[
    CommandSpec {
        name: "GEOADD",
        arity: Arity::AtLeast(5),
        flags: Flags::WRITE.with(Flags::DENYOOM),
        keys: &[KeySpec::one(1, KeyAccess::RW.with(KeyAccess::UPDATE))],
        history: &[("6.2.0", "Added `CH`, `NX` and `XX`.")],
        summary: "Adds places, or moves them.",
        complexity: "O(log(N)) for each place, where N is the number of members of the set.",
        syntax: "key [NX | XX] [CH:change] longitude:double latitude:double member \
                 [longitude:double latitude:double member ...]",
        handler: geoadd,
        ..READER
    },
    CommandSpec {
        name: "GEOPOS",
        arity: Arity::AtLeast(2),
        summary: "Tells where members are.",
        complexity: "O(N) where N is the number of members asked for.",
        syntax: "key member [member ...]",
        handler: geopos,
        ..READER
    },
    CommandSpec {
        name: "GEODIST",
        arity: Arity::AtLeast(4),
        summary: "Tells how far two members are apart.",
        syntax: "key member1 member2 [M | KM | FT | MI]",
        handler: geodist,
        ..READER
    },
    CommandSpec {
        name: "GEOHASH",
        arity: Arity::AtLeast(2),
        summary: "Gives the standard geohashes of members.",
        complexity: "O(N) where N is the number of members asked for.",
        syntax: "key member [member ...]",
        handler: geohash,
        ..READER
    },
];

fn geoadd(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = args.bytes()?;
    let mut rules = Rules::default();
    loop {
        let rule = match () {
            () if args.take_word("NX") => &mut rules.only_new,
            () if args.take_word("XX") => &mut rules.only_present,
            () if args.take_word("CH") => &mut rules.counts_changes,
            () => break,
        };
        *rule = true;
    }
    let words = args.remaining();
    if words == 0 || !words.is_multiple_of(3) || (rules.only_new && rules.only_present) {
        return Err(CommandError::Syntax);
    }
    let mut members = Vec::with_capacity(words / 3);
    while args.remaining() > 0 {
        let score = place(args)?.score();
        members.push((score, args.bytes()?));
    }
    sorted_sets::add(context, key, rules, &members, reply)
}

/// Writes a value for each requested member, with `None` for a missing one.
fn about_each(
    context: &mut Context<'_>,
    args: &mut Args<'_>,
    reply: &mut Reply<'_>,
    write: impl Fn(Option<Place>, &mut Reply<'_>),
) -> CommandResult {
    let key = context.key(args.bytes()?);
    let request = args.request();
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        reply.array(request.len() - 2);
        for member in request.iter().skip(2) {
            let score = set.and_then(|set| set.score(member));
            write(score.map(Place::of_score), reply);
        }
    })
}

fn geopos(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    about_each(context, args, reply, |place, reply| match place {
        Some(place) => write_place(&place, reply),
        None => reply.null_array(),
    })
}

fn geohash(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    about_each(context, args, reply, |place, reply| match place {
        Some(place) => reply.bulk(&place.geohash()),
        None => reply.null(),
    })
}

fn geodist(context: &mut Context<'_>, args: &mut Args<'_>, reply: &mut Reply<'_>) -> CommandResult {
    let key = context.key(args.bytes()?);
    let (one, other) = (args.bytes()?, args.bytes()?);
    let unit_m = match args.remaining() {
        0 => 1.0,
        1 => unit_m(args.bytes()?)?,
        _ => return Err(CommandError::Syntax),
    };
    structure::read(context, &key, reply, |set: Option<&SortedSet>, reply| {
        let place = |member| set.and_then(|set| set.score(member)).map(Place::of_score);
        match place(one).zip(place(other)) {
            Some((one, other)) => write_distance(one.distance_m(&other) / unit_m, reply),
            None => reply.null(),
        }
    })
}

/// Writes longitude and latitude with all digits.
pub(super) fn write_place(place: &Place, reply: &mut Reply<'_>) {
    reply.array(2);
    for degrees in [place.longitude, place.latitude] {
        let text = format!("{degrees:.17}");
        let text = text.trim_end_matches('0').trim_end_matches('.');
        match reply.version() {
            Resp::V2 => reply.bulk_str(text),
            Resp::V3 => reply.raw(format!(",{text}\r\n").as_bytes()),
        }
    }
}

/// Writes a distance with four decimals.
pub(super) fn write_distance(distance: f64, reply: &mut Reply<'_>) {
    match ten_thousandths(distance) {
        Some(count) => {
            let whole = IntegerText::new_u64(count / 10_000);
            // The leading digit keeps the zeros; the decimal point replaces it.
            let part = IntegerText::new_u64(10_000 + count % 10_000);
            let bytes = whole.as_bytes().len();
            reply.bulk_with(bytes + 5, |room| {
                room[..bytes].copy_from_slice(whole.as_bytes());
                room[bytes..].copy_from_slice(part.as_bytes());
                room[bytes] = b'.';
            });
        }
        None => reply.bulk_str(&format!("{distance:.4}")),
    }
}

/// Returns the nearest number of ten-thousandths, or `None` if the distance is large or close to
/// the middle between two. Printing the exact digits and rounding them takes ten times as long.
#[allow(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "checked to be positive and small"
)]
fn ten_thousandths(distance: f64) -> Option<u64> {
    /// Products below this have an error of less than a thousandth.
    const SCALED_MAX: f64 = 1e12;
    let scaled = distance * 10_000.0;
    let rest = scaled - scaled.floor();
    let is_clear = (0.0..SCALED_MAX).contains(&scaled) && (rest - 0.5).abs() > 1e-3;
    is_clear.then(|| scaled.round() as u64)
}

#[cfg(test)]
mod tests {
    use base::random::Prng;
    use protocol::{Reply, ReplyBuffer, Resp, Value};

    use super::write_distance;
    use testkit::engine_server::TestServer;

    #[test]
    fn places_are_added_and_told() {
        let mut server = TestServer::new();
        let line = "GEOADD s 13.361389 38.115556 Palermo 15.087269 37.502669 Catania";
        assert_eq!(server.integer(line), 2);
        assert_eq!(server.integer("GEOADD s NX 0 0 Palermo"), 0);
        assert_eq!(server.integer("GEOADD s XX CH 0 0 Nowhere"), 0);
        assert_eq!(server.text("GEODIST s Palermo Catania"), "166274.1516");
        assert_eq!(server.text("GEODIST s Palermo Catania km"), "166.2742");
        assert_eq!(server.run("GEODIST s Palermo Nowhere"), Value::Null);
        assert_eq!(server.texts("GEOHASH s Palermo"), ["sqc8b49rny0"]);
        let degrees = ["13.36138933897018433", "38.11555639549629859"];
        let degrees = degrees.map(|text| Value::Bulk(text.as_bytes().to_vec()));
        assert_eq!(
            server.run("GEOPOS s Palermo Nowhere"),
            Value::Array(vec![Value::Array(degrees.to_vec()), Value::NullArray])
        );
        assert_eq!(
            server.effects(),
            ["ZADD s 3479099956230698 Palermo 3479447370796909 Catania"]
        );
    }

    #[test]
    fn distances_are_rounded_as_their_exact_digits_are() {
        let mut random = Prng::seeded(9);
        for _ in 0..20_000 {
            let distance = random.unit_f64() * 10_f64.powf(random.unit_f64() * 9.0 - 4.0);
            for distance in [distance, (distance * 20_000.0).round() / 20_000.0] {
                let mut buffer = ReplyBuffer::new();
                write_distance(distance, &mut Reply::new(&mut buffer, Resp::V2));
                let expected = format!("{distance:.4}");
                let expected = format!("${}\r\n{expected}\r\n", expected.len());
                assert_eq!(buffer.as_slice(), expected.as_bytes());
            }
        }
    }

    #[test]
    fn arguments_are_checked() {
        let mut server = TestServer::new();
        assert_eq!(
            server.error("GEOADD s 200 90 x"),
            "ERR invalid longitude,latitude pair 200.000000,90.000000"
        );
        assert_eq!(
            server.error("GEOADD s a 0 x"),
            "ERR value is not a valid float"
        );
        assert_eq!(server.error("GEOADD s 1 2 x 3"), "ERR syntax error");
        assert_eq!(server.error("GEOADD s NX XX 1 2 x"), "ERR syntax error");
        assert_eq!(server.error("GEODIST s a b m x"), "ERR syntax error");
        assert!(
            server
                .error("GEODIST s a b ly")
                .contains("unsupported unit")
        );
    }
}
