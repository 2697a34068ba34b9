//! Construction of the machine's functions: each returns its error's text first, then its results.
//!
//! The prelude raises the text as an error of the script, with the place of the caller, so that
//! `pcall` gets a text and not an object of the machine's interface.

use mlua::{Error, Function, Lua, MultiValue, Value};

use crate::convert;

/// The reason why a library function returned no results.
pub(crate) enum Failure {
    /// An error that the script sees.
    Text(String),
    /// An error of the machine itself: out of memory.
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
    /// Replaces a name in the text by another one.
    pub(crate) fn renamed(self, name: &str, other: &str) -> Self {
        match self {
            Self::Text(text) => Self::Text(text.replace(name, other)),
            machine @ Self::Machine(_) => machine,
        }
    }
}

/// The results of a library function.
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

/// Returns one result.
pub(crate) fn one(value: Value) -> MultiValue {
    MultiValue::from_vec(vec![value])
}

/// Returns one string as the result.
pub(crate) fn text(lua: &Lua, bytes: &[u8]) -> Results {
    Ok(one(Value::String(lua.create_string(bytes)?)))
}

/// Returns the argument at `place` (from 1) as bytes. Numbers become text as Lua writes them.
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

/// Returns the argument at `place` (from 1) as a number. A text that is a number counts.
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
