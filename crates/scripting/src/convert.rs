//! Conversion of values: a command's reply to the script's value, and a script's result to a reply.

use mlua::{Lua, LuaString, Table, Value as LuaValue};

use crate::number_text::truncated;
use crate::text_buffer::{Passed, RAISED};
use crate::value::Value;

/// Maximum nesting depth of a reply. Deeper parts become an error in their place.
const DEPTH_MAX: usize = 200;

/// Returns an error of a command, which `redis.call` raises.
pub(crate) fn raised(lua: &Lua, text: &[u8]) -> mlua::Result<Passed> {
    Ok((error_table(lua, text)?, Some(RAISED)))
}

/// Returns `{err = text}`.
pub(crate) fn error_table(lua: &Lua, text: &[u8]) -> mlua::Result<LuaValue> {
    wrapped(lua, "err", LuaValue::String(lua.create_string(text)?))
}

/// Returns `{name = value}`.
pub(crate) fn wrapped(lua: &Lua, name: &str, value: LuaValue) -> mlua::Result<LuaValue> {
    let table = lua.create_table_with_capacity(0, 1)?;
    table.raw_set(name, value)?;
    Ok(LuaValue::Table(table))
}

fn text(lua: &Lua, bytes: &[u8]) -> mlua::Result<LuaValue> {
    Ok(LuaValue::String(lua.create_string(bytes)?))
}

/// Returns the reply as the script sees it.
pub(crate) fn reply(lua: &Lua, value: &Value) -> mlua::Result<Passed> {
    match value {
        Value::Error(text) => raised(lua, text),
        other => Ok((to_lua(lua, other)?, None)),
    }
}

fn to_lua(lua: &Lua, value: &Value) -> mlua::Result<LuaValue> {
    match value {
        Value::Nil => Ok(LuaValue::Boolean(false)),
        Value::Integer(number) => Ok(integer(*number)),
        Value::Bulk(bytes) => text(lua, bytes),
        Value::Status(bytes) => wrapped(lua, "ok", text(lua, bytes)?),
        Value::Error(bytes) => error_table(lua, bytes),
        Value::Array(items) => {
            let table = lua.create_table_with_capacity(items.len(), 0)?;
            for item in items {
                table.raw_push(to_lua(lua, item)?)?;
            }
            Ok(LuaValue::Table(table))
        }
        Value::Map(pairs) => {
            let table = lua.create_table_with_capacity(0, pairs.len())?;
            for (key, value) in pairs {
                table.raw_set(to_lua(lua, key)?, to_lua(lua, value)?)?;
            }
            wrapped(lua, "map", LuaValue::Table(table))
        }
        Value::Set(items) => {
            let table = lua.create_table_with_capacity(0, items.len())?;
            for item in items {
                table.raw_set(to_lua(lua, item)?, true)?;
            }
            wrapped(lua, "set", LuaValue::Table(table))
        }
        Value::Double(number) => wrapped(lua, "double", LuaValue::Number(*number)),
        Value::Boolean(truth) => Ok(LuaValue::Boolean(*truth)),
        Value::BigNumber(digits) => wrapped(lua, "big_number", text(lua, digits)?),
        Value::Verbatim(format, bytes) => {
            let table = lua.create_table_with_capacity(0, 2)?;
            table.raw_set("format", text(lua, format)?)?;
            table.raw_set("string", text(lua, bytes)?)?;
            wrapped(lua, "verbatim_string", LuaValue::Table(table))
        }
    }
}

/// Converts an integer. Scripts have one kind of number: beyond 2^53 the lowest digits are lost.
pub(crate) fn integer(number: i64) -> LuaValue {
    #[allow(
        clippy::cast_precision_loss,
        reason = "as in every Lua with doubles only"
    )]
    LuaValue::Number(number as f64)
}

/// Returns `value` as a number. The machine's interface returns integers as another type.
pub(crate) fn number(value: &LuaValue) -> Option<f64> {
    match value {
        LuaValue::Number(number) => Some(*number),
        #[allow(clippy::cast_precision_loss, reason = "it came from a double")]
        LuaValue::Integer(number) => Some(*number as f64),
        _ => None,
    }
}

/// The names of the fields by which a table says which reply it is. They are made once: making a
/// text for each lookup takes many times as long as the lookup.
pub(crate) struct Fields {
    err: LuaString,
    ok: LuaString,
    double: LuaString,
    map: LuaString,
    set: LuaString,
    big_number: LuaString,
    verbatim_string: LuaString,
    format: LuaString,
    string: LuaString,
}

impl Fields {
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        Ok(Self {
            err: lua.create_string("err")?,
            ok: lua.create_string("ok")?,
            double: lua.create_string("double")?,
            map: lua.create_string("map")?,
            set: lua.create_string("set")?,
            big_number: lua.create_string("big_number")?,
            verbatim_string: lua.create_string("verbatim_string")?,
            format: lua.create_string("format")?,
            string: lua.create_string("string")?,
        })
    }

    /// Returns the script's result as a reply.
    pub(crate) fn reply(&self, value: &LuaValue, resp: u8) -> mlua::Result<Value> {
        self.nested(value, resp, DEPTH_MAX)
    }

    fn nested(&self, value: &LuaValue, resp: u8, depth: usize) -> mlua::Result<Value> {
        Ok(match value {
            LuaValue::String(text) => Value::Bulk(text.as_bytes().to_vec()),
            LuaValue::Number(number) => Value::Integer(truncated(*number)),
            LuaValue::Integer(number) => Value::Integer(*number),
            LuaValue::Boolean(truth) if resp >= 3 => Value::Boolean(*truth),
            LuaValue::Boolean(true) => Value::Integer(1),
            LuaValue::Table(table) => {
                if depth == 0 {
                    return Ok(Value::Error(b"ERR reached lua stack limit".to_vec()));
                }
                self.table(table, resp, depth - 1)?
            }
            _ => Value::Nil,
        })
    }

    fn table(&self, table: &Table, resp: u8, depth: usize) -> mlua::Result<Value> {
        if let LuaValue::String(text) = table.raw_get(&self.err)? {
            return Ok(Value::Error(one_line(&text.as_bytes())));
        }
        if let LuaValue::String(text) = table.raw_get(&self.ok)? {
            return Ok(Value::Status(one_line(&text.as_bytes())));
        }
        if let Some(number) = number(&table.raw_get(&self.double)?) {
            return Ok(Value::Double(number));
        }
        if let LuaValue::Table(map) = table.raw_get(&self.map)? {
            let mut pairs = Vec::new();
            for pair in map.pairs::<LuaValue, LuaValue>() {
                let (key, value) = pair?;
                let key = self.nested(&key, resp, depth)?;
                pairs.push((key, self.nested(&value, resp, depth)?));
            }
            return Ok(Value::Map(pairs));
        }
        if let LuaValue::Table(set) = table.raw_get(&self.set)? {
            let mut items = Vec::new();
            for pair in set.pairs::<LuaValue, LuaValue>() {
                items.push(self.nested(&pair?.0, resp, depth)?);
            }
            return Ok(Value::Set(items));
        }
        if let LuaValue::String(digits) = table.raw_get(&self.big_number)? {
            return Ok(Value::BigNumber(one_line(&digits.as_bytes())));
        }
        if let LuaValue::Table(verbatim) = table.raw_get(&self.verbatim_string)?
            && let LuaValue::String(format) = verbatim.raw_get(&self.format)?
            && let LuaValue::String(text) = verbatim.raw_get(&self.string)?
            && let Ok(format) = <[u8; 3]>::try_from(&*format.as_bytes())
        {
            return Ok(Value::Verbatim(format, text.as_bytes().to_vec()));
        }
        self.sequence(table, resp, depth)
    }

    fn sequence(&self, table: &Table, resp: u8, depth: usize) -> mlua::Result<Value> {
        let mut items = Vec::with_capacity(table.raw_len().min(1024));
        loop {
            match table.raw_get(items.len() + 1)? {
                LuaValue::Nil => return Ok(Value::Array(items)),
                item => items.push(self.nested(&item, resp, depth)?),
            }
        }
    }
}

/// Makes an error or a status fit one line of the protocol.
pub(crate) fn one_line(text: &[u8]) -> Vec<u8> {
    let blank = |byte: &u8| {
        if matches!(byte, b'\r' | b'\n') {
            b' '
        } else {
            *byte
        }
    };
    text.iter().map(blank).collect()
}
