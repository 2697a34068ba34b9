//! The functions of `redis` that are not commands, and what Lua 5.1 has and Luau lacks.

use std::rc::Rc;

use base::clock::{Clock, SystemClock};
use mlua::chunk::{ChunkMode, Compiler};
use mlua::{Error, Lua, MultiValue, Table, Value};
use sha1_smol::Sha1;

use crate::calls::{HOST, Run};
use crate::host::Level;
use crate::library::{self, Failure, Results};
use crate::number_text::truncated;
use crate::random::Random;
use crate::{concat, convert};

/// Maximum size of a source for `loadstring`: the compiler's memory counts against no script's
/// limit.
const LOADED_SOURCE_BYTES_MAX: usize = 1 << 20;

/// Adds the functions of this module to `machine`, the table passed to the prelude.
pub(crate) fn fill(lua: &Lua, machine: &Table, run: &Rc<Run>) -> mlua::Result<()> {
    machine.raw_set(
        "log",
        library::function(lua, |_, arguments| log(&arguments))?,
    )?;
    machine.raw_set("sha1hex", library::function(lua, sha1hex)?)?;
    let own = Rc::clone(run);
    let setresp = library::function(lua, move |_, arguments| setresp(&own, &arguments))?;
    machine.raw_set("setresp", setresp)?;
    let own = Rc::clone(run);
    let check = library::function(lua, move |_, arguments| acl_check_cmd(&own, &arguments))?;
    machine.raw_set("acl_check_cmd", check)?;
    let own = Rc::clone(run);
    machine.raw_set(
        "random",
        library::function(lua, move |_, arguments| random(&own, &arguments))?,
    )?;
    let own = Rc::clone(run);
    let seed = library::function(lua, move |_, arguments| {
        let seed = truncated(library::number_at(&arguments, 1, "randomseed")?);
        own.random.set(Random::seeded(seed));
        own.is_reseeded.set(true);
        Ok(MultiValue::new())
    })?;
    machine.raw_set("randomseed", seed)?;
    machine.raw_set("load", lua.create_function(load)?)?;
    let clock = SystemClock::new();
    machine.raw_set(
        "clock",
        lua.create_function(move |_, ()| Ok(seconds(clock.thread_cpu_ns())))?,
    )?;
    machine.raw_set("find", lua.create_function(find)?)?;
    machine.raw_set(
        "low_word",
        lua.create_function(|_, number: f64| Ok(low_word(number)))?,
    )
}

/// Converts nanoseconds to seconds, for `os.clock`: the processor time of the thread that runs the
/// script.
fn seconds(ns: u64) -> f64 {
    #[allow(
        clippy::cast_precision_loss,
        reason = "exact below a hundred days, and a clock after that"
    )]
    let ns = ns as f64;
    ns / 1e9
}

fn log(arguments: &MultiValue) -> Results {
    if arguments.len() < 2 {
        return Err("ERR redis.log() requires two arguments or more.".into());
    }
    let Some(level) = arguments.front().and_then(convert::number) else {
        return Err("ERR First argument must be a number (log level).".into());
    };
    let level = match truncated(level) {
        0 => Level::Debug,
        1 => Level::Verbose,
        2 => Level::Notice,
        3 => Level::Warning,
        _ => return Err("ERR Invalid debug level.".into()),
    };
    let mut text = Vec::new();
    for place in 2..=arguments.len() {
        // Arguments that are not text are left out, as the reference server does.
        let Ok(piece) = library::bytes_at(arguments, place, "log") else {
            continue;
        };
        if place > 2 {
            text.push(b' ');
        }
        text.extend_from_slice(&piece);
    }
    if HOST.is_set() {
        HOST.with(|host| host.0.log(level, &text));
    }
    Ok(MultiValue::new())
}

fn sha1hex(lua: &Lua, arguments: MultiValue) -> Results {
    if arguments.len() != 1 {
        return Err("ERR wrong number of arguments".into());
    }
    let text = library::bytes_at(&arguments, 1, "sha1hex").unwrap_or_default();
    library::text(lua, Sha1::from(&text).digest().to_string().as_bytes())
}

fn setresp(run: &Run, arguments: &MultiValue) -> Results {
    if arguments.len() != 1 {
        return Err("ERR redis.setresp() requires one argument.".into());
    }
    let version = match arguments.front().and_then(convert::number).map(truncated) {
        Some(2) => 2,
        Some(3) => 3,
        _ => return Err("ERR RESP version must be 2 or 3.".into()),
    };
    run.resp.set(version);
    if HOST.is_set() {
        HOST.with(|host| host.0.set_resp(version));
    }
    Ok(MultiValue::new())
}

fn acl_check_cmd(run: &Run, arguments: &MultiValue) -> Results {
    let allowed = run.with_arguments(arguments, |arguments| {
        if HOST.is_set() {
            HOST.with(|host| host.0.acl_allows(arguments))
                .map_err(|refused| refused.text.as_bytes().to_vec())
        } else {
            Err(b"ERR redis.acl_check_cmd is not allowed here".to_vec())
        }
    });
    match allowed.flatten() {
        Ok(truth) => Ok(library::one(Value::Boolean(truth))),
        Err(text) => Err(Failure::Text(String::from_utf8_lossy(&text).into_owned())),
    }
}

/// Compiles a text for a script. Returns a function, or nil and the error.
fn load(
    lua: &Lua,
    (source, name): (mlua::LuaString, Option<mlua::LuaString>),
) -> mlua::Result<(Value, Value)> {
    let source = source.as_bytes();
    let failed = |text: &str| -> mlua::Result<(Value, Value)> {
        Ok((Value::Nil, Value::String(lua.create_string(text)?)))
    };
    if source.len() > LOADED_SOURCE_BYTES_MAX {
        return failed("source is too long");
    }
    let name = match name {
        Some(name) => name.to_string_lossy(),
        None => {
            let line = source
                .split(|byte| *byte == b'\n')
                .next()
                .unwrap_or_default();
            format!(
                "=[string \"{}\"]",
                String::from_utf8_lossy(line)
                    .chars()
                    .take(40)
                    .collect::<String>()
            )
        }
    };
    let name = if name.starts_with(['=', '@']) {
        name
    } else {
        format!("=[string \"{name}\"]")
    };
    let plain = concat::with_plain_operands(&source);
    let chunk = lua
        .load(plain.as_deref().unwrap_or(&source))
        .set_name(name)
        .set_mode(ChunkMode::Text)
        .set_compiler(compiler());
    match chunk.into_function() {
        Ok(function) => Ok((Value::Function(function), Value::Nil)),
        Err(Error::SyntaxError { message, .. }) => failed(&message),
        Err(other) => Err(other),
    }
}

/// Returns the compiler for sources. It must not treat functions that the prelude replaces as
/// built-ins.
pub(crate) fn compiler() -> Compiler {
    Compiler::new()
        .set_optimization_level(1)
        .set_debug_level(1)
        .set_disabled_builtins(["tostring", "unpack", "math.log", "math.random"])
}

type Found = (Option<usize>, Option<usize>);

/// Implements `string.find` without patterns, in time linear in the sum of the lengths.
fn find(
    _: &Lua,
    (text, wanted, start): (mlua::LuaString, mlua::LuaString, Option<f64>),
) -> mlua::Result<Found> {
    let (text, wanted) = (text.as_bytes(), wanted.as_bytes());
    let start = truncated(start.unwrap_or(1.0));
    let length = i64::try_from(text.len()).unwrap_or(i64::MAX);
    let start = if start < 0 {
        (length + start).max(0)
    } else {
        (start - 1).max(0)
    };
    let start = usize::try_from(start).unwrap_or(usize::MAX).min(text.len());
    let found = memchr::memmem::find(&text[start..], &wanted).map(|at| start + at);
    Ok((found.map(|at| at + 1), found.map(|at| at + wanted.len())))
}

/// Returns the low 32 bits of a number beyond 2^51, as left by adding 1.5 * 2^52.
fn low_word(number: f64) -> u32 {
    const ROUNDER: f64 = 6_755_399_441_055_744.0;
    let bytes = (number + ROUNDER).to_le_bytes();
    u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
}

fn random(run: &Run, arguments: &MultiValue) -> Results {
    const MOST: u32 = i32::MAX.unsigned_abs();
    let mut state = run.random.get();
    let fraction = f64::from(state.next() % MOST) / f64::from(MOST);
    run.random.set(state);
    let (low, high) = match arguments.len() {
        0 => return Ok(library::one(Value::Number(fraction))),
        1 => (1.0, library::number_at(arguments, 1, "random")?.trunc()),
        2 => (
            library::number_at(arguments, 1, "random")?.trunc(),
            library::number_at(arguments, 2, "random")?.trunc(),
        ),
        _ => return Err("wrong number of arguments".into()),
    };
    if low > high {
        let text = format!(
            "bad argument #{} to 'random' (interval is empty)",
            arguments.len()
        );
        return Err(Failure::Text(text));
    }
    Ok(library::one(Value::Number(
        (fraction * (high - low + 1.0)).floor() + low,
    )))
}
