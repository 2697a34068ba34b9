//! Parser of an encoded reply, directly into what the prelude makes the script's value from.
//!
//! The frame comes from our own server, so a malformed one is a fault of the server. The script
//! gets an error; the parser never panics.

use base::{float, number};
use mlua::{Error, Lua, Value as LuaValue};

use crate::convert;
use crate::text_buffer::{Passed, TextBuffer};

/// Returns the reply in `frame`.
pub(crate) fn reply(lua: &Lua, text_buffer: &TextBuffer, frame: &[u8]) -> mlua::Result<Passed> {
    let mut reader = ReplyParser { lua, rest: frame };
    if let Some(passed) = reader.clone().passed(text_buffer)? {
        return Ok(passed);
    }
    if let Some(rest) = frame.strip_prefix(b"-") {
        return convert::raised(lua, line(rest)?.0);
    }
    Ok((reader.value()?, None))
}

#[derive(Clone)]
struct ReplyParser<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl<'a> ReplyParser<'a> {
    /// Passes the reply through the buffer if possible: texts, and tables of nothing but texts.
    fn passed(&mut self, text_buffer: &TextBuffer) -> mlua::Result<Option<Passed>> {
        let (kind, rest) = self.rest.split_first().ok_or_else(malformed)?;
        let (head, rest) = line(rest)?;
        self.rest = rest;
        Ok(match kind {
            b'$' => match count(head)? {
                Some(length) => text_buffer.text(self.bytes(length)?),
                None => None,
            },
            b'+' => text_buffer.status(head),
            b'-' => text_buffer.error(head),
            b'*' => match count(head)? {
                Some(items) => {
                    text_buffer.texts(items, std::iter::from_fn(|| self.item()).take(items))
                }
                None => None,
            },
            _ => None,
        })
    }

    /// Returns the next text, or `Some(None)` for a missing one. Returns `None` if something else
    /// is next.
    fn item(&mut self) -> Option<Option<&'a [u8]>> {
        let (head, rest) = line(self.rest.strip_prefix(b"$")?).ok()?;
        self.rest = rest;
        match count(head).ok()? {
            Some(length) => self.bytes(length).ok().map(Some),
            None => Some(None),
        }
    }

    fn value(&mut self) -> mlua::Result<LuaValue> {
        let (kind, rest) = self.rest.split_first().ok_or_else(malformed)?;
        let (head, rest) = line(rest)?;
        self.rest = rest;
        match kind {
            b'$' => match count(head)? {
                Some(length) => self.text(length),
                None => Ok(LuaValue::Boolean(false)),
            },
            b':' => Ok(convert::integer(
                number::parse_i64(head).ok_or_else(malformed)?,
            )),
            b'+' => convert::wrapped(self.lua, "ok", self.string(head)?),
            b'-' => convert::error_table(self.lua, head),
            b'*' | b'>' => match count(head)? {
                Some(items) => self.array(items),
                None => Ok(LuaValue::Boolean(false)),
            },
            b'_' => Ok(LuaValue::Nil),
            b'#' => Ok(LuaValue::Boolean(head == b"t")),
            b',' => convert::wrapped(self.lua, "double", LuaValue::Number(double(head)?)),
            b'(' => convert::wrapped(self.lua, "big_number", self.string(head)?),
            b'%' => self.map(count(head)?.unwrap_or(0)),
            b'~' => self.set(count(head)?.unwrap_or(0)),
            b'=' => self.verbatim(count(head)?.unwrap_or(0)),
            // Attributes of a reply are not shown to scripts.
            b'|' => {
                for _ in 0..count(head)?.unwrap_or(0) {
                    self.value()?;
                    self.value()?;
                }
                self.value()
            }
            _ => Err(malformed()),
        }
    }

    fn string(&self, bytes: &[u8]) -> mlua::Result<LuaValue> {
        Ok(LuaValue::String(self.lua.create_string(bytes)?))
    }

    fn bytes(&mut self, length: usize) -> mlua::Result<&'a [u8]> {
        let (bytes, rest) = self.rest.split_at_checked(length).ok_or_else(malformed)?;
        self.rest = rest.strip_prefix(b"\r\n").ok_or_else(malformed)?;
        Ok(bytes)
    }

    fn text(&mut self, length: usize) -> mlua::Result<LuaValue> {
        let bytes = self.bytes(length)?;
        self.string(bytes)
    }

    fn array(&mut self, items: usize) -> mlua::Result<LuaValue> {
        let table = self
            .lua
            .create_table_with_capacity(items.min(self.rest.len()), 0)?;
        for place in 1..=items {
            table.raw_seti(place, self.value()?)?;
        }
        Ok(LuaValue::Table(table))
    }

    fn map(&mut self, pairs: usize) -> mlua::Result<LuaValue> {
        let table = self
            .lua
            .create_table_with_capacity(0, pairs.min(self.rest.len()))?;
        for _ in 0..pairs {
            let key = self.value()?;
            table.raw_set(key, self.value()?)?;
        }
        convert::wrapped(self.lua, "map", LuaValue::Table(table))
    }

    fn set(&mut self, items: usize) -> mlua::Result<LuaValue> {
        let table = self
            .lua
            .create_table_with_capacity(0, items.min(self.rest.len()))?;
        for _ in 0..items {
            table.raw_set(self.value()?, true)?;
        }
        convert::wrapped(self.lua, "set", LuaValue::Table(table))
    }

    fn verbatim(&mut self, length: usize) -> mlua::Result<LuaValue> {
        let bytes = self.bytes(length)?;
        let (format, text) = bytes.split_at_checked(4).ok_or_else(malformed)?;
        let table = self.lua.create_table_with_capacity(0, 2)?;
        table.raw_set("format", self.string(&format[..3])?)?;
        table.raw_set("string", self.string(text)?)?;
        convert::wrapped(self.lua, "verbatim_string", LuaValue::Table(table))
    }
}

/// Splits off a line. Returns it and the rest after its end.
fn line(bytes: &[u8]) -> mlua::Result<(&[u8], &[u8])> {
    let end = bytes
        .iter()
        .position(|byte| *byte == b'\r')
        .ok_or_else(malformed)?;
    let rest = bytes[end..].strip_prefix(b"\r\n").ok_or_else(malformed)?;
    Ok((&bytes[..end], rest))
}

/// Returns a count, or `None` for `-1`.
fn count(head: &[u8]) -> mlua::Result<Option<usize>> {
    if head == b"-1" {
        return Ok(None);
    }
    let number = number::parse_u64(head).ok_or_else(malformed)?;
    usize::try_from(number).map(Some).map_err(|_| malformed())
}

fn double(head: &[u8]) -> mlua::Result<f64> {
    match head {
        b"nan" => Ok(f64::NAN),
        b"-nan" => Ok(-f64::NAN),
        other => float::parse(other).ok_or_else(malformed),
    }
}

fn malformed() -> Error {
    Error::runtime("malformed reply of a command")
}
