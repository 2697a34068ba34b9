//! `--lru-test`: reads and writes keys, a few of which are used most, and shows how many reads
//! found their key: how well a server with `maxmemory` keeps the popular keys.

use std::io::Write;

use base::clock::{Clock as _, SystemClock};
use base::random::Prng;
use protocol::Value;

use super::options::Options;
use super::out::written;
use crate::endpoint::Session;
use crate::error::BenchError;

/// Number of writes sent at once, followed by as many reads.
const BATCH: usize = 250;
const CYCLE_NS: u64 = 1_000_000_000;
/// Exponent of the power law by which keys are chosen: four fifths of the requests go to one fifth
/// of the keys.
const EXPONENT: f64 = 6.2;
const VALUE_BYTES: usize = 5;

/// Prints one line per second until the process ends.
pub(super) fn run(options: &Options, keys: u64, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut session = options.endpoint.connect()?;
    let mut random = Prng::from_os();
    let clock = SystemClock::new();
    loop {
        let begin_ns = clock.monotonic_ns();
        let (mut hits, mut misses) = (0_u64, 0_u64);
        while clock.monotonic_ns() - begin_ns < CYCLE_NS {
            write(&mut session, &mut random, keys)?;
            let found = read(&mut session, &mut random, keys)?;
            hits += found.hits;
            misses += found.misses;
        }
        written(out.write_all(line(hits, misses).as_bytes()))?;
        written(out.flush())?;
    }
}

fn line(hits: u64, misses: u64) -> String {
    let all = hits + misses;
    #[expect(clippy::cast_precision_loss, reason = "a percentage of two digits")]
    let percent = |part: u64| part as f64 / all.max(1) as f64 * 100.0;
    let (of_hits, of_misses) = (percent(hits), percent(misses));
    format!("{all} Gets/sec | Hits: {hits} ({of_hits:.2}%) | Misses: {misses} ({of_misses:.2}%)\n")
}

struct Found {
    hits: u64,
    misses: u64,
}

fn write(session: &mut Session, random: &mut Prng, keys: u64) -> Result<(), BenchError> {
    let mut requests = Vec::new();
    for _ in 0..BATCH {
        let key = key(random, keys);
        let value: [u8; VALUE_BYTES] = std::array::from_fn(|_| letter(random));
        protocol::encode_request(&mut requests, &[b"SET", key.as_bytes(), &value]);
    }
    session.send(&requests)?;
    for _ in 0..BATCH {
        // A full server without eviction answers with errors; reads show which keys it has.
        tell_error(&session.reply()?);
    }
    Ok(())
}

fn read(session: &mut Session, random: &mut Prng, keys: u64) -> Result<Found, BenchError> {
    let mut requests = Vec::new();
    for _ in 0..BATCH {
        protocol::encode_request(&mut requests, &[b"GET", key(random, keys).as_bytes()]);
    }
    session.send(&requests)?;
    let mut found = Found { hits: 0, misses: 0 };
    for _ in 0..BATCH {
        match session.reply()? {
            Value::Null => found.misses += 1,
            error @ Value::Error(_) => tell_error(&error),
            _ => found.hits += 1,
        }
    }
    Ok(found)
}

fn tell_error(reply: &Value) {
    if let Value::Error(text) = reply {
        // Without standard error the message is lost.
        let _told = writeln!(std::io::stderr(), "{}", String::from_utf8_lossy(text));
    }
}

fn letter(random: &mut Prng) -> u8 {
    b'A' + u8::try_from(random.below(u64::from(b'z' - b'A'))).unwrap_or_default()
}

/// Chooses one of `keys` keys by a power law: numbers near 1 most often.
fn key(random: &mut Prng, keys: u64) -> String {
    format!("lru:{}", rank(random.unit_f64(), keys))
}

#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "keys are chosen, not counted; what is out of bounds is clamped"
)]
fn rank(share: f64, keys: u64) -> u64 {
    let (power, end) = (EXPONENT + 1.0, (keys + 1) as f64);
    let drawn = ((end.powf(power) - 1.0) * share + 1.0).powf(1.0 / power) as u64;
    (keys + 1).saturating_sub(drawn).clamp(1, keys)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_fifths_of_the_requests_go_to_a_fifth_of_the_keys() {
        let mut random = Prng::seeded(1);
        let ranks: Vec<u64> = (0..10_000).map(|_| rank(random.unit_f64(), 1000)).collect();
        assert!(ranks.iter().all(|rank| (1..=1000).contains(rank)));
        let near = ranks.iter().filter(|rank| **rank <= 200).count();
        assert!((7_800..8_200).contains(&near), "{near}");
        assert_eq!((rank(0.0, 7), rank(1.0, 7)), (7, 1));
    }

    #[test]
    fn a_line_is_as_redis_cli_prints_it() {
        let expected = "4 Gets/sec | Hits: 1 (25.00%) | Misses: 3 (75.00%)\n";
        assert_eq!(line(1, 3), expected);
        assert!(line(0, 0).starts_with("0 Gets/sec"));
    }
}
