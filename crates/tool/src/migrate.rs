//! `iolite migrate`: copies the keys of one server to another while both serve, and compares them.
//!
//! ```text
//!   source ── SCAN ──> DUMP, PEXPIRETIME ──> RESTORE ──> target       copy, with a file of how far it is
//!      │                      ▲
//!      └── key events ────────┘                                       --follow: what changed meanwhile, again
//!   source ── keys ──> DUMP on both, compared as values <── target    --compare, --repair
//! ```
//!
//! Either end may be a cluster: its primaries are iterated one after the other, and each key is
//! requested from the node that owns it.
//!
//! What must stay true
//!  1. A key is read after all its events that were received: a change after the reading causes an
//!     event that is still to come.
//!  2. A payload that the target refuses is re-encoded in the oldest version that loses nothing of
//!     the value. If the target refuses that too, it is re-encoded in the oldest version of all.
//!  3. The file names a cursor only after all keys before it are in the target, together with the
//!     process that issued it. Without `--follow`, `--compare` finds changes that were made after
//!     the copy.
//!  4. If events, cursors or writes may have been lost (another run, another owner of a slot, a
//!     lost connection, a flushed database), all keys of both ends are compared once more, while
//!     events are taken.
//!  5. Deadlines of members in KeyDB are requested member by member, because DUMP omits them. Those
//!     of hashes are copied, others are counted and reported.
//!  6. Nothing at the source is changed except `notify-keyspace-events` while it is followed, which
//!     is restored.

use std::collections::BTreeMap;
use std::io::Write;
use std::process::ExitCode;
use std::time::Duration;

use base::glob::{Case, matches};
use clap::error::ErrorKind;
use clap::{Arg, Command};

use crate::endpoint::{Address, Endpoint};
use crate::error::BenchError;
use crate::options::Given;
use crate::options::command::{flag, option};

mod compare;
mod copy;
mod end;
mod follow;
mod keys;
mod ledger;
mod link;
mod members;
mod replicate;
mod slots;

use copy::Copying;

const NAME: &str = "iolite migrate";

/// The requested migration.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
struct Options {
    source: Endpoint,
    target: Endpoint,
    databases: Vec<u32>,
    pattern: Option<String>,
    count: u64,
    /// Maximum number of keys per second.
    rate: Option<f64>,
    /// The file that records the progress of the copy.
    ledger: Option<std::path::PathBuf>,
    replaces: bool,
    follows: bool,
    /// How long changes are copied after the first pass, or `None` until the user ends it.
    follow_for: Option<Duration>,
    only_compares: bool,
    compares: bool,
    repairs: bool,
    /// Whether digests are compared first, and values only if those differ.
    by_digest: bool,
    replicates: bool,
    hands_over: bool,
    is_json: bool,
    is_quiet: bool,
}

impl Options {
    /// Whether keys of a database are copied.
    fn has_database(&self, number: u32) -> bool {
        self.databases.is_empty() || self.databases.contains(&number)
    }

    /// Whether a key is copied, by SCAN's matching.
    fn has_key(&self, database: u32, key: &[u8]) -> bool {
        let fits = |pattern: &String| matches(pattern.as_bytes(), key, Case::Sensitive);
        self.has_database(database) && self.pattern.as_ref().is_none_or(fits)
    }
}

/// Returns its command line.
#[must_use]
pub fn command() -> Command {
    Command::new("migrate")
        .bin_name(NAME)
        .about("Copies the keys of one server to another while both serve, and compares them")
        .override_usage("iolite migrate SOURCE TARGET [OPTIONS]")
        .disable_help_flag(true)
        .args_override_self(true)
        .after_help(
            "SOURCE and TARGET are HOST:PORT, a path of a Unix socket, or redis://user:password@host:port, rediss:// with \
             TLS. Passwords may stand in IOLITE_SOURCE_AUTH and IOLITE_TARGET_AUTH.\n\nExit code: 0 when all is the same, 1 \
             when keys differ or could not be copied, 2 when a server could not be asked.",
        )
        .args(places())
        .next_help_heading("What is copied")
        .args(what())
        .next_help_heading("How")
        .args(how())
        .next_help_heading("Encryption, of both")
        .args(crate::options::command::encryption())
}

fn places() -> Vec<Arg> {
    let place = |name: &'static str, help: &'static str| {
        Arg::new(name).value_name(name).required(true).help(help)
    };
    vec![
        place("SOURCE", "The server that has the keys"),
        place("TARGET", "The server that gets them"),
        Arg::new("--help")
            .long("help")
            .action(clap::ArgAction::Help)
            .help("Prints this"),
    ]
}

fn what() -> Vec<Arg> {
    vec![
        option("--db", "LIST", "Databases, as 0,3 (all that have keys)"),
        option("--pattern", "PATTERN", "Only keys like this"),
        flag(
            "--replace",
            "Keys that the target has are replaced; else it has to be empty",
        ),
    ]
}

fn how() -> Vec<Arg> {
    vec![
        flag(
            "--replicate",
            "By replication instead of SCAN: the target becomes a replica of the source",
        ),
        flag(
            "--hand-over",
            "With --replicate: the source hands over (FAILOVER) once the target has all",
        ),
        flag("--follow", "Also what changes meanwhile, by key events"),
        option(
            "--follow-for",
            "SECONDS",
            "With --follow: so long after the first pass (until nothing changes)",
        ),
        flag("--compare", "Afterwards compare all keys"),
        flag("--compare-only", "Compare, copy nothing"),
        flag(
            "--repair",
            "Copy what differs, and delete what the source has not",
        ),
        flag(
            "--digest",
            "Compare by DEBUG DIGEST-VALUE where both answer it: fewer bytes, without consumer groups and deadlines of fields",
        ),
        option("--state", "FILE", "Keep how far it is, and go on there"),
        option("--rate", "N", "Keys a second, at most"),
        option("--count", "N", "Keys in a step (200)"),
        flag("--json", "The outcome as JSON"),
        flag("-q", "No line that shows how it goes"),
    ]
}

/// Runs the tool with the words after `migrate`.
pub fn run(words: Vec<String>) -> ExitCode {
    let mut out = std::io::stdout();
    match execute(words, &mut out) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            error.tell();
            ExitCode::from(2)
        }
    }
}

fn execute(words: Vec<String>, out: &mut dyn Write) -> Result<u8, BenchError> {
    let words = std::iter::once(NAME.to_owned()).chain(words);
    let given = match command().try_get_matches_from(words) {
        Ok(given) => given,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => {
            print(out, &error.to_string())?;
            return Ok(0);
        }
        Err(error) => return Err(BenchError::Usage(error.to_string().trim_end().to_owned())),
    };
    let options = read(&Given(&given))?;
    if options.replicates {
        let has_taken_over = replicate::run(&options)?;
        print(out, &replicate::told(&options, has_taken_over))?;
        return Ok(0);
    }
    let mut outcome = Outcome::default();
    if !options.only_compares {
        Copying::begin(&options)?.run(&mut outcome)?;
    }
    if options.compares {
        compare::run(&options, &mut outcome)?;
    }
    print(out, &outcome.told(options.is_json))?;
    Ok(u8::from(!outcome.is_good()))
}

fn print(out: &mut dyn Write, text: &str) -> Result<(), BenchError> {
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| BenchError::System("standard output", error))
}

fn read(given: &Given<'_>) -> Result<Options, BenchError> {
    let databases = given.text("--db").unwrap_or_default();
    let databases = databases.split(',').filter(|text| !text.is_empty());
    let databases: Result<Vec<u32>, BenchError> = databases
        .map(|text| {
            let number = text.parse();
            number.map_err(|_| BenchError::Usage(format!("--db: '{text}' is no number")))
        })
        .collect();
    let only_compares = given.has("--compare-only");
    let repairs = given.has("--repair");
    Ok(Options {
        source: endpoint(given, "SOURCE", "IOLITE_SOURCE_AUTH")?,
        target: endpoint(given, "TARGET", "IOLITE_TARGET_AUTH")?,
        databases: databases?,
        pattern: given.text("--pattern").map(str::to_owned),
        count: given.number("--count")?.unwrap_or(200).max(1),
        rate: given.amount("--rate")?.filter(|rate| *rate > 0.0),
        ledger: given.text("--state").map(Into::into),
        replaces: given.has("--replace"),
        follows: given.has("--follow") || given.text("--follow-for").is_some(),
        follow_for: given.seconds("--follow-for")?,
        only_compares,
        compares: only_compares || repairs || given.has("--compare"),
        repairs,
        by_digest: given.has("--digest"),
        replicates: given.has("--replicate"),
        hands_over: given.has("--hand-over"),
        is_json: given.has("--json"),
        is_quiet: given.has("-q"),
    })
}

/// Returns a server by its address.
fn endpoint(given: &Given<'_>, name: &str, variable: &str) -> Result<Endpoint, BenchError> {
    let text = given.text(name).unwrap_or_default();
    let mut endpoint = crate::options::endpoint_at(given, text)?;
    if endpoint.credentials.is_none() {
        let password = std::env::var(variable).ok().filter(|text| !text.is_empty());
        endpoint.credentials = password.map(|password| (None, password));
    }
    endpoint.name = match &endpoint.address {
        Address::Tcp(..) | Address::Unix(_) => name.to_lowercase(),
    };
    Ok(endpoint)
}

/// The result.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Outcome {
    copied: u64,
    bytes: u64,
    /// Keys that had been removed when they were to be copied.
    gone: u64,
    /// Keys copied again because they changed.
    again: u64,
    deleted: u64,
    /// Payloads that were re-encoded for the target.
    rewritten: u64,
    /// Keys with members whose deadlines the target cannot have, with the number of those.
    without_deadline: BTreeMap<(u32, Vec<u8>), u64>,
    /// Keys checked because something may have been missed, and how many of them differed.
    checked: u64,
    put_right: u64,
    compared: u64,
    differing: u64,
    repaired: u64,
    /// The first keys that could not be copied or compared, with the reason.
    failures: Vec<(String, String)>,
    failed: u64,
}

/// Maximum number of failures that are listed.
const FAILURES_NAMED: usize = 20;

impl Outcome {
    fn fail(&mut self, key: &[u8], reason: &str) {
        self.failed += 1;
        if self.failures.len() < FAILURES_NAMED {
            let key = key.escape_ascii().to_string();
            self.failures.push((key, reason.to_owned()));
        }
    }

    /// Notes the number of members of a key whose deadlines the target cannot have.
    fn note_without_deadline(&mut self, database: u32, key: &[u8], count: u64) {
        if count > 0 {
            self.without_deadline
                .insert((database, key.to_vec()), count);
        } else if !self.without_deadline.is_empty() {
            self.without_deadline.remove(&(database, key.to_vec()));
        }
    }

    fn is_good(&self) -> bool {
        self.failed == 0 && self.differing == self.repaired
    }

    fn told(&self, is_json: bool) -> String {
        if is_json {
            let failures: Vec<_> = self
                .failures
                .iter()
                .map(|(key, reason)| serde_json::json!({"key": key, "reason": reason}))
                .collect();
            let object = serde_json::json!({
                "copied": self.copied,
                "bytes": self.bytes,
                "gone": self.gone,
                "again": self.again,
                "deleted": self.deleted,
                "rewritten": self.rewritten,
                "without_deadline": self.without_deadline.values().sum::<u64>(),
                "checked": self.checked,
                "put_right": self.put_right,
                "compared": self.compared,
                "differing": self.differing,
                "repaired": self.repaired,
                "failed": self.failed,
                "failures": failures,
                "is_good": self.is_good(),
            });
            return format!("{object}\n");
        }
        let mut text = format!(
            "copied {} keys ({}), {} again because they changed, {} deleted, {} gone, {} written anew for the target\n",
            self.copied,
            base::memory_size::human(self.bytes),
            self.again,
            self.deleted,
            self.gone,
            self.rewritten
        );
        if let Some(((database, key), _)) = self.without_deadline.first_key_value() {
            text.push_str(&format!(
                "WARNING: {} deadlines of members of sets and sorted sets were left out, the first at the key '{}' of database \
                 {database}: only fields of hashes have deadlines there\n",
                self.without_deadline.values().sum::<u64>(),
                key.escape_ascii()
            ));
        }
        if self.checked > 0 {
            text.push_str(&format!(
                "looked at {} keys again because something may have been missed: {} were put right\n",
                self.checked, self.put_right
            ));
        }
        if self.compared > 0 || self.differing > 0 {
            text.push_str(&format!(
                "compared {} keys: {} differ, {} of them repaired\n",
                self.compared, self.differing, self.repaired
            ));
        }
        for (key, reason) in &self.failures {
            text.push_str(&format!("  '{key}': {reason}\n"));
        }
        if self.failed > 0 {
            text.push_str(&format!("{} keys failed\n", self.failed));
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(words: &[&str]) -> Result<Options, BenchError> {
        let words = std::iter::once(NAME).chain(words.iter().copied());
        let matches = command().try_get_matches_from(words).unwrap();
        read(&Given(&matches))
    }

    #[test]
    fn the_words_fit_together() {
        command().debug_assert();
    }

    #[test]
    fn places_are_addresses_of_all_kinds() {
        let options = options(&[
            "redis://u:p@10.0.0.1:7/",
            "/tmp/s",
            "--db",
            "0,3",
            "--repair",
        ])
        .unwrap();
        assert_eq!(
            options.source.address,
            Address::Tcp("10.0.0.1".to_owned(), 7)
        );
        let credentials = Some((Some("u".to_owned()), "p".to_owned()));
        assert_eq!(options.source.credentials, credentials);
        assert_eq!(options.target.address, Address::Unix("/tmp/s".into()));
        assert_eq!(options.databases, [0, 3]);
        assert!(options.compares && options.repairs && !options.only_compares);
        assert!(self::options(&["a:1", "b:2", "--db", "x"]).is_err());
    }

    #[test]
    fn what_is_copied_is_of_a_database_and_like_the_pattern() {
        let some = options(&["a:1", "b:2", "--db", "3", "--pattern", "k:*"]).unwrap();
        assert!(some.has_key(3, b"k:1"));
        assert!(!some.has_key(0, b"k:1") && !some.has_key(3, b"other"));
        let all = options(&["a:1", "b:2"]).unwrap();
        assert!(all.has_key(7, b"other"));
    }

    #[test]
    fn what_differs_or_failed_is_not_good() {
        let mut outcome = Outcome::default();
        assert!(outcome.is_good());
        outcome.differing = 2;
        outcome.repaired = 1;
        assert!(!outcome.is_good());
        outcome.repaired = 2;
        assert!(outcome.is_good());
        outcome.fail(b"k\n", "no");
        assert!(!outcome.is_good());
        assert!(outcome.told(false).contains("'k\\n': no"));
        assert!(!outcome.told(false).contains("WARNING"));
        for (key, count) in [("z", 2), ("s", 9), ("a", 1), ("s", 2), ("a", 0)] {
            outcome.note_without_deadline(3, key.as_bytes(), count);
        }
        let told = outcome.told(false);
        assert!(told.contains("WARNING: 4 deadlines of members"), "{told}");
        assert!(told.contains("the key 's' of database 3"), "{told}");
        assert!(outcome.told(true).contains("\"without_deadline\":4"));
        assert!(outcome.told(true).contains("\"failed\":1"));
    }
}
