//! `cjson`: tables to JSON and back, with the settings and the error texts that scripts know.
//!
//! The reader keeps its own stack, the writer recurses. Both stop at a depth that no setting can
//! raise.

mod read;
mod write;

use std::cell::Cell;
use std::rc::Rc;

use mlua::{Lua, MultiValue, Table, Value};

use crate::library::{self, Failure, Results};
use crate::number_text::truncated;

/// Maximum depth that the settings allow.
const DEPTH_MAX: u32 = 1000;

/// The treatment of numbers that JSON cannot represent: infinities and NaN.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Invalid {
    Refused,
    Written,
    Null,
}

/// The settings of one copy of the library.
#[derive(Clone, Copy)]
pub(crate) struct Settings {
    sparse_convert: bool,
    sparse_ratio: u32,
    sparse_safe: u32,
    encode_depth_max: u32,
    decode_depth_max: u32,
    number_precision: u32,
    keep_buffer: bool,
    encode_invalid: Invalid,
    decode_invalid: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sparse_convert: false,
            sparse_ratio: 2,
            sparse_safe: 10,
            encode_depth_max: DEPTH_MAX,
            decode_depth_max: DEPTH_MAX,
            number_precision: 14,
            keep_buffer: true,
            encode_invalid: Invalid::Refused,
            decode_invalid: true,
        }
    }
}

/// Returns the functions of the library with settings of their own, which the machine resets before
/// each run.
pub(crate) fn table(lua: &Lua, settings: &Rc<Cell<Settings>>) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    let own = Rc::clone(settings);
    let encode = library::function(lua, move |lua, arguments| {
        let mut out = Vec::new();
        let value = only(&arguments, "encode")?;
        write::value(&mut out, value, &own.get(), 0)?;
        library::text(lua, &out)
    })?;
    table.raw_set("encode", encode)?;
    let own = Rc::clone(settings);
    let decode = library::function(lua, move |lua, arguments| {
        only(&arguments, "decode")?;
        let text = library::bytes_at(&arguments, 1, "decode")?;
        read::document(lua, &text, &own.get()).map(library::one)
    })?;
    table.raw_set("decode", decode)?;
    for (name, change) in CHANGES {
        let own = Rc::clone(settings);
        let setting = library::function(lua, move |lua, arguments| {
            let mut changed = own.get();
            let results = change(
                lua,
                &mut changed,
                &Given {
                    function: name,
                    arguments: &arguments,
                },
            )?;
            own.set(changed);
            Ok(results)
        })?;
        table.raw_set(*name, setting)?;
    }
    Ok(table)
}

type Change = fn(&Lua, &mut Settings, &Given<'_>) -> Results;

/// The arguments of a call of a setting.
struct Given<'a> {
    function: &'static str,
    arguments: &'a MultiValue,
}

const CHANGES: &[(&str, Change)] = &[
    ("encode_sparse_array", |_, settings, given| {
        truth(given, 1, &mut settings.sparse_convert)?;
        whole(given, 2, 0, u32::MAX, &mut settings.sparse_ratio)?;
        whole(given, 3, 0, u32::MAX, &mut settings.sparse_safe)?;
        Ok(MultiValue::from_vec(vec![
            Value::Boolean(settings.sparse_convert),
            number(settings.sparse_ratio),
            number(settings.sparse_safe),
        ]))
    }),
    ("encode_max_depth", |_, settings, given| {
        whole(
            given,
            1,
            1,
            i32::MAX.unsigned_abs(),
            &mut settings.encode_depth_max,
        )?;
        Ok(library::one(number(settings.encode_depth_max)))
    }),
    ("decode_max_depth", |_, settings, given| {
        whole(
            given,
            1,
            1,
            i32::MAX.unsigned_abs(),
            &mut settings.decode_depth_max,
        )?;
        Ok(library::one(number(settings.decode_depth_max)))
    }),
    ("encode_number_precision", |_, settings, given| {
        whole(given, 1, 1, 16, &mut settings.number_precision)?;
        Ok(library::one(number(settings.number_precision)))
    }),
    ("encode_keep_buffer", |_, settings, given| {
        truth(given, 1, &mut settings.keep_buffer)?;
        Ok(library::one(Value::Boolean(settings.keep_buffer)))
    }),
    ("encode_invalid_numbers", |lua, settings, given| {
        if matches!(given.arguments.front(), Some(Value::String(word)) if *word == "null") {
            settings.encode_invalid = Invalid::Null;
        } else {
            let mut written = settings.encode_invalid == Invalid::Written;
            let is_given = given.arguments.front().is_some_and(|value| !value.is_nil());
            truth(given, 1, &mut written)?;
            if is_given {
                settings.encode_invalid = if written {
                    Invalid::Written
                } else {
                    Invalid::Refused
                };
            }
        }
        Ok(library::one(match settings.encode_invalid {
            Invalid::Null => Value::String(lua.create_string("null")?),
            other => Value::Boolean(other == Invalid::Written),
        }))
    }),
    ("decode_invalid_numbers", |_, settings, given| {
        truth(given, 1, &mut settings.decode_invalid)?;
        Ok(library::one(Value::Boolean(settings.decode_invalid)))
    }),
];

fn only<'a>(arguments: &'a MultiValue, function: &str) -> Result<&'a Value, Failure> {
    match arguments.front() {
        Some(value) if arguments.len() == 1 => Ok(value),
        _ => Err(Failure::Text(format!(
            "bad argument #1 to '{function}' (expected 1 argument)"
        ))),
    }
}

/// Reads a setting that is true or false, also given as the words `on` and `off`.
fn truth(given: &Given<'_>, place: usize, setting: &mut bool) -> Result<(), Failure> {
    match given.arguments.get(place - 1) {
        None | Some(Value::Nil) => {}
        Some(Value::Boolean(truth)) => *setting = *truth,
        Some(Value::String(word)) if *word == "on" => *setting = true,
        Some(Value::String(word)) if *word == "off" => *setting = false,
        Some(_) => {
            return Err(Failure::Text(format!(
                "bad argument #{place} to '{}' (invalid option)",
                given.function
            )));
        }
    }
    Ok(())
}

fn whole(
    given: &Given<'_>,
    place: usize,
    least: u32,
    most: u32,
    setting: &mut u32,
) -> Result<(), Failure> {
    if given.arguments.get(place - 1).is_none_or(Value::is_nil) {
        return Ok(());
    }
    let function = given.function;
    let number = truncated(library::number_at(given.arguments, place, function)?);
    let number = u32::try_from(number)
        .ok()
        .filter(|number| (least..=most).contains(number));
    *setting = number.ok_or_else(|| {
        Failure::Text(format!(
            "bad argument #{place} to '{function}' (expected integer between {least} and {most})"
        ))
    })?;
    Ok(())
}

fn number(number: u32) -> Value {
    Value::Number(f64::from(number))
}
