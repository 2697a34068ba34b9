//! The prompt: lines with history, completion of names, and hints for further words.

use std::borrow::Cow;
use std::io::Write;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{Config, Context, Editor, Helper};

use super::conversation::{Conversation, Next};
use super::docs::Docs;
use super::options::Options;
use super::out::written;
use crate::error::BenchError;

/// Number of lines kept in the history.
const HISTORY_LINES: usize = 1000;
/// The history file, relative to the home directory.
const HISTORY_NAME: &str = ".iolitecli_history";
/// Variables that name another history file; `/dev/null` keeps none.
const HISTORY_VARIABLES: [&str; 2] = ["IOLITECLI_HISTFILE", "REDISCLI_HISTFILE"];
/// The preferences file, relative to the home directory, and the variables that name another one.
const PREFERENCES_NAME: &str = ".iolitecli_rc";
const PREFERENCES_VARIABLES: [&str; 2] = ["IOLITECLI_RCFILE", "REDISCLI_RCFILE"];

/// Answers the editor's questions while a line is edited.
#[derive(Default)]
struct Assistant {
    docs: Docs,
    shows_hints: bool,
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

/// Returns what follows `help`.
fn strip_help(line: &str) -> Option<&str> {
    let (first, rest) = line.split_once(' ')?;
    first
        .eq_ignore_ascii_case("help")
        .then(|| rest.trim_start())
}

impl Hinter for Assistant {
    type Hint = String;

    fn hint(&self, line: &str, position: usize, _context: &Context<'_>) -> Option<String> {
        if !self.shows_hints || position < line.len() || line.is_empty() {
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

/// Reads lines until the input ends.
pub(super) fn run(options: &Options, out: &mut dyn Write) -> Result<(), BenchError> {
    let mut conversation = Conversation::new(options);
    conversation.connect();
    let config = Config::builder().max_history_size(HISTORY_LINES);
    let config = config.map_err(editor)?.auto_add_history(false).build();
    let mut lines: Lines = Editor::with_config(config).map_err(editor)?;
    lines.set_helper(Some(Assistant::default()));
    let history = path_of(&HISTORY_VARIABLES, HISTORY_NAME);
    if let Some(path) = &history {
        // There is no file the first time.
        let _loaded = lines.load_history(path);
    }
    prefer(&mut conversation, out)?;
    loop {
        prepare(&mut conversation, &mut lines);
        let line = match lines.readline(&conversation.prompt()) {
            Ok(line) => line,
            Err(ReadlineError::Interrupted | ReadlineError::Eof) => break,
            Err(error) => return Err(editor(error)),
        };
        // A paste may contain several lines.
        let mut pasted = line.split('\n').map(str::trim);
        let is_last = pasted.try_fold(false, |is_last, line| {
            if is_last || line.is_empty() {
                return Ok(is_last);
            }
            if !has_secret(line) {
                let _added = lines.add_history_entry(line);
            }
            run_line(&mut conversation, &mut lines, line, out)
        })?;
        if is_last {
            break;
        }
    }
    if let Some(path) = &history {
        // A failure to save has no consequence now.
        let _saved = lines.save_history(path);
    }
    Ok(())
}

/// Updates the editor from the conversation.
fn prepare(conversation: &mut Conversation<'_>, lines: &mut Lines) {
    let Some(assistant) = lines.helper_mut() else {
        return;
    };
    assistant.shows_hints = conversation.shows_hints;
    // A transaction would queue the question.
    let may_ask = conversation.client.is_connected() && !conversation.is_in_transaction();
    if assistant.docs.entries.is_empty()
        && may_ask
        && let Ok(session) = conversation.client.connect()
    {
        assistant.docs = Docs::of(session);
    }
}

/// Executes a line. Returns whether it was the last.
fn run_line(
    conversation: &mut Conversation<'_>,
    lines: &mut Lines,
    line: &str,
    out: &mut dyn Write,
) -> Result<bool, BenchError> {
    match conversation.line(line.as_bytes(), out)? {
        Next::On => {}
        Next::Clear => {
            let _cleared = lines.clear_screen();
        }
        Next::Help(words) => {
            let text = lines.helper().map(|helper| helper.docs.help(&words));
            written(out.write_all(text.unwrap_or_default().as_bytes()))?;
        }
        Next::End => return Ok(true),
    }
    Ok(false)
}

/// Applies the preferences in a file, which has lines such as `:set nohints`.
fn prefer(conversation: &mut Conversation<'_>, out: &mut dyn Write) -> Result<(), BenchError> {
    let path = path_of(&PREFERENCES_VARIABLES, PREFERENCES_NAME);
    let text = path.and_then(|path| std::fs::read_to_string(path).ok());
    let lines = text.iter().flat_map(|text| text.lines());
    for line in lines.filter(|line| line.trim_start().starts_with(':')) {
        conversation.line(line.as_bytes(), out)?;
    }
    Ok(())
}

/// Whether a line contains confidential words.
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

/// Returns the file that a variable names, or the one in the home directory.
fn path_of(variables: &[&str], name: &str) -> Option<PathBuf> {
    let named = variables.iter().find_map(std::env::var_os);
    let path = match named {
        Some(path) => PathBuf::from(path),
        None => PathBuf::from(std::env::var_os("HOME")?).join(name),
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
        let mut assistant = Assistant {
            docs,
            shows_hints: true,
        };
        let history = DefaultHistory::new();
        let context = Context::new(&history);
        let hint = |line: &str| assistant.hint(line, line.len(), &context);
        assert_eq!(hint("set").as_deref(), Some(" key value [NX | XX]"));
        assert_eq!(hint("set a ").as_deref(), Some("value [NX | XX]"));
        assert_eq!(hint("set a b c"), None);
        let complete = |line: &str| assistant.complete(line, line.len(), &context).unwrap();
        assert_eq!(complete("se"), (0, vec!["set".to_owned()]));
        assert_eq!(complete("help CONF"), (5, vec!["CONFIG GET".to_owned()]));
        assistant.shows_hints = false;
        assert_eq!(assistant.hint("set", 3, &context), None);
    }
}
