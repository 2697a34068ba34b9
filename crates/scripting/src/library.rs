//! How functions of the machine are made: each gives its error's text first, then its results.
//!
//! The prelude raises the text as an error of the script, with the place of the caller, so that
//! `pcall` sees a text and no object of the machine's interface.

use mlua::{Error, Function, Lua, MultiValue, Value};

use crate::convert;

/// Why a function of a library gave no results.
pub(crate) enum Failure {
    /// An error that the script sees.
    Text(String),
    /// The machine's own: no memory.
    Machine(Error),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Machine(error)
    }
}

impl From<&str> for Failure {
    fn from(text: &str) -> Self {
        Self::Text(text.to_owned())
    }
}

impl Failure {
    /// With what it says under another name.
    pub(crate) fn renamed(self, name: &str, other: &str) -> Self {
        match self {
            Self::Text(text) => Self::Text(text.replace(name, other)),
            machine @ Self::Machine(_) => machine,
        }
    }
}

/// What a function of a library gives.
pub(crate) type Results = Result<MultiValue, Failure>;

/// Makes `inner` a function of the machine.
pub(crate) fn function(
    lua: &Lua,
    inner: impl Fn(&Lua, MultiValue) -> Results + 'static,
) -> mlua::Result<Function> {
    lua.create_function(
        move |lua, arguments: MultiValue| match inner(lua, arguments) {
            Ok(mut results) => {
                results.push_front(Value::Nil);
                Ok(results)
            }
            Err(Failure::Text(text)) => Ok(MultiValue::from_vec(vec![Value::String(
                lua.create_string(text)?,
            )])),
            Err(Failure::Machine(error)) => Err(error),
        },
    )
}

/// One result.
pub(crate) fn one(value: Value) -> MultiValue {
    MultiValue::from_vec(vec![value])
}

/// One string as the result.
pub(crate) fn text(lua: &Lua, bytes: &[u8]) -> Results {
    Ok(one(Value::String(lua.create_string(bytes)?)))
}

/// The argument at `place` (from 1) as bytes; numbers become text as Lua writes them.
pub(crate) fn bytes_at(
    arguments: &MultiValue,
    place: usize,
    function: &str,
) -> Result<Vec<u8>, Failure> {
    match arguments.get(place - 1) {
        Some(Value::String(text)) => Ok(text.as_bytes().to_vec()),
        Some(other) => match convert::number(other) {
            Some(number) => {
                let mut out = Vec::new();
                crate::number_text::general(&mut out, number, 14);
                Ok(out)
            }
            None => Err(bad(place, function, "string", Some(other))),
        },
        None => Err(bad(place, function, "string", None)),
    }
}

/// The argument at `place` (from 1) as a number; text that is one counts.
pub(crate) fn number_at(
    arguments: &MultiValue,
    place: usize,
    function: &str,
) -> Result<f64, Failure> {
    let value = arguments.get(place - 1);
    let number = match value {
        Some(Value::String(text)) => base::float::parse(&text.as_bytes()),
        Some(other) => convert::number(other),
        None => None,
    };
    number.ok_or_else(|| bad(place, function, "number", value))
}

fn bad(place: usize, function: &str, wanted: &str, got: Option<&Value>) -> Failure {
    let got = match got {
        None => "no value",
        Some(Value::Integer(_)) => "number",
        Some(other) => other.type_name(),
    };
    Failure::Text(format!(
        "bad argument #{place} to '{function}' ({wanted} expected, got {got})"
    ))
}
