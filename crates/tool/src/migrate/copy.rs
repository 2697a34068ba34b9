//! The copy: all keys once by SCAN, and those that changed again.

use std::io::Write as _;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};

use super::follow::Followed;
use super::ledger::{DONE, Ledger};
use super::link::{Held, Link, rewritten};
use super::{Options, Outcome};
use crate::cli::keys::scan_step;
use crate::error::BenchError;

/// Steps with more bytes are made smaller.
const STEP_BYTES_MAX: usize = 32 << 20;
/// A line says how it goes so often.
const LINE_EVERY_NS: u64 = 1_000_000_000;
/// The copy is complete when so few keys are left that changed, this often in a row.
const QUIET_ROUNDS: u32 = 3;
/// Between two looks at what changed.
const FOLLOW_PAUSE: Duration = Duration::from_millis(20);

/// A copy under way.
pub(super) struct Copying<'o> {
    options: &'o Options,
    pub(super) source: Link,
    pub(super) target: Link,
    clock: SystemClock,
    begin_ns: u64,
    line_ns: u64,
    /// Keys of all databases, as a hint.
    expected: u64,
    /// Keys that were passed, by the runs before this one too.
    passed: u64,
    /// Keys that this run has read, those that changed again each time.
    read: u64,
}

impl<'o> Copying<'o> {
    pub(super) fn begin(options: &'o Options) -> Result<Self, BenchError> {
        let clock = SystemClock::new();
        let now_ns = clock.monotonic_ns();
        Ok(Self {
            options,
            source: Link::connect(&options.source)?,
            target: Link::connect(&options.target)?,
            clock,
            begin_ns: now_ns,
            line_ns: now_ns,
            expected: 0,
            passed: 0,
            read: 0,
        })
    }

    pub(super) fn run(&mut self, outcome: &mut Outcome) -> Result<(), BenchError> {
        let options = self.options;
        let servers = format!("{} {}", options.source.address, options.target.address);
        let mut ledger = Ledger::open(options.ledger.as_deref(), &servers)?;
        let databases: Vec<(u32, u64)> = self
            .source
            .session
            .keyspace()?
            .into_iter()
            .filter(|(number, _)| options.has_database(*number))
            .collect();
        self.expected = databases.iter().map(|(_, keys)| keys).sum();
        if !options.replaces && !ledger.is_begun() {
            self.expect_empty(&databases)?;
        }
        let mut followed = match options.follows {
            true => Some(Followed::begin(options, &mut self.source)?),
            false => None,
        };
        let copied = self.copy_all(&databases, &mut ledger, followed.as_mut(), outcome);
        let ended = followed.map_or(Ok(()), |followed| followed.end(&mut self.source));
        copied.and(ended)
    }

    fn copy_all(
        &mut self,
        databases: &[(u32, u64)],
        ledger: &mut Ledger,
        mut followed: Option<&mut Followed<'_>>,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        for (database, _) in databases {
            self.copy_database(*database, ledger, followed.as_deref_mut(), outcome)?;
        }
        match followed {
            Some(followed) => self.settle(followed, outcome),
            None => Ok(()),
        }
    }

    /// Nothing of the target is overwritten unless that is wanted.
    fn expect_empty(&mut self, databases: &[(u32, u64)]) -> Result<(), BenchError> {
        let there = self.target.session.keyspace()?;
        let full = there
            .iter()
            .find(|(number, keys)| *keys > 0 && databases.iter().any(|(own, _)| own == number));
        match full {
            Some((number, keys)) => Err(BenchError::Usage(format!(
                "the target has {keys} keys in database {number}; --replace allows to replace them"
            ))),
            None => Ok(()),
        }
    }

    fn copy_database(
        &mut self,
        database: u32,
        ledger: &mut Ledger,
        mut followed: Option<&mut Followed<'_>>,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        let (cursor, mut keys) = match ledger.databases.get(&database) {
            Some((cursor, keys)) if cursor == DONE => {
                self.passed += keys;
                return Ok(());
            }
            Some((cursor, keys)) => (cursor.clone(), *keys),
            None => ("0".to_owned(), 0),
        };
        self.passed += keys;
        let mut cursor = cursor.into_bytes();
        let mut count = self.options.count;
        loop {
            self.source.select(database)?;
            let pattern = self.options.pattern.as_deref();
            let step = scan_step(&mut self.source.session, &cursor, pattern, None, count)?;
            // The events of what is read now are taken before it: see the module of all this.
            if let Some(followed) = followed.as_deref_mut() {
                followed.take()?;
            }
            let bytes = self.copy(database, &step.keys, outcome)?;
            let found = step.keys.len() as u64;
            (keys, self.passed) = (keys + found, self.passed + found);
            count = match bytes {
                bytes if bytes > STEP_BYTES_MAX => (count / 2).max(1),
                _ => (count * 2).min(self.options.count),
            };
            cursor = step.cursor;
            if cursor == b"0" {
                return ledger.note(database, DONE, keys);
            }
            ledger.note(database, &String::from_utf8_lossy(&cursor), keys)?;
            self.tell(database, outcome);
        }
    }

    /// Copies keys of a database, no faster than wanted; how many bytes they have.
    pub(super) fn copy(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        outcome: &mut Outcome,
    ) -> Result<usize, BenchError> {
        self.source.select(database)?;
        self.target.select(database)?;
        let now_unix_ms = self.clock.now_unix_ms();
        let held = self.source.read(keys, now_unix_ms)?;
        let mut there: Vec<(&[u8], &Held)> = Vec::new();
        let mut gone: Vec<&[u8]> = Vec::new();
        for (key, held) in keys.iter().zip(&held) {
            match held {
                Ok(Some(held)) => there.push((key, held)),
                Ok(None) => gone.push(key),
                Err(reason) => outcome.fail(key, reason),
            }
        }
        outcome.gone += gone.len() as u64;
        outcome.deleted += self.target.delete(&gone)?;
        let refused = self.target.write(&there, now_unix_ms)?;
        let bytes = there.iter().map(|(_, held)| held.payload.len()).sum();
        for ((key, held), refused) in there.into_iter().zip(refused) {
            match refused {
                None => outcome.copied += 1,
                Some(reason) => self.write_anew(key, held, &reason, outcome)?,
            }
        }
        outcome.bytes += bytes as u64;
        self.read += keys.len() as u64;
        self.pace();
        Ok(bytes)
    }

    /// Writes a key whose payload the target does not know in a version that it may.
    fn write_anew(
        &mut self,
        key: &[u8],
        held: &Held,
        reason: &str,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        let payload = match rewritten(&held.payload) {
            Ok(payload) => payload,
            Err(own) => {
                outcome.fail(key, &format!("{reason}; {own}"));
                return Ok(());
            }
        };
        let anew = Held {
            payload,
            ..held.clone()
        };
        let now_unix_ms = self.clock.now_unix_ms();
        let refused = self.target.write(&[(key, &anew)], now_unix_ms)?;
        match refused.into_iter().next().flatten() {
            Some(reason) => outcome.fail(key, &reason),
            None => {
                outcome.copied += 1;
                outcome.rewritten += 1;
            }
        }
        Ok(())
    }

    /// Copies what changed, until little does or the time is over.
    fn settle(
        &mut self,
        followed: &mut Followed<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        let end_ns = self.options.follow_for.map(|time| {
            self.clock.monotonic_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        });
        let mut quiet = 0;
        loop {
            followed.take()?;
            let before = followed.waiting();
            while let Some((database, keys)) = followed.some(self.count()) {
                outcome.again += keys.len() as u64;
                self.copy(database, &keys, outcome)?;
                followed.take()?;
                self.tell(database, outcome);
            }
            quiet = if before == 0 { quiet + 1 } else { 0 };
            let is_over = match end_ns {
                Some(end_ns) => self.clock.monotonic_ns() >= end_ns && before == 0,
                None => quiet >= QUIET_ROUNDS,
            };
            if is_over {
                return Ok(());
            }
            std::thread::sleep(FOLLOW_PAUSE);
        }
    }

    fn count(&self) -> usize {
        usize::try_from(self.options.count).unwrap_or(usize::MAX)
    }

    /// Waits where keys are to be copied no faster.
    fn pace(&self) {
        let Some(rate) = self.options.rate else {
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "a pause")]
        let due = Duration::try_from_secs_f64(self.read as f64 / rate).unwrap_or_default();
        let elapsed = Duration::from_nanos(self.clock.monotonic_ns() - self.begin_ns);
        std::thread::sleep(due.saturating_sub(elapsed));
    }

    /// Says how it goes.
    fn tell(&mut self, database: u32, outcome: &Outcome) {
        let now_ns = self.clock.monotonic_ns();
        if self.options.is_quiet || now_ns - self.line_ns < LINE_EVERY_NS {
            return;
        }
        self.line_ns = now_ns;
        #[expect(clippy::cast_precision_loss, reason = "one decimal is shown")]
        let (percent, seconds) = (
            100.0 * self.passed as f64 / self.expected.max(1) as f64,
            (now_ns - self.begin_ns) as f64 / 1e9,
        );
        #[expect(
            clippy::cast_precision_loss,
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a rate is shown"
        )]
        let rate = (outcome.bytes as f64 / seconds) as u64;
        // Without standard error there is nobody to tell.
        let _told = writeln!(
            std::io::stderr(),
            "db{database}: {:.1} %, {} keys, {}/s, {} failed",
            percent.min(100.0),
            outcome.copied,
            base::memory_size::human(rate),
            outcome.failed
        );
    }
}
