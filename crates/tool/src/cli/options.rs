//! The command line of the client.

use std::io::IsTerminal as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::error::ErrorKind;
use clap::{Arg, Command};

use super::out::seconds;
use super::password;
use super::print::{Form, Printer};
use super::replica::Dump;
use crate::endpoint::Endpoint;
use crate::error::BenchError;
use crate::options::Given;
use crate::options::command::{flag, option};
use crate::server;

const NAME: &str = "iolite cli";

/// The mode of the client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mode {
    /// A request by these words; without words, lines of standard input.
    Commands(Vec<Vec<u8>>),
    Scan,
    BigKeys,
    MemoryKeys,
    /// The keys that are used most.
    HotKeys,
    Stat,
    Latency,
    /// The same, with a line per interval.
    LatencyHistory,
    /// The same as a spectrum.
    LatencySpectrum,
    /// The longest time for which this machine keeps a process waiting, measured for this duration.
    IntrinsicLatency(Duration),
    Pipe,
    /// An RDB file from a full sync.
    Dump(Dump),
    /// The stream that replicas get.
    Replica,
    /// The keys that a server with `maxmemory` keeps, out of so many.
    Evictions(u64),
    /// A script under the debugger.
    Debug(Debugged),
}

/// A script to be run under the debugger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Debugged {
    pub(super) path: PathBuf,
    /// Its keys and arguments.
    pub(super) words: Vec<Vec<u8>>,
    /// Whether the server blocks meanwhile, and keeps the script's changes.
    pub(super) is_sync: bool,
}

/// The options of the command line.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "flags of a command line")]
pub(super) struct Options {
    pub(super) endpoint: Endpoint,
    pub(super) mode: Mode,
    pub(super) printer: Printer,
    /// How often a request is sent, or `None` for endlessly.
    pub(super) repeats: Option<u64>,
    /// The pause between two of them.
    pub(super) pause: Duration,
    /// Whether standard input is the last word.
    pub(super) takes_last_of_input: bool,
    /// The word that standard input replaces.
    pub(super) input_tag: Option<String>,
    pub(super) fails_on_errors: bool,
    pub(super) follows_redirections: bool,
    pub(super) shows_pushes: bool,
    /// Whether the output is a terminal.
    pub(super) is_terminal: bool,
    pub(super) pattern: Option<String>,
    pub(super) type_name: Option<String>,
    pub(super) count: u64,
    pub(super) samples: u64,
    pub(super) pipe_patience: Duration,
}

/// Returns the client's command line.
#[must_use]
pub fn command() -> Command {
    Command::new("cli")
        .bin_name(NAME)
        .about("A client: one request, lines of standard input, or a prompt; iolite cli --help tells its options")
        .override_usage("iolite cli [OPTIONS] [COMMAND ARGS...]")
        .disable_help_flag(true)
        .args_override_self(true)
        .next_help_heading("The server")
        .args(server::arguments())
        .next_help_heading("Requests")
        .args(requests())
        .next_help_heading("Replies")
        .args(replies())
        .next_help_heading("Instead of requests")
        .args(modes())
        .next_help_heading(None::<&str>)
        .arg(
            Arg::new("command")
                .value_name("COMMAND ARGS")
                .num_args(0..)
                .trailing_var_arg(true)
                .allow_hyphen_values(true)
                .help("One request"),
        )
}

fn requests() -> Vec<Arg> {
    vec![
        option("-r", "N", "Send it so often; -1 for ever (1)"),
        option(
            "-i",
            "SECONDS",
            "Wait so long between; between 100 keys where keys are walked through",
        ),
        flag("-x", "The last argument is what standard input has"),
        option(
            "-X",
            "WORD",
            "The argument that is this word is what standard input has",
        ),
        flag(
            "--quoted-input",
            "Arguments are taken in quotes, as \"a\\x00b\"",
        ),
        flag("-c", "Follow MOVED and ASK of a cluster"),
        flag("-e", "Exit code 1 for an error"),
        option("--eval", "FILE", "Run this script; then: KEYS , ARGUMENTS"),
        flag(
            "--ldb",
            "With --eval: under the debugger of Redis and Valkey",
        ),
        flag(
            "--ldb-sync-mode",
            "The same, while the server does nothing else; changes are kept",
        ),
        flag("--askpass", "Ask for the password, whatever -a says"),
        flag("-2", "RESP2, which --json does not speak otherwise"),
        flag("--no-auth-warning", "Nobody warns here").hide(true),
        flag("--verbose", "There is nothing more to say").hide(true),
    ]
}

fn replies() -> Vec<Arg> {
    vec![
        flag("--raw", "As they are; the default where nobody reads along"),
        flag(
            "--no-raw",
            "With types and quotes; the default on a terminal",
        ),
        flag("--csv", "Comma-separated"),
        flag(
            "--json",
            "As JSON, with RESP3; bytes that are no UTF-8 as \\u00XX each",
        ),
        flag(
            "--quoted-json",
            "As JSON, with texts in quotes as for people: ASCII alone",
        ),
        option("-d", "TEXT", "Between elements, with --raw (a line break)"),
        option("-D", "TEXT", "Behind replies, with --raw (a line break)"),
        option(
            "--show-pushes",
            "yes|no",
            "Whether messages of RESP3 are shown (on a terminal)",
        ),
    ]
}

fn modes() -> Vec<Arg> {
    vec![
        flag("--scan", "All keys, by SCAN"),
        flag("--bigkeys", "The keys with the most elements, of each type"),
        flag("--memkeys", "The keys that take most memory, of each type"),
        option(
            "--memkeys-samples",
            "N",
            "Elements that MEMORY USAGE looks at (0: all)",
        ),
        flag(
            "--hotkeys",
            "The keys that are used most, where maxmemory-policy counts it (LFU)",
        ),
        option("--pattern", "PATTERN", "Only keys like this"),
        option("--quoted-pattern", "PATTERN", "The same, in quotes"),
        option("--type", "TYPE", "Only keys of this type, with --scan"),
        option("--count", "N", "Keys that SCAN looks at in a step (10)"),
        flag("--stat", "A line a second: keys, memory, clients, requests"),
        flag("--latency", "How long PING takes, again and again"),
        flag(
            "--latency-history",
            "The same, a line each 15 seconds (-i: each so many)",
        ),
        flag(
            "--latency-dist",
            "The same as a spectrum in colours, a line a second (-i: each so many)",
        ),
        option(
            "--intrinsic-latency",
            "SECONDS",
            "How long this machine keeps a process waiting, measured for so long",
        ),
        flag("--version", "What version this is").short('v'),
        option(
            "--rdb",
            "FILE",
            "Fetch an RDB file as a replica does (-: to standard output)",
        ),
        option("--functions-rdb", "FILE", "The same, of functions alone"),
        flag("--replica", "Show what a replica is sent, as CSV"),
        option(
            "--lru-test",
            "KEYS",
            "Write and read so many keys, a fifth of them most often, and show how many are found",
        ),
        flag(
            "--pipe",
            "Requests of the protocol from standard input, as many as there are",
        ),
        option(
            "--pipe-timeout",
            "SECONDS",
            "With --pipe, give up after so long without a reply (30; 0: never)",
        ),
    ]
}

/// Parses the words after `cli`. Returns the options, or a text to print instead.
///
/// # Errors
/// [`BenchError::Usage`].
pub(super) fn read(words: Vec<String>) -> Result<Result<Options, String>, BenchError> {
    let words = std::iter::once(NAME.to_owned()).chain(words);
    let matches = match command().try_get_matches_from(words) {
        Ok(matches) => matches,
        Err(error) if error.kind() == ErrorKind::DisplayHelp => return Ok(Err(error.to_string())),
        Err(error) => return Err(BenchError::Usage(error.to_string().trim_end().to_owned())),
    };
    if matches.get_flag("--version") {
        return Ok(Err(format!("iolite-cli {}\n", env!("CARGO_PKG_VERSION"))));
    }
    let given = Given(&matches);
    if let Some(word) = given.all("command").next() {
        refuse_option(word)?;
    }
    options_of(&given).map(Ok)
}

/// A request does not begin with a minus: such a word is an unknown option.
fn refuse_option(word: &str) -> Result<(), BenchError> {
    let text = match word {
        "--cluster" => "--cluster is not here: see iolite cluster --help; redis-cli --cluster works with these nodes, too"
            .to_owned(),
        word if word.starts_with('-') => {
            format!("Unrecognized option or bad number of args for: '{word}'")
        }
        _ => return Ok(()),
    };
    Err(BenchError::Usage(text))
}

fn options_of(given: &Given<'_>) -> Result<Options, BenchError> {
    let is_terminal = std::io::stdout().is_terminal();
    let mut endpoint = server::endpoint(given)?;
    if given.has("--askpass") {
        let user = given.text("--user").map(str::to_owned);
        endpoint.credentials = Some((user, password::ask()?));
    }
    let form = match () {
        () if given.has("--quoted-json") => Form::QuotedJson,
        () if given.has("--json") => Form::Json,
        () if given.has("--csv") => Form::Csv,
        () if given.has("--raw") => Form::Raw,
        () if given.has("--no-raw") || is_terminal => Form::Typed,
        () => Form::Raw,
    };
    let is_json = matches!(form, Form::Json | Form::QuotedJson);
    endpoint.is_resp3 |= is_json && !given.has("-2");
    let repeats = match given.number::<i64>("-r")?.unwrap_or(1) {
        count if count < 0 => None,
        count => Some(count.unsigned_abs()),
    };
    let mut printer = Printer::new(form);
    if let Some(delimiter) = given.text("-d") {
        printer.set_delimiter(delimiter);
    }
    if let Some(end) = given.text("-D") {
        printer.set_end(end);
    }
    Ok(Options {
        endpoint,
        mode: mode(given)?,
        printer,
        repeats,
        pause: given.seconds("-i")?.unwrap_or_default(),
        takes_last_of_input: given.has("-x"),
        input_tag: given.text("-X").map(str::to_owned),
        fails_on_errors: given.has("-e"),
        follows_redirections: given.has("-c"),
        shows_pushes: given
            .text("--show-pushes")
            .map_or(is_terminal, |text| text == "yes"),
        is_terminal,
        pattern: pattern(given)?,
        type_name: given.text("--type").map(str::to_owned),
        count: given.number("--count")?.unwrap_or(10),
        samples: given.number("--memkeys-samples")?.unwrap_or(0),
        pipe_patience: match given.amount("--pipe-timeout")? {
            Some(0.0) => Duration::MAX,
            Some(amount) => seconds(amount),
            None => Duration::from_secs(30),
        },
    })
}

fn mode(given: &Given<'_>) -> Result<Mode, BenchError> {
    let flags = [
        ("--scan", Mode::Scan),
        ("--bigkeys", Mode::BigKeys),
        ("--memkeys", Mode::MemoryKeys),
        ("--stat", Mode::Stat),
        ("--hotkeys", Mode::HotKeys),
        ("--latency-history", Mode::LatencyHistory),
        ("--latency-dist", Mode::LatencySpectrum),
        ("--replica", Mode::Replica),
        ("--latency", Mode::Latency),
        ("--pipe", Mode::Pipe),
    ];
    if let Some((_, mode)) = flags.into_iter().find(|(flag, _)| given.has(flag)) {
        return Ok(mode);
    }
    if let Some(time) = given.seconds("--intrinsic-latency")? {
        return Ok(Mode::IntrinsicLatency(time));
    }
    match given.number::<u64>("--lru-test")? {
        Some(0) => {
            return Err(BenchError::Usage(
                "--lru-test 0: at least one key".to_owned(),
            ));
        }
        Some(keys) => return Ok(Mode::Evictions(keys)),
        None => {}
    }
    for (flag, has_functions_alone) in [("--rdb", false), ("--functions-rdb", true)] {
        if let Some(path) = given.text(flag) {
            return Ok(Mode::Dump(Dump {
                path: path.into(),
                has_functions_alone,
            }));
        }
    }
    let words = given
        .all("command")
        .map(|word| match given.has("--quoted-input") {
            true => unquoted(word),
            false => Ok(word.as_bytes().to_vec()),
        });
    let words: Vec<Vec<u8>> = words.collect::<Result<_, _>>()?;
    let is_sync = given.has("--ldb-sync-mode");
    match (given.text("--eval"), is_sync || given.has("--ldb")) {
        (Some(path), true) => Ok(Mode::Debug(Debugged {
            path: path.into(),
            words,
            is_sync,
        })),
        (Some(path), false) => script(path.as_ref(), words).map(Mode::Commands),
        (None, true) => Err(BenchError::Usage(
            "Options --ldb and --ldb-sync-mode require --eval.".to_owned(),
        )),
        (None, false) => Ok(Mode::Commands(words)),
    }
}

/// Returns a word without its quotes, if it has any.
fn unquoted(word: &str) -> Result<Vec<u8>, BenchError> {
    if !word.starts_with(['"', '\'']) {
        return Ok(word.as_bytes().to_vec());
    }
    let parts = protocol::split_line(word.as_bytes());
    match parts.as_deref() {
        Ok([only]) => Ok(only.clone()),
        _ => Err(BenchError::Usage(format!(
            "Invalid quoted string specified: {word}"
        ))),
    }
}

fn pattern(given: &Given<'_>) -> Result<Option<String>, BenchError> {
    let Some(word) = given.text("--quoted-pattern") else {
        return Ok(given.text("--pattern").map(str::to_owned));
    };
    let pattern = String::from_utf8(unquoted(word)?);
    let refused = |_| BenchError::Usage("--quoted-pattern is no UTF-8".to_owned());
    pattern.map(Some).map_err(refused)
}

/// Returns the request that runs a script: words before a lone comma are keys.
pub(super) fn script(path: &Path, mut words: Vec<Vec<u8>>) -> Result<Vec<Vec<u8>>, BenchError> {
    let text =
        std::fs::read(path).map_err(|error| BenchError::File(path.into(), error.to_string()))?;
    let comma = words.iter().position(|word| word == b",");
    let keys = comma.unwrap_or(words.len());
    if let Some(at) = comma {
        words.remove(at);
    }
    let mut request = vec![b"EVAL".to_vec(), text, keys.to_string().into_bytes()];
    request.append(&mut words);
    Ok(request)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(words: &[&str]) -> Options {
        let words = words.iter().map(|word| (*word).to_owned()).collect();
        read(words).unwrap().unwrap()
    }

    #[test]
    fn the_words_fit_together() {
        command().debug_assert();
    }

    #[test]
    fn a_request_keeps_its_words() {
        let options = given(&["-p", "7", "SET", "-a", "--raw"]);
        let words = ["SET", "-a", "--raw"].map(|word| word.as_bytes().to_vec());
        assert_eq!(options.mode, Mode::Commands(words.to_vec()));
        assert!(given(&["--json", "PING"]).endpoint.is_resp3);
        assert!(!given(&["--json", "-2", "PING"]).endpoint.is_resp3);
        assert_eq!(given(&["-r", "-1", "PING"]).repeats, None);
        assert_eq!(given(&["--memkeys"]).mode, Mode::MemoryKeys);
        let quoted = given(&["--quoted-input", "SET", "\"a\\x00b\"", "it's"]);
        let words = [b"SET".to_vec(), b"a\0b".to_vec(), b"it's".to_vec()];
        assert_eq!(quoted.mode, Mode::Commands(words.to_vec()));
        let pattern = given(&["--scan", "--quoted-pattern", "\"a\\x41*\""]).pattern;
        assert_eq!(pattern.as_deref(), Some("aA*"));
    }

    #[test]
    fn an_option_that_there_is_not_is_no_request() {
        let refused = |words: &[&str]| {
            let words = words.iter().map(|word| (*word).to_owned()).collect();
            read(words).unwrap_err().to_string()
        };
        assert!(refused(&["--bogus", "PING"]).contains("'--bogus'"));
        assert!(refused(&["-p", "7", "-9"]).contains("'-9'"));
        assert!(refused(&["--cluster", "check", "a:1"]).contains("iolite cluster"));
        assert!(refused(&["--ldb", "PING"]).contains("require --eval"));
        let debugged = given(&["--ldb-sync-mode", "--eval", "a.lua", "k", ",", "v"]).mode;
        let Mode::Debug(debugged) = debugged else {
            panic!("{debugged:?}");
        };
        assert!(
            debugged.is_sync && debugged.words.len() == 3,
            "{debugged:?}"
        );
        // Words after a request belong to it.
        assert_eq!(
            given(&["--verbose", "-2", "PING"]).mode,
            given(&["PING"]).mode
        );
    }
}
