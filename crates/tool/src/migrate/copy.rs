//! The copy: all keys once by SCAN, and changed keys again. If something may have been missed, all
//! keys of both ends are compared.

use std::io::Write as _;
use std::time::Duration;

use base::clock::{Clock as _, SystemClock};

use super::compare;
use super::end::{End, Looked};
use super::follow::Followed;
use super::ledger::{DONE, Ledger};
use super::link::{Anew, Held, rewritten};
use super::{Options, Outcome};
use crate::endpoint::{Address, info_field};
use crate::error::BenchError;

/// Maximum number of bytes in a step: larger steps are made smaller.
const STEP_BYTES_MAX: usize = 32 << 20;
/// Interval between progress lines.
const LINE_EVERY_NS: u64 = 1_000_000_000;
/// The copy is complete if no changed keys are left in this number of successive rounds.
const QUIET_ROUNDS: u32 = 3;
/// Pause between two checks for changed keys.
const FOLLOW_PAUSE: Duration = Duration::from_millis(20);
/// Interval at which a followed cluster is asked for its slot owners.
const LOOK_EVERY_NS: u64 = 1_000_000_000;
/// Commands that change keys without an event, by their names in INFO.
const EMPTYING: [&str; 3] = ["cmdstat_flushall", "cmdstat_flushdb", "cmdstat_swapdb"];
/// KeyDB's commands that set deadlines of members.
const EXPIRING: [&str; 3] = [
    "cmdstat_expiremember",
    "cmdstat_expirememberat",
    "cmdstat_pexpirememberat",
];

/// A copy in progress.
pub(super) struct Copying<'o> {
    pub(super) options: &'o Options,
    pub(super) source: End,
    pub(super) target: End,
    pub(super) clock: SystemClock,
    begin_ns: u64,
    line_ns: u64,
    /// Number of keys in all databases, as a hint.
    expected: u64,
    /// Number of keys passed, including earlier runs.
    passed: u64,
    /// Number of keys that this run has read; changed keys count each time.
    read: u64,
    /// Whether something may have been missed, so that all keys of both ends have to be compared.
    owes_check: bool,
    /// The encoding that the target accepted last for a payload that it had refused.
    anew: Option<Anew>,
    /// When to stop following, once the first pass is over.
    end_ns: Option<u64>,
}

impl<'o> Copying<'o> {
    pub(super) fn begin(options: &'o Options) -> Result<Self, BenchError> {
        let clock = SystemClock::new();
        let now_ns = clock.monotonic_ns();
        Ok(Self {
            options,
            source: End::connect(&options.source, options.is_quiet)?,
            target: End::connect(&options.target, options.is_quiet)?,
            clock,
            begin_ns: now_ns,
            line_ns: now_ns,
            expected: 0,
            passed: 0,
            read: 0,
            owes_check: false,
            anew: None,
            end_ns: None,
        })
    }

    pub(super) fn run(&mut self, outcome: &mut Outcome) -> Result<(), BenchError> {
        let options = self.options;
        let servers = format!("{} {}", options.source.address, options.target.address);
        let mut ledger = Ledger::open(options.ledger.as_deref(), &servers)?;
        let databases = self.source.keyspace()?;
        let databases = databases
            .iter()
            .filter(|(number, _)| options.has_database(**number));
        self.expected = databases.map(|(_, keys)| keys).sum();
        // Changes made while no process listened are unknown.
        self.owes_check = ledger.is_begun() && (options.follows || self.source.is_cluster());
        if !ledger.is_begun() {
            let is_empty = self.expect_empty()?;
            ledger.begin(is_empty)?;
        }
        let mut followed = options.follows.then(|| Followed::new(options));
        let copied = self.copy_all(&mut ledger, followed.as_mut(), outcome);
        let ended = followed.map_or(Ok(()), |followed| followed.end(&mut self.source));
        copied.and(ended)
    }

    fn copy_all(
        &mut self,
        ledger: &mut Ledger,
        mut followed: Option<&mut Followed<'_>>,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        if let Some(followed) = followed.as_deref_mut() {
            followed.hear(&mut self.source, ledger)?;
        }
        let mut emptied = self.calls(&EMPTYING)?;
        let mut expiring = Some(self.calls(&EXPIRING)?);
        self.copy_nodes(ledger, followed.as_deref_mut(), outcome)?;
        self.end_ns = self.options.follow_for.map(|time| {
            self.clock.monotonic_ns() + u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
        });
        loop {
            self.listen(ledger, followed.as_deref_mut())?;
            if std::mem::take(&mut self.owes_check) {
                compare::check(self, ledger, followed.as_deref_mut(), outcome)?;
                continue;
            }
            let Some(followed) = followed.as_deref_mut() else {
                return Ok(());
            };
            self.settle(ledger, followed, outcome)?;
            let now = self.calls(&EMPTYING)?;
            self.owes_check |= now != emptied;
            emptied = now;
            // Checked once: if deadlines are set all the time, it would never end.
            if let Some(before) = expiring.take() {
                self.owes_check |= self.calls(&EXPIRING)? != before;
            }
            if !self.owes_check {
                return Ok(());
            }
        }
    }

    /// Takes events, and subscribes again to servers whose connections were lost. Notes if
    /// something may have been missed.
    pub(super) fn listen(
        &mut self,
        ledger: &mut Ledger,
        followed: Option<&mut Followed<'_>>,
    ) -> Result<(), BenchError> {
        let mut is_disturbed = self.source.take_disturbed();
        is_disturbed |= self.target.take_disturbed();
        if let Some(followed) = followed {
            followed.take()?;
            is_disturbed |= followed.take_gap();
            if is_disturbed {
                followed.hear(&mut self.source, ledger)?;
            }
        }
        self.owes_check |= is_disturbed;
        Ok(())
    }

    /// Returns how often the source executed commands without events.
    fn calls(&mut self, commands: &[&str]) -> Result<Vec<String>, BenchError> {
        if !self.options.follows {
            return Ok(Vec::new());
        }
        self.source.of_all(|link| {
            let info = link.session.info("commandstats")?;
            let calls = commands.iter().map(|name| {
                let told = info_field(&info, name).unwrap_or_default();
                told.split(',').next().unwrap_or_default()
            });
            Ok(calls.collect::<Vec<_>>().join(" "))
        })
    }

    /// Returns whether the target is empty. Its keys are not overwritten unless requested.
    fn expect_empty(&mut self) -> Result<bool, BenchError> {
        let own = self.source.keyspace()?;
        let mut there = self.target.keyspace()?;
        there.retain(|number, keys| *keys > 0 && self.options.has_database(*number));
        let full = there.iter().find(|(number, _)| own.contains_key(number));
        match full {
            Some((number, keys)) if !self.options.replaces => Err(BenchError::Usage(format!(
                "the target has {keys} keys in database {number}; --replace allows to replace them"
            ))),
            _ => Ok(there.is_empty()),
        }
    }

    /// Copies the keys of all servers of the source. Servers that were lost, or changed, are asked
    /// again.
    fn copy_nodes(
        &mut self,
        ledger: &mut Ledger,
        mut followed: Option<&mut Followed<'_>>,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        let mut begin_ns = self.clock.monotonic_ns();
        loop {
            let read = self.read;
            self.passed = 0;
            let mut lost = None;
            for address in self.source.addresses() {
                if !self.copy_node(&address, ledger, followed.as_deref_mut(), outcome)? {
                    lost = Some(address);
                    break;
                }
            }
            let Some(address) = lost else {
                return Ok(());
            };
            if self.read > read {
                begin_ns = self.clock.monotonic_ns();
            }
            let error = std::io::ErrorKind::NotConnected.into();
            let error = BenchError::Connection(address, error);
            self.source.recover(&error, begin_ns)?;
            self.owes_check = true;
        }
    }

    /// Copies the keys of a server of the source. Returns whether it stayed the same until the end.
    fn copy_node(
        &mut self,
        address: &Address,
        ledger: &mut Ledger,
        mut followed: Option<&mut Followed<'_>>,
        outcome: &mut Outcome,
    ) -> Result<bool, BenchError> {
        let Some(Looked { process, keyspace }) = self.source.look(address)? else {
            return Ok(false);
        };
        for (database, _) in keyspace {
            if !self.options.has_database(database) {
                continue;
            }
            let walk = (address, process.as_str(), database);
            if !self.copy_database(walk, ledger, followed.as_deref_mut(), outcome)? {
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn copy_database(
        &mut self,
        (address, process, database): (&Address, &str, u32),
        ledger: &mut Ledger,
        mut followed: Option<&mut Followed<'_>>,
        outcome: &mut Outcome,
    ) -> Result<bool, BenchError> {
        let (cursor, mut keys) = ledger.how_far(database, process);
        self.passed += keys;
        if cursor == DONE {
            return Ok(true);
        }
        let mut cursor = cursor.into_bytes();
        let mut count = self.options.count;
        loop {
            let pattern = self.options.pattern.as_deref();
            let walk = (cursor.as_slice(), pattern, count);
            let step = self.source.scan(address, process, database, walk)?;
            let Some(step) = step else {
                return Ok(false);
            };
            // Events are taken before the keys are read: see the module `migrate`.
            self.listen(ledger, followed.as_deref_mut())?;
            let bytes = self.copy(database, &step.keys, outcome)?;
            let found = step.keys.len() as u64;
            (keys, self.passed) = (keys + found, self.passed + found);
            count = match bytes {
                bytes if bytes > STEP_BYTES_MAX => (count / 2).max(1),
                _ => (count * 2).min(self.options.count),
            };
            cursor = step.cursor;
            if cursor == b"0" {
                ledger.note(database, process, DONE, keys)?;
                return Ok(true);
            }
            let text = String::from_utf8_lossy(&cursor);
            ledger.note(database, process, &text, keys)?;
            self.tell(database, outcome);
        }
    }

    /// Copies keys of a database within the rate limit. Returns their total bytes.
    pub(super) fn copy(
        &mut self,
        database: u32,
        keys: &[Vec<u8>],
        outcome: &mut Outcome,
    ) -> Result<usize, BenchError> {
        let now_unix_ms = self.clock.now_unix_ms();
        let mut held = self.source.read(database, keys, now_unix_ms)?;
        if let Some(anew) = self.anew {
            for one in held.iter_mut().flatten().flatten() {
                // A payload that cannot be re-encoded is refused by the target, and reported then.
                if let Ok(payload) = rewritten(&one.payload, anew) {
                    one.payload = payload;
                    outcome.rewritten += 1;
                }
            }
        }
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
        outcome.deleted += self.target.delete(database, &gone)?;
        let refused = self.target.write(database, &there, now_unix_ms)?;
        let bytes = there.iter().map(|(_, held)| held.payload.len()).sum();
        for ((key, held), refused) in there.into_iter().zip(refused) {
            outcome.note_without_deadline(database, key, held.without_deadline);
            match refused {
                None => outcome.copied += 1,
                Some(reason) => self.write_anew(database, key, held, (&reason, outcome))?,
            }
        }
        outcome.bytes += bytes as u64;
        self.pace(keys.len());
        Ok(bytes)
    }

    /// Writes a key whose payload the target does not know, in versions that it may know.
    fn write_anew(
        &mut self,
        database: u32,
        key: &[u8],
        held: &Held,
        (reason, outcome): (&str, &mut Outcome),
    ) -> Result<(), BenchError> {
        let mut reason = reason.to_owned();
        for anew in Anew::ALL {
            let payload = match rewritten(&held.payload, anew) {
                Ok(payload) => payload,
                Err(own) => {
                    reason = format!("{reason}; {own}");
                    break;
                }
            };
            let held = Held {
                payload,
                ..held.clone()
            };
            let now_unix_ms = self.clock.now_unix_ms();
            let refused = self.target.write(database, &[(key, &held)], now_unix_ms)?;
            match refused.into_iter().next().flatten() {
                Some(again) => reason = again,
                None => {
                    self.anew = Some(anew);
                    outcome.copied += 1;
                    outcome.rewritten += 1;
                    return Ok(());
                }
            }
        }
        outcome.fail(key, &reason);
        Ok(())
    }

    /// Copies changed keys until there are none, the time is over, or something may have been
    /// missed. Changes known when the time is over are copied once: a source that is written to all
    /// the time would make it endless.
    fn settle(
        &mut self,
        ledger: &mut Ledger,
        followed: &mut Followed<'_>,
        outcome: &mut Outcome,
    ) -> Result<(), BenchError> {
        let mut quiet = 0;
        let mut looked_ns = self.clock.monotonic_ns();
        loop {
            let is_over = self.is_time_over();
            self.listen(ledger, Some(followed))?;
            let mut left = followed.waiting();
            quiet = if left == 0 { quiet + 1 } else { 0 };
            while let Some((database, keys)) = followed.some(self.count().min(left)) {
                left -= keys.len();
                outcome.again += keys.len() as u64;
                self.copy(database, &keys, outcome)?;
                // New keys may be inserted between the others: the last round does not take any.
                if !is_over {
                    self.listen(ledger, Some(followed))?;
                }
                self.tell(database, outcome);
            }
            let is_over = is_over || (self.end_ns.is_none() && quiet >= QUIET_ROUNDS);
            let now_ns = self.clock.monotonic_ns();
            if self.source.is_cluster() && (is_over || now_ns - looked_ns > LOOK_EVERY_NS) {
                looked_ns = now_ns;
                self.source.refresh();
                self.listen(ledger, Some(followed))?;
            }
            if is_over || self.owes_check {
                return Ok(());
            }
            std::thread::sleep(FOLLOW_PAUSE);
        }
    }

    fn is_time_over(&self) -> bool {
        let now_ns = self.clock.monotonic_ns();
        self.end_ns.is_some_and(|end_ns| now_ns >= end_ns)
    }

    fn count(&self) -> usize {
        usize::try_from(self.options.count).unwrap_or(usize::MAX)
    }

    /// Counts keys that were read, and waits to keep the rate limit.
    pub(super) fn pace(&mut self, keys: usize) {
        self.read += keys as u64;
        let Some(rate) = self.options.rate else {
            return;
        };
        #[expect(clippy::cast_precision_loss, reason = "a pause")]
        let due = Duration::try_from_secs_f64(self.read as f64 / rate).unwrap_or_default();
        let elapsed = Duration::from_nanos(self.clock.monotonic_ns() - self.begin_ns);
        std::thread::sleep(due.saturating_sub(elapsed));
    }

    /// Reports the progress.
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
        // Without standard error the message is lost.
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
