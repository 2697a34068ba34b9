//! The prompt: lines with history, names that are completed, words that are still to come, and help.

use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;

use protocol::{Value, split_line};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::docs::Docs;
use super::options::Options;
use super::{Client, written};
use crate::error::BenchError;

/// Lines that are kept.
const HISTORY_LINES: usize = 1000;
/// Where lines are kept, relative to the home directory.
const HISTORY_NAME: &str = ".iolitecli_history";
/// These tell where they are kept instead; nothing is kept at `/dev/null`.
const HISTORY_VARIABLES: [&str; 2] = ["IOLITECLI_HISTFILE", "REDISCLI_HISTFILE"];

/// What the editor asks while a line is written.
struct Assistant {
    docs: Docs,
}

impl Helper for Assistant {}
impl Validator for Assistant {}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _context: &Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let begun = &line[..position];
        let (start, begun) = match strip_help(begun) {
            Some(rest) => (position - rest.len(), rest),
            None => (0, begun),
        };
        let begun_upper = begun.to_uppercase();
        let names = self.docs.entries.keys();
        let names = names.filter(|name| !begun.is_empty() && name.starts_with(&begun_upper));
        let is_lower = begun.chars().all(|one| !one.is_uppercase());
        let names = names.map(|name| match is_lower {
            true => name.to_lowercase(),
            false => name.clone(),
        });
        Ok((start, names.collect()))
    }
}

/// What stands behind `help`.
fn strip_help(line: &str) -> Option<&str> {
    let (first, rest) = line.split_once(' ')?;
    first
        .eq_ignore_ascii_case("help")
        .then(|| rest.trim_start())
}

impl Hinter for Assistant {
    type Hint = String;

    fn hint(&self, line: &str, position: usize, _context: &Context<'_>) -> Option<String> {
        if position < line.len() || line.is_empty() {
            return None;
        }
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let (entry, used) = self.docs.find(&words)?;
        let given = words.len() - used;
        let rest = entry.words.get(given..)?;
        if rest.is_empty() {
            return None;
        }
        let space = if line.ends_with(' ') { "" } else { " " };
        Some(format!("{space}{}", rest.join(" ")))
    }
}

impl Highlighter for Assistant {
    fn highlight_hint<'h>(&self, hint: &'h str) -> Cow<'h, str> {
        Cow::Owned(format!("\x1b[90m{hint}\x1b[0m"))
    }
}

type Lines = Editor<Assistant, DefaultHistory>;

/// Reads lines until there are no more.
pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut client = Client::connect(options)?;
    let docs = Docs::of(&mut client.session);
    let config = Config::builder().max_history_size(HISTORY_LINES);
    let config = config.map_err(editor)?.auto_add_history(false).build();
    let mut lines: Lines = Editor::with_config(config).map_err(editor)?;
    lines.set_helper(Some(Assistant { docs }));
    let history = history_path();
    if let Some(path) = &history {
        // The first time there is none.
        let _loaded = lines.load_history(path);
    }
    let mut state = State {
        address: options.endpoint.address.to_string(),
        database: options.endpoint.database,
        is_in_transaction: false,
    };
    loop {
        let line = match lines.readline(&state.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => break,
            Err(error) => return Err(editor(error)),
        };
        let mut is_last = false;
        // What is pasted may be several lines.
        for line in line
            .split('\n')
            .map(str::trim)
            .filter(|line| !line.is_empty())
        {
            if !has_secret(line) {
                let _added = lines.add_history_entry(line);
            }
            is_last = run_line(options, &mut client, &mut state, &mut lines, line, out)?;
            if is_last {
                break;
            }
        }
        if is_last {
            break;
        }
    }
    if let Some(path) = &history {
        // What cannot be kept is not missed now.
        let _saved = lines.save_history(path);
    }
    Ok(())
}

/// Does what a line says, by a new connection where the old one is lost; whether it was the last.
fn run_line<'o>(
    options: &'o Options,
    client: &mut Client<'o>,
    state: &mut State,
    lines: &mut Lines,
    line: &str,
    out: &mut dyn Write,
) -> Result<bool, BenchError> {
    match step(client, state, lines, line, out) {
        Ok(is_last) => return Ok(is_last),
        Err(BenchError::Connection(address, error)) => {
            written(writeln!(out, "{address}: {error}"))?;
            // The next line asks again; what was begun on the old connection is gone.
            if let Ok(fresh) = Client::connect(options) {
                *client = fresh;
                state.is_in_transaction = false;
                state.database = options.endpoint.database;
            }
        }
        Err(error) => written(writeln!(out, "{error}"))?,
    }
    Ok(false)
}

struct State {
    address: String,
    database: u32,
    is_in_transaction: bool,
}

impl State {
    fn prompt(&self) -> String {
        let database = match self.database {
            0 => String::new(),
            number => format!("[{number}]"),
        };
        let transaction = if self.is_in_transaction { "(TX)" } else { "" };
        format!("{}{database}{transaction}> ", self.address)
    }

    /// Follows what a request that was not refused has changed.
    fn follow(&mut self, words: &[Vec<u8>], reply: &Value) {
        if matches!(reply, Value::Error(_)) {
            return;
        }
        let is = |name: &str| words[0].eq_ignore_ascii_case(name.as_bytes());
        if is("SELECT") {
            let number = words
                .get(1)
                .and_then(|word| std::str::from_utf8(word).ok()?.parse().ok());
            self.database = number.unwrap_or(self.database);
        } else if is("MULTI") {
            self.is_in_transaction = true;
        } else if is("EXEC") || is("DISCARD") || is("RESET") {
            self.is_in_transaction = false;
        }
    }
}

/// Does what a line says; whether it was the last.
fn step(
    client: &mut Client<'_>,
    state: &mut State,
    lines: &mut Lines,
    line: &str,
    out: &mut dyn Write,
) -> Result<bool, BenchError> {
    let Ok(mut words) = split_line(line.as_bytes()) else {
        written(out.write_all(b"Invalid argument(s)\n"))?;
        return Ok(false);
    };
    let first = String::from_utf8_lossy(&words[0]).to_lowercase();
    match first.as_str() {
        "quit" | "exit" => return Ok(true),
        "clear" => {
            let _cleared = lines.clear_screen();
            return Ok(false);
        }
        "help" | "?" => {
            let text = lines.helper().map(|helper| help(&helper.docs, &words[1..]));
            written(out.write_all(text.unwrap_or_default().as_bytes()))?;
            return Ok(false);
        }
        _ => {}
    }
    // `5 PING` is PING five times.
    let times = first.parse::<u64>().ok().filter(|_| words.len() > 1);
    if times.is_some() {
        words.remove(0);
    }
    for _ in 0..times.unwrap_or(1) {
        let parts: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let reply = client.exchange(&parts, out)?;
        let text = client.printer.show(&reply, super::is_text(&words));
        written(out.write_all(&text).and_then(|()| out.flush()))?;
        state.follow(&words, &reply);
        if super::listens(&words) && !matches!(reply, Value::Error(_)) {
            written(out.write_all(b"Reading messages... (Ctrl-C ends the client)\n"))?;
            client.listen(out)?;
        }
    }
    Ok(false)
}

fn help(docs: &Docs, words: &[Vec<u8>]) -> String {
    let words: Vec<String> = words
        .iter()
        .map(|word| String::from_utf8_lossy(word).into_owned())
        .collect();
    if words.is_empty() {
        return "help COMMAND tells of a command, TAB completes names, quit ends.\n".to_owned();
    }
    match docs.find(&words) {
        Some((entry, used)) => format!(
            "\n  {} {}\n  {}\n  since: {}\n  group: {}\n\n",
            words[..used].join(" ").to_uppercase(),
            entry.words.join(" "),
            entry.summary,
            entry.since,
            entry.group
        ),
        None => format!("Nothing is known of '{}'\n", words.join(" ")),
    }
}

/// Whether a line has what nobody else is to read.
fn has_secret(line: &str) -> bool {
    let upper = line.to_uppercase();
    let mut words = upper.split_whitespace();
    match (words.next(), words.next()) {
        (Some("AUTH"), _) | (Some("ACL"), Some("SETUSER")) => true,
        (Some("HELLO" | "MIGRATE"), _) => upper.contains(" AUTH"),
        (Some("CONFIG"), Some("SET")) => [
            "REQUIREPASS",
            "MASTERAUTH",
            "MASTERUSER",
            "TLS-KEY-FILE-PASS",
        ]
        .iter()
        .any(|name| upper.contains(name)),
        _ => false,
    }
}

fn history_path() -> Option<PathBuf> {
    let named = HISTORY_VARIABLES.iter().find_map(std::env::var_os);
    let path = match named {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(HISTORY_NAME),
    };
    (path.as_os_str() != "/dev/null").then_some(path)
}

fn editor(error: ReadlineError) -> BenchError {
    BenchError::System("the line editor", std::io::Error::other(error))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::docs::Entry;

    #[test]
    fn secrets_are_not_kept() {
        for line in [
            "auth x",
            "ACL SETUSER a >p",
            "hello 3 auth a b",
            "config set requirepass x",
        ] {
            assert!(has_secret(line), "{line}");
        }
        assert!(!has_secret("set auth x"));
        assert!(!has_secret("hello 3"));
    }

    #[test]
    fn what_is_still_to_come_is_shown() {
        let mut docs = Docs::default();
        let entry = Entry {
            words: vec!["key".to_owned(), "value".to_owned(), "[NX | XX]".to_owned()],
            ..Entry::default()
        };
        docs.entries.insert("SET".to_owned(), entry);
        docs.entries
            .insert("CONFIG GET".to_owned(), Entry::default());
        let assistant = Assistant { docs };
        let history = DefaultHistory::new();
        let context = Context::new(&history);
        let hint = |line: &str| assistant.hint(line, line.len(), &context);
        assert_eq!(hint("set").as_deref(), Some(" key value [NX | XX]"));
        assert_eq!(hint("set a ").as_deref(), Some("value [NX | XX]"));
        assert_eq!(hint("set a b c"), None);
        let complete = |line: &str| assistant.complete(line, line.len(), &context).unwrap();
        assert_eq!(complete("se"), (0, vec!["set".to_owned()]));
        assert_eq!(complete("help CONF"), (5, vec!["CONFIG GET".to_owned()]));
    }
}
