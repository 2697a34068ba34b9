//! A session of the script debugger of Redis and Valkey (`--ldb`, `--ldb-sync-mode`, with
//! `--eval`). The script stops before its first line, and lines of standard input are commands of
//! the debugger. After the end of the script they are requests again. A server without a debugger,
//! such as Iolite, reports so, and nothing is run.

use std::io::{IsTerminal as _, Write};

use protocol::{Value, encode_request, split_line};

use super::options::{Debugged, Options, script};
use super::out::written;
use super::print::{Form, Printer};
use super::{conversation, interactive};
use crate::endpoint::Session;
use crate::error::BenchError;

/// The line that marks the end of the script; the reply to EVAL follows.
const END: &[u8] = b"<endsession>";

const WELCOME: &str = "Lua debugging session started, please use:\n\
                       quit    -- End the session.\n\
                       restart -- Restart the script in debug mode again.\n\
                       help    -- Show Lua script debugging commands.\n\n";

/// How a run of the script ended.
enum Ended {
    /// It ran to its end, or was aborted.
    Script,
    /// It is to be run again from its first line.
    Again,
    /// The session is over.
    Session,
}

/// Runs the script under the debugger, as often as requested. Returns the exit code.
pub(super) fn run(
    options: &Options,
    debugged: &Debugged,
    out: &mut dyn Write,
) -> Result<u8, BenchError> {
    // A person reads the output.
    let typed = Options {
        printer: Printer::new(Form::Typed),
        ..options.clone()
    };
    loop {
        match run_once(options, debugged, out)? {
            Ended::Script if std::io::stdin().is_terminal() => {
                return interactive::run(&typed, out).map(|()| 0);
            }
            Ended::Script => return conversation::lines(&typed, out),
            Ended::Session => return Ok(0),
            Ended::Again => written(out.write_all(b"\n"))?,
        }
    }
}

fn run_once(
    options: &Options,
    debugged: &Debugged,
    out: &mut dyn Write,
) -> Result<Ended, BenchError> {
    // Read again for each run: the user changes it and tries again.
    let request = script(&debugged.path, debugged.words.clone())?;
    let mut session = options.endpoint.connect()?;
    session.set_patience(None)?;
    let way = if debugged.is_sync { "SYNC" } else { "YES" };
    session.demand("SCRIPT DEBUG", &["SCRIPT", "DEBUG", way])?;
    written(out.write_all(WELCOME.as_bytes()))?;
    let mut run = Run {
        session,
        typed: Printer::new(Form::Typed),
    };
    if run.exchange(&request, out)? {
        written(out.write_all(b"Eval debugging session can't start:\n"))?;
        run.result(out)?;
        return Ok(Ended::Session);
    }
    let ended = run.steps(out)?;
    if matches!(ended, Ended::Script) {
        run.result(out)?;
        let kept = match debugged.is_sync {
            true => "",
            false => " -- dataset changes rolled back",
        };
        written(write!(out, "\n(Lua debugging session ended{kept})\n\n"))?;
    }
    Ok(ended)
}

/// A script that is stopped.
struct Run {
    session: Session,
    typed: Printer,
}

impl Run {
    /// Sends lines of standard input as commands of the debugger.
    fn steps(&mut self, out: &mut dyn Write) -> Result<Ended, BenchError> {
        let is_terminal = std::io::stdin().is_terminal();
        let mut line = String::new();
        loop {
            if is_terminal {
                written(out.write_all(b"lua debugger> ").and_then(|()| out.flush()))?;
            }
            line.clear();
            let read = std::io::stdin().read_line(&mut line);
            if read.map_err(|error| BenchError::System("standard input", error))? == 0 {
                return Ok(Ended::Session);
            }
            let Ok(words) = split_line(line.trim_end().as_bytes()) else {
                written(out.write_all(b"Invalid argument(s)\n"))?;
                continue;
            };
            let Some(first) = words.first() else {
                continue;
            };
            match first.to_ascii_lowercase().as_slice() {
                b"quit" | b"exit" => return Ok(Ended::Session),
                b"restart" => return Ok(Ended::Again),
                _ => {}
            }
            if self.exchange(&words, out)? {
                return Ok(Ended::Script);
            }
        }
    }

    /// Sends a request and shows the debugger's lines. Returns whether they mark the end of the
    /// script.
    fn exchange(&mut self, words: &[Vec<u8>], out: &mut dyn Write) -> Result<bool, BenchError> {
        let words: Vec<&[u8]> = words.iter().map(Vec::as_slice).collect();
        let mut request = Vec::new();
        encode_request(&mut request, &words);
        self.session.send(&request)?;
        let lines = match self.session.reply()? {
            Value::Array(lines) => lines,
            other => vec![other],
        };
        let mut has_ended = false;
        for line in lines {
            let (Value::Simple(text) | Value::Bulk(text) | Value::Error(text)) = line else {
                continue;
            };
            let is_end = text.starts_with(END);
            has_ended |= is_end;
            let shown = if is_end { &b""[..] } else { &text };
            written(out.write_all(shown).and_then(|()| out.write_all(b"\n")))?;
        }
        written(out.flush())?;
        Ok(has_ended)
    }

    /// Shows the reply to EVAL.
    fn result(&mut self, out: &mut dyn Write) -> Result<(), BenchError> {
        let reply = self.session.reply()?;
        let text = self.typed.show(&reply, false);
        written(out.write_all(&text).and_then(|()| out.flush()))
    }
}
