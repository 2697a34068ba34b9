//! Conversion of scripts' values to the types of this room.

use protocol::Reply;
use scripting::{Level, Value};

use crate::port::LogLevel;

/// Writes a script's result in its client's protocol.
pub(super) fn write(value: &Value, reply: &mut Reply<'_>) {
    match value {
        Value::Nil => reply.null(),
        Value::Integer(number) => reply.integer(*number),
        Value::Bulk(text) => reply.bulk(text),
        Value::Status(text) => status(text, reply),
        Value::Error(text) => reply.error_bytes(text),
        Value::Array(values) => {
            reply.array(values.len());
            values.iter().for_each(|value| write(value, reply));
        }
        Value::Map(pairs) => {
            reply.map(pairs.len());
            for (key, value) in pairs {
                write(key, reply);
                write(value, reply);
            }
        }
        Value::Set(values) => {
            reply.set(values.len());
            values.iter().for_each(|value| write(value, reply));
        }
        Value::Double(number) => reply.double(*number),
        Value::Boolean(truth) => reply.boolean(*truth),
        Value::BigNumber(digits) => reply.big_number(&String::from_utf8_lossy(digits)),
        Value::Verbatim(format, text) => {
            reply.verbatim(&String::from_utf8_lossy(format), text);
        }
    }
}

/// Writes a status as one line, whatever the script put into it.
fn status(text: &[u8], reply: &mut Reply<'_>) {
    let is_line_end = |byte: &u8| matches!(*byte, b'\r' | b'\n');
    let text: Vec<u8> = text
        .iter()
        .map(|byte| if is_line_end(byte) { b' ' } else { *byte })
        .collect();
    reply.raw(b"+");
    reply.raw(&text);
    reply.raw(b"\r\n");
}

pub(super) fn level(level: Level) -> LogLevel {
    match level {
        Level::Debug => LogLevel::Debug,
        Level::Verbose => LogLevel::Verbose,
        Level::Notice => LogLevel::Notice,
        Level::Warning => LogLevel::Warning,
    }
}
