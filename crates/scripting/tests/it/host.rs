//! A [`Host`] for tests, and shorthands for running a script.

use scripting::{Host, Level, Limits, Machine, Refused, Reply, ScriptError, Stop, Value};

/// A [`Host`] that answers a few commands of its own.
#[derive(Default)]
pub(crate) struct Desk {
    /// The received commands, with words joined by blanks.
    pub(crate) calls: Vec<String>,
    pub(crate) logged: Vec<(Level, String)>,
    pub(crate) resp: Option<u8>,
    /// Number of interrupt checks that return "continue" before the script is stopped.
    pub(crate) patience: Option<u32>,
    pub(crate) frame: Vec<u8>,
}

impl Host for Desk {
    fn call(&mut self, arguments: &[&[u8]]) -> Reply<'_> {
        let words: Vec<String> = arguments
            .iter()
            .map(|word| String::from_utf8_lossy(word).into_owned())
            .collect();
        self.calls.push(words.join(" "));
        match arguments {
            [b"get", key] => Value::Bulk(key.to_vec()).into(),
            [b"echo", text] => Value::Bulk(text.to_vec()).into(),
            [b"frame", frame] => {
                self.frame = frame.to_vec();
                Reply::Encoded(&self.frame)
            }
            [b"stop"] => Reply::Stop(Stop {
                text: "stopped by a command",
            }),
            [b"ok"] => Value::Status(b"OK".to_vec()).into(),
            [b"nil"] => Value::Nil.into(),
            [b"number", digits] => Value::Integer(base::number::parse_i64(digits).unwrap()).into(),
            _ => Value::Error(b"ERR Unknown Redis command called from script".to_vec()).into(),
        }
    }

    fn log(&mut self, level: Level, text: &[u8]) {
        self.logged
            .push((level, String::from_utf8_lossy(text).into_owned()));
    }

    fn acl_allows(&mut self, arguments: &[&[u8]]) -> Result<bool, Refused> {
        match arguments {
            [b"get", ..] => Ok(true),
            [b"set", ..] => Ok(false),
            _ => Err(Refused {
                text: "ERR Invalid command passed to redis.acl_check_cmd()",
            }),
        }
    }

    fn set_resp(&mut self, version: u8) {
        self.resp = Some(version);
    }

    fn interrupted(&mut self) -> Option<Stop> {
        let patience = self.patience.as_mut()?;
        *patience = match patience.checked_sub(1) {
            Some(left) => left,
            None => {
                return Some(Stop {
                    text: "Script killed by user with SCRIPT KILL.",
                });
            }
        };
        None
    }
}

/// Runs `source` in a machine of its own.
pub(crate) fn run(source: &str) -> Result<Value, ScriptError> {
    run_with(source, &[], &[], &mut Desk::default())
}

pub(crate) fn run_with(
    source: &str,
    keys: &[&str],
    args: &[&str],
    desk: &mut Desk,
) -> Result<Value, ScriptError> {
    let mut machine = Machine::new(Limits::default(), "7.4.2").unwrap();
    let program = machine.compile("0123abcd", source.as_bytes())?;
    let keys: Vec<&[u8]> = keys.iter().map(|key| key.as_bytes()).collect();
    let args: Vec<&[u8]> = args.iter().map(|arg| arg.as_bytes()).collect();
    machine.run(&program, &keys, &args, desk)
}

/// Returns the text of the error that `source` ends with.
pub(crate) fn error(source: &str) -> String {
    String::from_utf8_lossy(run(source).unwrap_err().text()).into_owned()
}

pub(crate) fn bulk(text: &str) -> Value {
    Value::Bulk(text.as_bytes().to_vec())
}

/// Returns the result of `source` as text.
pub(crate) fn text(source: &str) -> String {
    match run(source) {
        Ok(Value::Bulk(text)) => String::from_utf8_lossy(&text).into_owned(),
        other => panic!("{source}: {other:?}"),
    }
}
