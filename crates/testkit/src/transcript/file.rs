//! A transcript file, as steps with their line numbers.

use std::fmt;

use base::words::split;

use super::notation::{NotationError, parse};
use super::pattern::Pattern;

/// Number of a line, from 1.
pub type Line = usize;

/// A parsed file.
#[derive(Debug)]
pub struct Transcript {
    /// Path of the file, for messages.
    pub path: String,
    /// Words for the server's command line.
    pub server_args: Vec<String>,
    /// The steps, in order.
    pub steps: Vec<(Line, Step)>,
}

/// One step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Send bytes, then read as many replies as there are expectations.
    Exchange {
        /// The request as text of the file, for messages.
        text: String,
        /// The request to send.
        request: Request,
        /// The expected replies. If empty, nothing is read now.
        replies: Vec<Expected>,
    },
    /// Reconnect the current client, with RESP3 or without.
    Reconnect {
        /// Whether HELLO 3 is sent.
        resp3: bool,
    },
    /// Switch to another client.
    Client(String),
    /// Remove all keys.
    Fresh,
    /// The following steps are for some targets only.
    Section(Section),
    /// Wait until a key has expired, within a limit.
    UntilExpired(Vec<u8>),
    /// Wait until this many clients are blocked, within a limit.
    UntilBlocked(u32),
}

/// Content of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Arguments, sent as RESP.
    Args(Vec<Vec<u8>>),
    /// Bytes, sent unchanged.
    Raw(Vec<u8>),
    /// Nothing is sent; replies are only read.
    None,
}

/// What must be received.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Expected {
    /// A reply.
    Reply(Line, Pattern),
    /// The end of the connection.
    Closed(Line),
}

/// The targets that a part of the file is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Section {
    /// All targets.
    All,
    /// All but the oracle, which does not know the feature: it is newer, or our own.
    NotOracle,
    /// The oracle runs it, but its replies are not compared.
    OracleDiffers,
}

/// Why a file is not a transcript.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ParseError {
    /// The file.
    pub path: String,
    /// The line, from 1.
    pub line: Line,
    /// What is wrong with it.
    pub what: String,
}

impl fmt::Display for ParseError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "{}:{}: {}", self.path, self.line, self.what)
    }
}

impl std::error::Error for ParseError {}

impl Transcript {
    /// Parses the text of a transcript. `path` is for messages.
    ///
    /// # Errors
    /// [`ParseError`] with the line, for an unknown directive, a reply that is not in the notation,
    /// or a request without a reply.
    pub fn parse(path: &str, text: &str) -> Result<Self, ParseError> {
        Self::read(path, text, true)
    }

    /// Parses a transcript whose replies may still be missing.
    ///
    /// # Errors
    /// As for [`parse`](Self::parse), except for missing replies.
    pub fn parse_draft(path: &str, text: &str) -> Result<Self, ParseError> {
        Self::read(path, text, false)
    }

    fn read(path: &str, text: &str, replies_needed: bool) -> Result<Self, ParseError> {
        let mut reader = TranscriptParser {
            lines: text.lines().collect(),
            at: 0,
            replies_needed,
            server_args: Vec::new(),
            steps: Vec::new(),
        };
        reader.read().map_err(|(line, what)| ParseError {
            path: path.to_owned(),
            line,
            what,
        })?;
        Ok(Self {
            path: path.to_owned(),
            server_args: reader.server_args,
            steps: reader.steps,
        })
    }
}

type Read<T> = Result<T, (Line, String)>;

struct TranscriptParser<'a> {
    lines: Vec<&'a str>,
    /// Index of the next line.
    at: usize,
    replies_needed: bool,
    server_args: Vec<String>,
    steps: Vec<(Line, Step)>,
}

impl<'a> TranscriptParser<'a> {
    fn read(&mut self) -> Read<()> {
        while let Some((line, text)) = self.next_line() {
            let step = if let Some(rest) = text.strip_prefix(">>") {
                Some(self.raw(line, rest.trim())?)
            } else if text.starts_with("> ") || text == ">" {
                Some(self.request(line, text[1..].trim())?)
            } else if let Some(rest) = text.strip_prefix('!') {
                self.directive(line, rest.trim())?
            } else {
                return Err((line, format!("a reply without a request: {text}")));
            };
            self.steps.extend(step.map(|step| (line, step)));
        }
        Ok(())
    }

    /// Returns the next line that is neither empty nor a comment.
    fn next_line(&mut self) -> Option<(Line, &'a str)> {
        loop {
            let text = self.lines.get(self.at)?.trim();
            self.at += 1;
            if !text.is_empty() && !is_comment(text) {
                return Some((self.at, text));
            }
        }
    }

    fn request(&mut self, line: Line, text: &str) -> Read<Step> {
        let args = split(text.as_bytes()).map_err(|error| (line, error.to_string()))?;
        self.exchange(line, text, Request::Args(args))
    }

    fn raw(&mut self, line: Line, text: &str) -> Read<Step> {
        let words = split(text.as_bytes()).map_err(|error| (line, error.to_string()))?;
        self.exchange(line, text, Request::Raw(words.concat()))
    }

    fn exchange(&mut self, line: Line, text: &str, request: Request) -> Read<Step> {
        let replies = self.replies(line)?;
        Ok(Step::Exchange {
            text: text.to_owned(),
            request,
            replies,
        })
    }

    /// Returns the expected replies before the next request or directive.
    fn replies(&mut self, request_line: Line) -> Read<Vec<Expected>> {
        let mut replies = Vec::new();
        let mut nothing = false;
        loop {
            let before = self.at;
            let Some((line, text)) = self.next_line() else {
                break;
            };
            if is_request(text) || text.starts_with('!') {
                self.at = before;
                break;
            }
            match text {
                "(none)" => nothing = true,
                "(closed)" => replies.push(Expected::Closed(line)),
                _ => replies.push(Expected::Reply(line, self.reply(line, text)?)),
            }
        }
        match replies.is_empty() != nothing && self.replies_needed {
            true => Err((
                request_line,
                "a request needs replies, or (none)".to_owned(),
            )),
            false => Ok(replies),
        }
    }

    /// Parses a reply. It continues over several lines while brackets are open.
    fn reply(&mut self, line: Line, first: &str) -> Read<Pattern> {
        let mut text = first.to_owned();
        loop {
            match parse(&text) {
                Ok(pattern) => return Ok(pattern),
                Err(NotationError::Malformed(at, what)) => {
                    return Err((line, format!("{what}: {}", &text[at..])));
                }
                Err(NotationError::Unfinished) => match self.next_line() {
                    Some((_, more)) if !is_request(more) => {
                        text.push(' ');
                        text.push_str(more);
                    }
                    _ => return Err((line, "the reply is not finished".to_owned())),
                },
            }
        }
    }

    fn directive(&mut self, line: Line, text: &str) -> Read<Option<Step>> {
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        let rest = rest.trim();
        let with_reason = |section| match rest {
            "" => Err((line, format!("! {word} needs a reason or version"))),
            _ => Ok(Some(Step::Section(section))),
        };
        match (word, rest) {
            ("resp2", "") => Ok(Some(Step::Reconnect { resp3: false })),
            ("resp3", "") => Ok(Some(Step::Reconnect { resp3: true })),
            ("fresh", "") => Ok(Some(Step::Fresh)),
            ("all", "") => Ok(Some(Step::Section(Section::All))),
            ("newer" | "iolite-only", _) => with_reason(Section::NotOracle),
            ("oracle-differs", _) => with_reason(Section::OracleDiffers),
            ("client", name) if !name.is_empty() => Ok(Some(Step::Client(name.to_owned()))),
            ("until-blocked", count) => match count.parse() {
                Ok(count) => Ok(Some(Step::UntilBlocked(count))),
                Err(_) => Err((line, "until-blocked needs a number".to_owned())),
            },
            ("until-expired", key) if !key.is_empty() => {
                let words = split(key.as_bytes()).map_err(|error| (line, error.to_string()))?;
                Ok(Some(Step::UntilExpired(words.concat())))
            }
            ("later", "") => self.exchange(line, "(later)", Request::None).map(Some),
            ("server", words) if self.steps.is_empty() => {
                let words = split(words.as_bytes()).map_err(|error| (line, error.to_string()))?;
                let words = words
                    .iter()
                    .map(|word| String::from_utf8_lossy(word).into_owned());
                self.server_args.extend(words);
                Ok(None)
            }
            _ => Err((line, format!("no such directive here: ! {text}"))),
        }
    }
}

/// Whether the line is a comment. `#t` and `#f` are replies.
fn is_comment(text: &str) -> bool {
    text.starts_with('#') && text != "#t" && text != "#f"
}

/// Whether the line begins a request. `>[` begins a push message.
fn is_request(text: &str) -> bool {
    text.starts_with("> ") || text.starts_with(">>") || text == ">"
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(text: &str) -> String {
        Transcript::parse("f.txt", text).unwrap_err().to_string()
    }

    #[test]
    fn steps_keep_their_lines() {
        let text = "# head\n! server --requirepass x\n\n> SET k \"a b\"\n+OK\n! client two\n> GET k\n\"a b\"\n";
        let transcript = Transcript::parse("f.txt", text).unwrap();
        assert_eq!(transcript.server_args, ["--requirepass", "x"]);
        let lines: Vec<Line> = transcript.steps.iter().map(|(line, _)| *line).collect();
        assert_eq!(lines, [4, 6, 7]);
        let Step::Exchange { request, .. } = &transcript.steps[0].1 else {
            panic!("not an exchange");
        };
        let args = [&b"SET"[..], b"k", b"a b"].map(<[u8]>::to_vec).to_vec();
        assert_eq!(*request, Request::Args(args));
    }

    #[test]
    fn replies_go_over_lines_and_come_in_numbers() {
        let text = "> A\n[:1,\n :2]\n#t\n>[+x]\n> B\n(none)\n! later\n:1\n(closed)\n";
        let transcript = Transcript::parse("f.txt", text).unwrap();
        let counts: Vec<usize> = transcript
            .steps
            .iter()
            .map(|(_, step)| match step {
                Step::Exchange { replies, .. } => replies.len(),
                _ => 0,
            })
            .collect();
        assert_eq!(counts, [3, 0, 2]);
    }

    #[test]
    fn mistakes_are_named_with_their_line() {
        assert_eq!(
            error("\n! nonsense\n"),
            "f.txt:2: no such directive here: ! nonsense"
        );
        assert_eq!(
            error("> GET k\n> GET k\n:1"),
            "f.txt:1: a request needs replies, or (none)"
        );
        assert_eq!(
            error("> GET k\n[:1 :2]\n"),
            "f.txt:2: a comma or the closing bracket is missing: :2]"
        );
        assert_eq!(
            error("> GET k\n[:1,\n> GET k\n"),
            "f.txt:2: the reply is not finished"
        );
        assert_eq!(error("> GET \"k\n:1\n"), "f.txt:1: unbalanced quotes");
        assert_eq!(error(":1\n"), "f.txt:1: a reply without a request: :1");
        assert_eq!(
            error("! newer\n"),
            "f.txt:1: ! newer needs a reason or version"
        );
    }
}
