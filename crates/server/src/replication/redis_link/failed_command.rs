//! Which command of a batch failed, and with what: an operator has to know what the primary said that this server does not do.

use engine::error::NO_MEMBER_DEADLINES;
use protocol::{Value, decode_value};

/// So much of an error is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// What was answered with errors among some commands.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Failures {
    /// The first of them, and the error: `LSET: ERR index out of range`. Of the command only the name, as the log has no
    /// data of users.
    pub(super) first: Option<String>,
    /// How often a KeyDB wanted a member to expire that has no deadline here: its primary removes that member in time.
    pub(super) without_deadline: u64,
}

/// Looks through the replies to some commands. Both are of one batch, in the same order; what ran in a transaction is in the
/// reply of its EXEC.
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
                // Those of a transaction, then its EXEC: the names end with as many and one, if it began in this batch.
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
        // The rest of it was in the batch before.
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
