//! Compares all keys of both ends as values, and repairs differences if requested.

use base::clock::Clock as _;

use super::copy::Copying;
use super::end::{End, Looked};
use super::follow::Followed;
use super::keys::Digest;
use super::ledger::Ledger;
use super::link::{Held, is_about, is_same};
use super::{Options, Outcome};
use crate::endpoint::Address;
use crate::error::BenchError;

/// Servers that do not report deadlines as times round the remaining time, and clocks differ.
const TOLERANCE_MS: i64 = 1_000;
/// How often a differing key is compared again: it may have changed between the two reads.
const LOOKS: u32 = 3;

/// What to do with differing keys.
#[derive(Clone, Copy)]
struct Plan {
    /// Whether differing keys are copied.
    repairs: bool,
    /// Whether keys that only the target has are deleted.
    deletes: bool,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    compared: u64,
    differing: u64,
    repaired: u64,
}

/// Compares all keys of both ends, and repairs differences if requested.
pub(super) fn run(options: &Options, outcome: &mut Outcome) -> Result<(), BenchError> {
    let mut copying = Copying::begin(options)?;
    let plan = Plan {
        repairs: options.repairs,
        deletes: options.repairs,
    };
    let before = outcome.clone();
    for _ in 0..LOOKS {
        let found = both(&mut copying, plan, outcome, &mut |_| Ok(()))?;
        outcome.compared = found.compared;
        outcome.differing = found.differing;
        outcome.repaired = found.repaired;
        let mut is_disturbed = copying.source.take_disturbed();
        is_disturbed |= copying.target.take_disturbed();
        if !is_disturbed {
            return Ok(());
        }
        outcome.failures.clone_from(&before.failures);
        outcome.failed = before.failed;
    }
    Err(BenchError::Refused {
        request: "--compare".to_owned(),
        reply: "servers changed or were lost each time".to_owned(),
    })
}

/// Repairs what was missed: copies differing keys, and deletes keys that only the target has, if
/// all its keys came from the source.
pub(super) fn check(
    copying: &mut Copying<'_>,
    ledger: &mut Ledger,
    mut followed: Option<&mut Followed<'_>>,
    outcome: &mut Outcome,
) -> Result<(), BenchError> {
    let plan = Plan {
        repairs: true,
        deletes: ledger.target_was_empty(),
    };
    let found = both(copying, plan, outcome, &mut |copying| {
        copying.listen(ledger, followed.as_deref_mut())
    })?;
    outcome.checked += found.compared;
    outcome.put_right += found.repaired;
    Ok(())
}

/// Called after each step, so that nothing waits for long.
type EachStep<'s, 'o> = &'s mut dyn FnMut(&mut Copying<'o>) -> Result<(), BenchError>;

fn both<'o>(
    copying: &mut Copying<'o>,
    plan: Plan,
    outcome: &mut Outcome,
    each_step: EachStep<'_, 'o>,
) -> Result<Found, BenchError> {
    let mut found = Found::default();
    // Keys that only the target has are found in the second pass.
    for side in [Side::Source, Side::Target] {
        if side == Side::Target && plan.repairs && !plan.deletes {
            break;
        }
        for address in side.of(copying).addresses() {
            let Some(Looked { process, keyspace }) = side.of(copying).look_patiently(&address)?
            else {
                continue;
            };
            for (database, _) in keyspace {
                if copying.options.has_database(database) {
                    let walk = Walk {
                        side,
                        address: &address,
                        process: &process,
                        database,
                        plan,
                    };
                    walk.go(copying, &mut found, outcome, each_step)?;
                }
            }
        }
    }
    Ok(found)
}

/// The end whose keys are iterated.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Side {
    Source,
    Target,
}

impl Side {
    fn of<'c>(self, copying: &'c mut Copying<'_>) -> &'c mut End {
        match self {
            Self::Source => &mut copying.source,
            Self::Target => &mut copying.target,
        }
    }
}

/// An iteration over a database of a server.
struct Walk<'w> {
    side: Side,
    address: &'w Address,
    process: &'w str,
    database: u32,
    plan: Plan,
}

impl Walk<'_> {
    /// Runs the iteration. It stops if the server is lost: that end is disturbed then, and
    /// everything is iterated again.
    fn go<'o>(
        &self,
        copying: &mut Copying<'o>,
        found: &mut Found,
        outcome: &mut Outcome,
        each_step: EachStep<'_, 'o>,
    ) -> Result<(), BenchError> {
        let options = copying.options;
        let mut cursor = b"0".to_vec();
        loop {
            let step = (cursor.as_slice(), options.pattern.as_deref(), options.count);
            let end = self.side.of(copying);
            let step = end.scan(self.address, self.process, self.database, step)?;
            let Some(step) = step else {
                return Ok(());
            };
            each_step(copying)?;
            let keys = match self.side {
                Side::Source => step.keys,
                Side::Target => missing(copying, self.database, step.keys)?,
            };
            if self.side == Side::Source {
                found.compared += keys.len() as u64;
            }
            self.look_at(copying, keys, found, outcome)?;
            cursor = step.cursor;
            if cursor == b"0" {
                return Ok(());
            }
        }
    }

    /// Compares keys, and handles those that differ by the plan.
    fn look_at(
        &self,
        copying: &mut Copying<'_>,
        keys: Vec<Vec<u8>>,
        found: &mut Found,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        let mut differing = keys;
        if copying.options.by_digest && self.side == Side::Source {
            differing = unlike(copying, self.database, differing)?;
        }
        for _ in 0..LOOKS {
            if differing.is_empty() {
                return Ok(());
            }
            differing = differences(copying, self.database, &differing, outcome)?;
        }
        found.differing += differing.len() as u64;
        if self.plan.repairs {
            let failed = outcome.failed;
            copying.copy(self.database, &differing, outcome)?;
            found.repaired += differing.len() as u64 - (outcome.failed - failed);
            return Ok(());
        }
        for key in &differing {
            outcome
                .failures
                .push((key.escape_ascii().to_string(), "differs".to_owned()));
            outcome.failures.truncate(super::FAILURES_NAMED);
        }
        Ok(())
    }
}

/// Returns the keys that the source lacks: those that it has were already compared.
fn missing(
    copying: &mut Copying<'_>,
    database: u32,
    keys: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, BenchError> {
    copying.pace(keys.len());
    let names: Vec<&[u8]> = keys.iter().map(Vec::as_slice).collect();
    let there = copying.source.have(database, &names)?;
    let missing = keys.into_iter().zip(there).filter(|(_, there)| !there);
    Ok(missing.map(|(key, _)| key).collect())
}

/// Returns the keys whose digests differ or are unavailable: they are compared as values.
fn unlike(
    copying: &mut Copying<'_>,
    database: u32,
    keys: Vec<Vec<u8>>,
) -> Result<Vec<Vec<u8>>, BenchError> {
    copying.pace(keys.len());
    let now_unix_ms = copying.clock.now_unix_ms();
    let source = copying.source.digests(database, &keys, now_unix_ms)?;
    let target = copying.target.digests(database, &keys, now_unix_ms)?;
    let alike = |(source, target): (Option<Digest>, Option<Digest>)| match (source, target) {
        (Some(source), Some(target)) => {
            source.value == target.value
                && is_about(
                    source.deadline_unix_ms,
                    target.deadline_unix_ms,
                    TOLERANCE_MS,
                )
        }
        _ => false,
    };
    let looked = keys.into_iter().zip(source.into_iter().zip(target));
    Ok(looked
        .filter_map(|(key, both)| (!alike(both)).then_some(key))
        .collect())
}

/// Returns the keys whose contents differ between the ends.
fn differences(
    copying: &mut Copying<'_>,
    database: u32,
    keys: &[Vec<u8>],
    outcome: &mut Outcome,
) -> Result<Vec<Vec<u8>>, BenchError> {
    copying.pace(keys.len());
    let now_unix_ms = copying.clock.now_unix_ms();
    let source = copying.source.read(database, keys, now_unix_ms)?;
    let target = copying.target.read(database, keys, now_unix_ms)?;
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
