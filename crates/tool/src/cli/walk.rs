//! Iteration over all keys by SCAN: their names, the biggest of each type, those that take most
//! memory, or those used most. The output is that of `redis-cli`, for scripts that parse it.

use std::fmt::Write as _;
use std::io::Write;

use protocol::Value;

use super::keys::{refused, scan_step, together};
use super::options::Options;
use super::out::written;
use super::print::{quoted, text_of};
use crate::endpoint::Session;
use crate::error::BenchError;

/// Number of keys after which the pause of `-i` is made.
const KEYS_PER_PAUSE: u64 = 100;

/// Prints the names of all keys, one per line.
pub(super) fn scan(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut session = options.endpoint.connect()?;
    let mut cursor = b"0".to_vec();
    loop {
        let step = scan_step(
            &mut session,
            &cursor,
            options.pattern.as_deref(),
            options.type_name.as_deref(),
            options.count,
        )?;
        let mut text = Vec::new();
        for key in &step.keys {
            if options.is_terminal {
                text.extend_from_slice(quoted(key).as_bytes());
            } else {
                text.extend_from_slice(key);
            }
            text.push(b'\n');
        }
        written(out.write_all(&text).and_then(|()| out.flush()))?;
        cursor = step.cursor;
        if cursor == b"0" {
            return Ok(());
        }
        std::thread::sleep(options.pause);
    }
}

/// The measurement of a type.
struct Kind {
    name: &'static str,
    /// The command that returns its size.
    command: &'static str,
    unit: &'static str,
    keys: u64,
    total: u64,
    biggest: Option<(Vec<u8>, u64)>,
}

const KINDS: [(&str, &str, &str); 6] = [
    ("list", "LLEN", "items"),
    ("hash", "HLEN", "fields"),
    ("string", "STRLEN", "bytes"),
    ("stream", "XLEN", "entries"),
    ("set", "SCARD", "members"),
    ("zset", "ZCARD", "members"),
];

fn kinds(unit: Option<&'static str>) -> Vec<Kind> {
    let kinds = KINDS.iter().map(|&(name, command, own)| Kind {
        name,
        command,
        unit: unit.unwrap_or(own),
        keys: 0,
        total: 0,
        biggest: None,
    });
    kinds.collect()
}

/// Prints the keys with the most elements, for each type.
pub(super) fn big_keys(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    walk(options, None, out)
}

/// Prints the keys that take most memory, for each type.
pub(super) fn memory_keys(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    walk(options, Some(options.samples), out)
}

fn walk(options: &Options, samples: Option<u64>, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut kinds = kinds(samples.map(|_| "bytes"));
    let mut key_bytes = 0_u64;
    let sampled = each_step(options, "biggest", out, &mut |session, step, out| {
        let measured = sizes(session, &step.keys, &kinds, samples)?;
        for (key, found) in step.keys.iter().zip(measured) {
            key_bytes += key.len() as u64;
            let Some((at, size)) = found else { continue };
            let kind = &mut kinds[at];
            kind.keys += 1;
            kind.total = kind.total.saturating_add(size);
            if kind
                .biggest
                .as_ref()
                .is_none_or(|(_, biggest)| *biggest < size)
            {
                let text = format!(
                    "[{:05.2}%] Biggest {:<6} found so far '{}' with {size} {}\n",
                    step.percent,
                    kind.name,
                    quoted(key),
                    kind.unit
                );
                print(out, &text)?;
                kind.biggest = Some((key.clone(), size));
            }
        }
        Ok(())
    })?;
    print(out, &summary(&kinds, sampled, key_bytes))
}

/// Some keys, and how much of the whole was seen before them, in percent.
struct Step {
    keys: Vec<Vec<u8>>,
    percent: f64,
}

/// A function that examines some keys, over the connection they came from.
type Look<'l> = dyn FnMut(&mut Session, Step, &mut dyn Write) -> Result<(), BenchError> + 'l;

/// Iterates over all keys, with pauses. Returns their number. `what` describes the search.
fn each_step(
    options: &Options,
    what: &str,
    out: &mut dyn Write,
    look: &mut Look<'_>,
) -> Result<u64, BenchError> {
    let mut session = options.endpoint.connect()?;
    let total = session.keys_count()?.max(0).unsigned_abs();
    let head = format!(
        "\n# Scanning the entire keyspace to find {what} keys as well as\n# average sizes per key type.  You can use -i 0.1 to \
         sleep 0.1 sec\n# per 100 SCAN commands (not usually needed).\n\n"
    );
    print(out, &head)?;
    let (mut sampled, mut since_pause) = (0_u64, 0);
    let mut cursor = b"0".to_vec();
    loop {
        let percent = percent(sampled, total).min(100.0);
        let step = scan_step(
            &mut session,
            &cursor,
            options.pattern.as_deref(),
            None,
            options.count,
        )?;
        let count = step.keys.len() as u64;
        let keys = step.keys;
        look(&mut session, Step { keys, percent }, out)?;
        sampled += count;
        since_pause += count;
        if since_pause >= KEYS_PER_PAUSE {
            since_pause = 0;
            std::thread::sleep(options.pause);
        }
        cursor = step.cursor;
        if cursor == b"0" {
            return Ok(sampled);
        }
    }
}

/// Maximum number of most used keys that are shown.
const HOT_KEYS_MAX: usize = 16;

/// Prints the keys that are used most, by the counters of a server whose eviction policy counts
/// uses.
pub(super) fn hot_keys(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut hottest: Vec<(u64, Vec<u8>)> = Vec::new();
    let sampled = each_step(options, "hot", out, &mut |session, step, out| {
        for (key, count) in frequencies(session, step.keys)? {
            let at = hottest.partition_point(|(known, _)| *known >= count);
            if count == 0 || at == HOT_KEYS_MAX {
                continue;
            }
            let text = format!(
                "[{:05.2}%] Hot key '{}' found so far with counter {count}\n",
                step.percent,
                quoted(&key)
            );
            print(out, &text)?;
            hottest.insert(at, (count, key));
            hottest.truncate(HOT_KEYS_MAX);
        }
        Ok(())
    })?;
    let mut text =
        format!("\n-------- summary -------\n\nSampled {sampled} keys in the keyspace!\n");
    for (count, key) in &hottest {
        // Writing to a string does not fail.
        let _written = writeln!(
            text,
            "hot key found with counter: {count}\tkeyname: {}",
            quoted(key)
        );
    }
    print(out, &text)
}

/// Returns how often each key was used, as far as that is counted; 0 for a removed key.
fn frequencies(
    session: &mut Session,
    keys: Vec<Vec<u8>>,
) -> Result<Vec<(Vec<u8>, u64)>, BenchError> {
    let requests: Vec<Vec<&[u8]>> = keys
        .iter()
        .map(|key| vec![&b"OBJECT"[..], b"FREQ", key])
        .collect();
    let replies = together(session, &requests)?;
    let counts = replies.into_iter().map(|reply| match reply {
        Value::Integer(count) => Ok(u64::try_from(count).unwrap_or(0)),
        Value::Null => Ok(0),
        // A removed key: other servers have no specific reply for it.
        Value::Error(text) if text.starts_with(b"ERR no such key") => Ok(0),
        other => Err(refused("OBJECT FREQ", &other)),
    });
    keys.into_iter()
        .zip(counts)
        .map(|(key, count)| Ok((key, count?)))
        .collect()
}

/// Returns kind and size of each key, or `None` if it was removed, or has a module's type.
fn sizes(
    session: &mut Session,
    keys: &[Vec<u8>],
    kinds: &[Kind],
    samples: Option<u64>,
) -> Result<Vec<Option<(usize, u64)>>, BenchError> {
    let types: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![&b"TYPE"[..], key]).collect();
    let types = together(session, &types)?;
    let found: Vec<Option<usize>> = types
        .iter()
        .map(|reply| {
            let name = text_of(reply);
            kinds.iter().position(|kind| kind.name.as_bytes() == name)
        })
        .collect();
    let samples_text = samples.map(|samples| samples.to_string());
    let requests: Vec<Vec<&[u8]>> = keys
        .iter()
        .zip(&found)
        .filter_map(|(key, at)| {
            let kind = &kinds[(*at)?];
            Some(match &samples_text {
                None => vec![kind.command.as_bytes(), key],
                Some(samples) => vec![
                    &b"MEMORY"[..],
                    b"USAGE",
                    key,
                    b"SAMPLES",
                    samples.as_bytes(),
                ],
            })
        })
        .collect();
    let mut replies = together(session, &requests)?.into_iter();
    let sizes = found.into_iter().map(|at| {
        let at = at?;
        match replies.next() {
            Some(Value::Integer(size)) => Some((at, u64::try_from(size).ok()?)),
            _ => None,
        }
    });
    Ok(sizes.collect())
}

fn summary(kinds: &[Kind], sampled: u64, key_bytes: u64) -> String {
    let mut text = format!(
        "\n-------- summary -------\n\nSampled {sampled} keys in the keyspace!\nTotal key length in bytes is {key_bytes} (avg \
         len {:.2})\n\n",
        ratio(key_bytes, sampled)
    );
    // Writing to a string does not fail.
    for kind in kinds {
        if let Some((key, size)) = &kind.biggest {
            let _written = writeln!(
                text,
                "Biggest {:>6} found '{}' has {size} {}",
                kind.name,
                quoted(key),
                kind.unit
            );
        }
    }
    text.push('\n');
    for kind in kinds {
        let _written = writeln!(
            text,
            "{} {}s with {} {} ({:05.2}% of keys, avg size {:.2})",
            kind.keys,
            kind.name,
            kind.total,
            kind.unit,
            percent(kind.keys, sampled),
            ratio(kind.total, kind.keys)
        );
    }
    text
}

#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * ratio(part, whole)
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), BenchError> {
    written(out.write_all(text.as_bytes()).and_then(|()| out.flush()))
}
