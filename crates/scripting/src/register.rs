//! `redis.register_function`: registers the functions of a library.

use std::rc::Rc;

use mlua::{Function as LuaFunction, Lua, MultiValue, Table, Value};

use crate::calls::Run;
use crate::convert;
use crate::functions::Function;
use crate::library::{self, Failure, Results};
use crate::number_text;

/// The flags that a function may have.
const FLAGS: [&[u8]; 5] = [
    b"no-writes",
    b"allow-oom",
    b"allow-stale",
    b"no-cluster",
    b"allow-cross-slot-keys",
];

/// Returns the function of the machine, as part of the table that scripts call `table`. Its errors
/// use that name, so the author of a `server.register_function` call reads no other name.
pub(crate) fn function(lua: &Lua, run: &Rc<Run>, table: &'static str) -> mlua::Result<LuaFunction> {
    let run = Rc::clone(run);
    library::function(lua, move |_, arguments| {
        register(&run, &arguments).map_err(|failure| failure.renamed("redis.", table))
    })
}

fn register(run: &Run, arguments: &MultiValue) -> Results {
    let function = match (arguments.len(), arguments.front()) {
        (1, Some(Value::Table(named))) => by_name(named)?,
        (1, _) => {
            return Err("ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).".into());
        }
        (2, Some(name)) => by_place(name, arguments.get(1))?,
        _ => return Err("ERR wrong number of arguments to redis.register_function".into()),
    };
    let is_name = |byte: &u8| byte.is_ascii_alphanumeric() || *byte == b'_';
    if function.name.is_empty() || !function.name.iter().all(is_name) {
        return Err("ERR Library names can only contain letters, numbers, or underscores(_) and must be at least one character long".into());
    }
    let mut registered = run.registered.borrow_mut();
    let Some(registered) = registered.as_mut() else {
        return Err(
            "ERR redis.register_function can only be called on FUNCTION LOAD command".into(),
        );
    };
    if registered.iter().any(|other| other.name == function.name) {
        return Err("ERR Function already exists in the library".into());
    }
    registered.push(function);
    Ok(MultiValue::new())
}

fn by_place(name: &Value, callback: Option<&Value>) -> Result<Function, Failure> {
    let name =
        text(name).ok_or("ERR first argument to redis.register_function must be a string")?;
    let Some(Value::Function(callback)) = callback else {
        return Err("ERR second argument to redis.register_function must be a function".into());
    };
    Ok(Function {
        name,
        description: None,
        flags: Vec::new(),
        callback: callback.clone(),
    })
}

fn by_name(named: &Table) -> Result<Function, Failure> {
    let (mut name, mut description, mut callback) = (None, None, None);
    let mut flags = Vec::new();
    for pair in named.pairs::<Value, Value>() {
        let (key, value) = pair?;
        let Value::String(key) = key else {
            return Err(unknown_argument(&key));
        };
        match &*key.as_bytes() {
            b"function_name" => {
                let given = text(&value);
                name = Some(given.ok_or("ERR function_name argument given to redis.register_function must be a string")?);
            }
            b"description" => {
                let given = text(&value);
                description = Some(given.ok_or("ERR description argument given to redis.register_function must be a string")?);
            }
            b"callback" => match value {
                Value::Function(given) => callback = Some(given),
                _ => return Err("ERR callback argument given to redis.register_function must be a function".into()),
            },
            b"flags" => match value {
                Value::Table(given) => flags = flags_of(&given)?,
                _ => return Err("ERR flags argument to redis.register_function must be a table representing function flags".into()),
            },
            _ => return Err("ERR unknown argument given to redis.register_function".into()),
        }
    }
    Ok(Function {
        name: name.ok_or("ERR redis.register_function must get a function name argument")?,
        description,
        flags,
        callback: callback.ok_or("ERR redis.register_function must get a callback argument")?,
    })
}

fn unknown_argument(key: &Value) -> Failure {
    if convert::number(key).is_some() {
        "ERR unknown argument given to redis.register_function".into()
    } else {
        "ERR named argument key given to redis.register_function is not a string".into()
    }
}

fn flags_of(given: &Table) -> Result<Vec<Vec<u8>>, Failure> {
    let mut flags = Vec::new();
    for flag in given.sequence_values::<Value>() {
        let known = text(&flag?).filter(|flag| FLAGS.contains(&flag.as_slice()));
        flags.push(known.ok_or("ERR unknown flag given")?);
    }
    Ok(flags)
}

/// Returns a text, or a number as Lua writes it.
fn text(value: &Value) -> Option<Vec<u8>> {
    match value {
        Value::String(text) => Some(text.as_bytes().to_vec()),
        other => convert::number(other).map(|number| {
            let mut out = Vec::new();
            number_text::general(&mut out, number, 14);
            out
        }),
    }
}
