//! `iolite cli`: a client for people and scripts, with the options of `redis-cli`.
//!
//! ```text
//!   options ──┬─ words, or lines of standard input ──> exchange ──> print: as text, raw, CSV or JSON
//!             ├─ conversation: lines of standard input, or of a prompt (interactive: editor, hints from COMMAND DOCS)
//!             ├─ debugger (--ldb): a script, line by line
//!             ├─ walk (--scan --bigkeys --memkeys --hotkeys), watch (--stat --latency), spectrum (--latency-dist)
//!             └─ pipe (--pipe), replica (--rdb --functions-rdb --replica), evictions (--lru-test)
//! ```

use std::io::{IsTerminal as _, Read as _, Write};
use std::process::ExitCode;

use crate::error::BenchError;

mod client;
mod conversation;
mod debugger;
mod docs;
mod evictions;
mod interactive;
pub(crate) mod keys;
mod options;
mod out;
mod password;
mod pipe;
mod print;
mod replica;
mod spectrum;
mod walk;
mod watch;

use client::Client;
pub use options::command;
use options::{Mode, Options};
use out::written;

/// Runs the tool with the words after `cli`.
pub fn run(words: Vec<String>) -> ExitCode {
    let mut out = std::io::stdout();
    match execute(words, &mut out) {
        Ok(code) => ExitCode::from(code),
        Err(error) => {
            error.tell();
            ExitCode::FAILURE
        }
    }
}

fn execute(words: Vec<String>, out: &mut dyn Write) -> Result<u8, BenchError> {
    let options = match options::read(words)? {
        Ok(options) => options,
        Err(text) => {
            written(out.write_all(text.as_bytes()))?;
            return Ok(0);
        }
    };
    match &options.mode {
        Mode::Scan => walk::scan(&options, out).map(|()| 0),
        Mode::BigKeys => walk::big_keys(&options, out).map(|()| 0),
        Mode::MemoryKeys => walk::memory_keys(&options, out).map(|()| 0),
        Mode::HotKeys => walk::hot_keys(&options, out).map(|()| 0),
        Mode::Stat => watch::stat(&options, out).map(|()| 0),
        Mode::Latency => watch::latency(&options, out).map(|()| 0),
        Mode::LatencyHistory => watch::latency_history(&options, out).map(|()| 0),
        Mode::LatencySpectrum => spectrum::run(&options, out).map(|()| 0),
        Mode::IntrinsicLatency(time) => watch::intrinsic_latency(*time, out).map(|()| 0),
        Mode::Pipe => pipe::run(&options, out),
        Mode::Dump(dump) => replica::dump(&options, dump, out).map(|()| 0),
        Mode::Evictions(keys) => evictions::run(&options, *keys, out).map(|()| 0),
        Mode::Replica => replica::follow(&options, out).map(|()| 0),
        Mode::Debug(debugged) => debugger::run(&options, debugged, out),
        Mode::Commands(words) if !words.is_empty() => once(&options, words.clone(), out),
        Mode::Commands(_) if std::io::stdin().is_terminal() => {
            interactive::run(&options, out).map(|()| 0)
        }
        Mode::Commands(_) => conversation::lines(&options, out),
    }
}

/// Sends the request on the command line, as often as requested.
fn once(options: &Options, mut words: Vec<Vec<u8>>, out: &mut dyn Write) -> Result<u8, BenchError> {
    if options.takes_last_of_input || options.input_tag.is_some() {
        let mut input = Vec::new();
        let read = std::io::stdin().read_to_end(&mut input);
        read.map_err(|error| BenchError::System("standard input", error))?;
        match &options.input_tag {
            Some(tag) => {
                let tagged = words.iter_mut().filter(|word| *word == tag.as_bytes());
                tagged.for_each(|word| word.clone_from(&input));
            }
            None => words.push(input),
        }
    }
    let mut client = Client::new(options);
    let mut code = 0;
    let mut left = options.repeats;
    while left != Some(0) {
        code = client.run(&words, out)?;
        if code != 0 {
            break;
        }
        left = left.map(|left| left - 1);
        if left != Some(0) && !options.pause.is_zero() {
            std::thread::sleep(options.pause);
        }
    }
    Ok(code)
}
