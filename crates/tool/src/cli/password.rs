//! `--askpass`: reads a password from the terminal, shown as asterisks, or from the first line of
//! standard input.

use std::borrow::Cow;
use std::io::IsTerminal as _;

use rustyline::completion::Completer;
use rustyline::config::Configurer as _;
use rustyline::highlight::{CmdKind, Highlighter};
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::Validator;
use rustyline::{ColorMode, Editor, Helper};

use crate::error::BenchError;

/// Shows a line as asterisks.
struct Mask;

impl Helper for Mask {}
impl Validator for Mask {}
impl Completer for Mask {
    type Candidate = String;
}
impl Hinter for Mask {
    type Hint = String;
}

impl Highlighter for Mask {
    fn highlight<'l>(&self, line: &'l str, _position: usize) -> Cow<'l, str> {
        Cow::Owned("*".repeat(line.chars().count()))
    }

    // Each typed character is drawn again.
    fn highlight_char(&self, _line: &str, _position: usize, _kind: CmdKind) -> bool {
        true
    }
}

/// Asks for a password.
///
/// # Errors
/// If there is none: the input ended, or was interrupted.
pub(super) fn ask() -> Result<String, BenchError> {
    let failed = |error: &dyn std::fmt::Display| BenchError::Usage(format!("no password: {error}"));
    if !std::io::stdin().is_terminal() {
        let mut line = String::new();
        let read = std::io::stdin().read_line(&mut line);
        return match read.map_err(|error| failed(&error))? {
            0 => Err(failed(&"standard input is empty")),
            _ => Ok(line.trim_end_matches(['\r', '\n']).to_owned()),
        };
    }
    let mut editor = Editor::<Mask, DefaultHistory>::new().map_err(|error| failed(&error))?;
    editor.set_helper(Some(Mask));
    // Without colours a line is shown unmasked.
    editor.set_color_mode(ColorMode::Forced);
    editor.set_auto_add_history(false);
    let line = editor.readline("Please input password: ");
    line.map_err(|error| failed(&error))
}
