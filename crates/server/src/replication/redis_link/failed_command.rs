//! Which command of a batch failed, and with what: an operator has to know what the primary said that this server does not do.

use protocol::{Value, decode_value};

/// So much of an error is shown.
const SHOWN_CHARS_MAX: usize = 200;

/// The first command among some that was answered with an error, and the error: `LSET: ERR index out of range`. Of the
/// command only the name, as the log has no data of users. Commands and replies are of one batch, in the same order; what
/// ran in a transaction is in the reply of its EXEC.
pub(super) fn first_failure(mut commands: &[u8], mut replies: &[u8]) -> String {
    let mut names = Vec::new();
    while let Ok(Some((reply, len))) = decode_value(replies) {
        replies = replies.get(len..).unwrap_or_default();
        names.push(next_name(&mut commands));
        let failed = match &reply {
            Value::Error(text) => Some((names.len() - 1, text)),
            Value::Array(within) => failed_within(within).map(|(at, text)| {
                // Those of a transaction, then its EXEC: the names end with as many and one, if it began in this batch.
                let last = names.len() - 1;
                let is_exec = names[last].eq_ignore_ascii_case("EXEC");
                let first = last.checked_sub(within.len()).filter(|_| is_exec);
                (first.map_or(last, |first| first + at), text)
            }),
            _ => None,
        };
        if let Some((at, text)) = failed {
            let text = String::from_utf8_lossy(text);
            let text: String = text.chars().take(SHOWN_CHARS_MAX).collect();
            return format!("{}: {text}", names[at]);
        }
    }
    "an error that was not answered".to_owned()
}

fn failed_within(values: &[Value]) -> Option<(usize, &Vec<u8>)> {
    let mut values = values.iter().enumerate();
    values.find_map(|(at, value)| match value {
        Value::Error(text) => Some((at, text)),
        Value::Array(values) => failed_within(values).map(|(_, text)| (at, text)),
        _ => None,
    })
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
        assert_eq!(
            first_failure(b"", b"+OK\r\n"),
            "an error that was not answered"
        );
        assert_eq!(first_failure(b"", b"*1\r\n-ERR x\r\n"), "?: ERR x");
        // The rest of it was in the batch before.
        let sent = commands(&["INCR b", "EXEC"]);
        let replies = b"+QUEUED\r\n*3\r\n-ERR x\r\n:1\r\n:2\r\n";
        assert_eq!(first_failure(&sent, replies), "EXEC: ERR x");
    }
}
