//! Finds which command of a batch failed, and with which error: an operator has to know which of
//! the primary's commands fail on this server.

use engine::error::NO_MEMBER_DEADLINES;
use protocol::{Value, decode_value};

/// Maximum number of characters that are shown of an error.
const SHOWN_CHARS_MAX: usize = 200;

/// Errors among the replies to some commands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// The first failed command and its error: `LSET: ERR index out of range`. Only the command's
    /// name, because the server log must not contain users' data.
    pub(super) first: Option<String>,
    /// How often a KeyDB primary set a deadline of a member that can have none here. Its primary
    /// removes that member in time.
    pub(super) without_deadline: u64,
}

/// Searches the replies to some commands for errors. Both are of one batch, in the same order. The
/// replies of a transaction are in the reply of its EXEC.
pub(super) fn failures(mut commands: &[u8], mut replies: &[u8]) -> Failures {
    let mut failures = Failures::default();
    let mut names = Vec::new();
    while let Ok(Some((reply, len))) = decode_value(replies) {
        replies = replies.get(len..).unwrap_or_default();
        names.push(next_name(&mut commands));
        let last = names.len() - 1;
        match &reply {
            Value::Error(text) => failures.note(&names[last], text),
            Value::Array(within) => {
                // The names end with those of the transaction and its EXEC, if the transaction
                // began in this batch.
                let is_exec = names[last].eq_ignore_ascii_case("EXEC");
                let first = last.checked_sub(within.len()).filter(|_| is_exec);
                for (at, value) in within.iter().enumerate() {
                    let name = &names[first.map_or(last, |first| first + at)];
                    failures.note_within(name, value);
                }
            }
            _ => {}
        }
    }
    failures
}

impl Failures {
    fn note(&mut self, name: &str, text: &[u8]) {
        if text == NO_MEMBER_DEADLINES.as_bytes() {
            self.without_deadline += 1;
        } else if self.first.is_none() {
            let text = String::from_utf8_lossy(text);
            let text: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            self.first = Some(format!("{name}: {text}"));
        }
    }

    fn note_within(&mut self, name: &str, value: &Value) {
        match value {
            Value::Error(text) => self.note(name, text),
            Value::Array(values) => {
                for value in values {
                    self.note_within(name, value);
                }
            }
            _ => {}
        }
    }
}

fn next_name(commands: &mut &[u8]) -> String {
    let Ok(Some((Value::Array(words), len))) = decode_value(commands) else {
        *commands = &[];
        return "?".to_owned();
    };
    *commands = commands.get(len..).unwrap_or_default();
    match words.first() {
        Some(Value::Bulk(name)) => String::from_utf8_lossy(name).to_ascii_uppercase(),
        _ => "?".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn commands(lines: &[&str]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for line in lines {
            let words: Vec<&[u8]> = line.split(' ').map(str::as_bytes).collect();
            protocol::encode_request(&mut bytes, &words);
        }
        bytes
    }

    fn first_failure(commands: &[u8], replies: &[u8]) -> String {
        failures(commands, replies).first.unwrap_or_default()
    }

    #[test]
    fn the_command_that_failed_is_named() {
        let sent = commands(&["SET k v", "LSET l 5 x", "SET k w"]);
        assert_eq!(
            first_failure(&sent, b"+OK\r\n-ERR index out of range\r\n+OK\r\n"),
            "LSET: ERR index out of range"
        );
        let sent = commands(&["SET k v", "MULTI", "INCR a", "LSET l 5 x", "EXEC"]);
        let replies =
            b"+OK\r\n+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n:1\r\n-ERR index out of range\r\n";
        assert_eq!(
            first_failure(&sent, replies),
            "LSET: ERR index out of range"
        );
    }

    #[test]
    fn replies_that_do_not_fit_name_nothing() {
        assert_eq!(
            first_failure(b"", b"-ERR of nobody\r\n"),
            "?: ERR of nobody"
        );
        assert_eq!(failures(b"", b"+OK\r\n"), Failures::default());
        assert_eq!(first_failure(b"", b"*1\r\n-ERR x\r\n"), "?: ERR x");
        // The transaction began in the batch before.
        let sent = commands(&["INCR b", "EXEC"]);
        let replies = b"+QUEUED\r\n*3\r\n-ERR x\r\n:1\r\n:2\r\n";
        assert_eq!(first_failure(&sent, replies), "EXEC: ERR x");
    }

    #[test]
    fn members_that_have_no_deadline_here_are_counted_and_hide_nothing() {
        let sent = commands(&[
            "EXPIREMEMBER s a 10",
            "MULTI",
            "EXPIREMEMBER s a 10",
            "INCR a",
            "EXEC",
            "LSET l 5 x",
        ]);
        let refused = format!("-{NO_MEMBER_DEADLINES}\r\n");
        let replies =
            format!("{refused}+OK\r\n+QUEUED\r\n+QUEUED\r\n*2\r\n{refused}:1\r\n-ERR no\r\n");
        let expected = Failures {
            first: Some("LSET: ERR no".to_owned()),
            without_deadline: 2,
        };
        assert_eq!(failures(&sent, replies.as_bytes()), expected);
    }
}
