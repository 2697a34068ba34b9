//! All keys of both servers, compared as values; what differs is repaired where that is wanted.

use base::clock::{Clock as _, SystemClock};

use super::copy::Copying;
use super::link::{Held, Link, is_same};
use super::{Options, Outcome};
use crate::cli::keys::scan_step;
use crate::error::BenchError;

/// Servers without deadlines as times round what is left of them, and clocks differ.
const TOLERANCE_MS: i64 = 1_000;
/// A key that differs is looked at again so often: it may have changed between the two looks.
const LOOKS: u32 = 3;

pub(super) fn run(options: &Options, outcome: &mut Outcome) -> Result<(), BenchError> {
    let mut copying = Copying::begin(options)?;
    let mut databases: Vec<u32> = copying
        .source
        .session
        .keyspace()?
        .iter()
        .map(|(number, _)| *number)
        .collect();
    databases.extend(
        copying
            .target
            .session
            .keyspace()?
            .iter()
            .map(|(number, _)| *number),
    );
    databases.sort_unstable();
    databases.dedup();
    databases.retain(|number| options.has_database(*number));
    for database in databases {
        walk(&mut copying, options, database, Side::Source, outcome)?;
        // What only the target has.
        walk(&mut copying, options, database, Side::Target, outcome)?;
    }
    Ok(())
}

/// Whose keys are walked through.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

fn walk(
    copying: &mut Copying<'_>,
    options: &Options,
    database: u32,
    side: Side,
    outcome: &mut Outcome,
) -> Result<(), BenchError> {
    let mut cursor = b"0".to_vec();
    loop {
        let link = match side {
            Side::Source => &mut copying.source,
            Side::Target => &mut copying.target,
        };
        link.select(database)?;
        let pattern = options.pattern.as_deref();
        let step = scan_step(&mut link.session, &cursor, pattern, None, options.count)?;
        let keys = match side {
            Side::Source => step.keys,
            Side::Target => missing(copying, database, step.keys)?,
        };
        if side == Side::Source {
            outcome.compared += keys.len() as u64;
        }
        let mut differing = keys;
        for _ in 0..LOOKS {
            differing = differences(copying, database, &differing, outcome)?;
            if differing.is_empty() {
                break;
            }
        }
        outcome.differing += differing.len() as u64;
        if options.repairs && !differing.is_empty() {
            let failed = outcome.failed;
            copying.copy(database, &differing, outcome)?;
            outcome.repaired += differing.len() as u64 - (outcome.failed - failed);
        } else {
            for key in &differing {
                outcome
                    .failures
                    .push((key.escape_ascii().to_string(), "differs".to_owned()));
                outcome.failures.truncate(super::FAILURES_NAMED);
            }
        }
        cursor = step.cursor;
        if cursor == b"0" {
            return Ok(());
        }
    }
}

/// The keys that the source has not: those that it has were compared.
fn missing(
    copying: &mut Copying<'_>,
    database: u32,
    keys: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, BenchError> {
    copying.source.select(database)?;
    let requests: Vec<Vec<&[u8]>> = keys.iter().map(|key| vec![&b"EXISTS"[..], key]).collect();
    let replies = crate::cli::keys::together(&mut copying.source.session, &requests)?;
    let missing = keys.into_iter().zip(replies);
    let missing = missing.filter(|(_, reply)| *reply == protocol::Value::Integer(0));
    Ok(missing.map(|(key, _)| key).collect())
}

/// The keys that do not hold the same on both sides.
fn differences(
    copying: &mut Copying<'_>,
    database: u32,
    keys: &[Vec<u8>],
    outcome: &mut Outcome,
) -> Result<Vec<Vec<u8>>, BenchError> {
    let now_unix_ms = SystemClock::new().now_unix_ms();
    let read = |link: &mut Link| {
        link.select(database)?;
        link.read(keys, now_unix_ms)
    };
    let source = read(&mut copying.source)?;
    let target = read(&mut copying.target)?;
    let mut differing = Vec::new();
    for ((key, source), target) in keys.iter().zip(source).zip(target) {
        match same(source, target) {
            Ok(true) => {}
            Ok(false) => differing.push(key.clone()),
            Err(reason) => outcome.fail(key, &reason),
        }
    }
    Ok(differing)
}

fn same(
    source: Result<Option<Held>, String>,
    target: Result<Option<Held>, String>,
) -> Result<bool, String> {
    match (source?, target?) {
        (None, None) => Ok(true),
        (Some(source), Some(target)) => is_same(&source, &target, TOLERANCE_MS),
        _ => Ok(false),
    }
}
