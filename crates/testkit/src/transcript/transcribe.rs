//! Writes a target's replies into a transcript where the file has no matching reply.
//!
//! `cargo xtask transcribe FILE` prints FILE with the oracle's replies. With `--write` it replaces
//! the file. Replies that match, for example wildcards, stay unchanged; others are replaced. Parts
//! that the oracle does not run stay unchanged.

use std::io;

use super::file::{Expected, Line, Request, Step, Transcript};
use super::notation::show;
use super::run::Run;
use crate::target::Launcher;

/// Returns the text of the transcript with the replies of a target.
///
/// # Errors
/// If the text is not a transcript, or the target fails.
pub fn transcribe(path: &str, text: &str, launcher: &Launcher) -> io::Result<String> {
    let transcript = Transcript::parse_draft(path, text).map_err(io::Error::other)?;
    let target = (launcher.start)(&transcript.server_args)?;
    let mut run = Run::new(target.as_ref(), launcher.is_oracle);
    let mut draft = Draft {
        lines: text.lines().map(|line| vec![line.to_owned()]).collect(),
    };
    for (line, step) in &transcript.steps {
        let Step::Exchange {
            request, replies, ..
        } = step
        else {
            run.prepare(step)?;
            continue;
        };
        if run.is_active() {
            run.send(request)?;
            draft.fill(*line, request, replies, &mut run)?;
        }
    }
    Ok(draft.text())
}

/// The lines of the file, each with the lines that replace it.
struct Draft {
    lines: Vec<Vec<String>>,
}

impl Draft {
    fn fill(
        &mut self,
        line: Line,
        request: &Request,
        replies: &[Expected],
        run: &mut Run<'_>,
    ) -> io::Result<()> {
        if replies.is_empty() && !self.says_none(line) && *request != Request::None {
            let received = run.receive()?;
            let shown = received
                .as_ref()
                .map_or_else(|| "(closed)".to_owned(), show);
            self.lines[line - 1].push(shown);
        }
        for expected in replies {
            let received = run.receive()?;
            let (at, fits) = match (expected, &received) {
                (Expected::Closed(at), received) => (*at, received.is_none()),
                (Expected::Reply(at, pattern), Some(value)) => (*at, pattern.accepts(value)),
                (Expected::Reply(at, _), None) => (*at, false),
            };
            if !fits {
                let shown = received
                    .as_ref()
                    .map_or_else(|| "(closed)".to_owned(), show);
                self.lines[at - 1] = vec![shown];
            }
        }
        Ok(())
    }

    fn says_none(&self, line: Line) -> bool {
        let following = self.lines.iter().skip(line);
        let next = following.map(|lines| lines[0].trim());
        let mut next = next.filter(|text| !text.is_empty() && !text.starts_with('#'));
        next.next() == Some("(none)")
    }

    fn text(&self) -> String {
        let mut text = self.lines.concat().join("\n");
        text.push('\n');
        text
    }
}
