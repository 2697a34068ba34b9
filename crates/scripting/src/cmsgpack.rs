//! `cmsgpack`: MessagePack, packed and unpacked as by the reference server's library.

use mlua::{Lua, MultiValue, Table, Value};

use crate::convert;
use crate::library::{self, Failure, Results};
use crate::number_text::truncated;

/// Tables nested deeper than this are packed as nil.
const PACKED_DEPTH_MAX: usize = 16;
/// Values nested deeper than this are refused when unpacked.
const UNPACKED_DEPTH_MAX: usize = 200;

/// Returns the functions of the library.
pub(crate) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", library::function(lua, pack)?)?;
    table.raw_set("unpack", library::function(lua, unpack)?)?;
    table.raw_set("unpack_one", library::function(lua, unpack_one)?)?;
    table.raw_set("unpack_limit", library::function(lua, unpack_limit)?)?;
    Ok(table)
}

fn pack(lua: &Lua, arguments: MultiValue) -> Results {
    if arguments.is_empty() {
        return Err("bad argument #0 to 'pack' (MessagePack pack needs input.)".into());
    }
    let mut out = Vec::new();
    for value in &arguments {
        write(&mut out, value, 0)?;
    }
    library::text(lua, &out)
}

fn write(out: &mut Vec<u8>, value: &Value, depth: usize) -> Result<(), Failure> {
    match value {
        Value::String(text) => {
            let text = text.as_bytes();
            head(
                out,
                text.len(),
                &[(0x1f, 0xa0), (0xff, 0xd9), (0xffff, 0xda)],
                0xdb,
            );
            out.extend_from_slice(&text);
        }
        Value::Boolean(truth) => out.push(if *truth { 0xc3 } else { 0xc2 }),
        Value::Table(table) if depth < PACKED_DEPTH_MAX => write_table(out, table, depth)?,
        other => match convert::number(other) {
            Some(number) => write_number(out, number),
            None => out.push(0xc0),
        },
    }
    Ok(())
}

/// Writes a length: in the first byte if it is below the first bound, else in the one, two or four
/// bytes after it.
fn head(out: &mut Vec<u8>, length: usize, kinds: &[(usize, u8)], widest: u8) {
    let kind = kinds.iter().find(|(most, _)| length <= *most);
    let bytes = length.to_be_bytes();
    let count = bytes.len();
    match kind {
        Some((0x0f | 0x1f, tag)) => out.push(tag | bytes[count - 1]),
        Some((0xff, tag)) => out.extend_from_slice(&[*tag, bytes[count - 1]]),
        Some((_, tag)) => out.extend_from_slice(&[*tag, bytes[count - 2], bytes[count - 1]]),
        None => {
            out.push(widest);
            out.extend_from_slice(&bytes[count - 4..]);
        }
    }
}

fn write_number(out: &mut Vec<u8>, number: f64) {
    const WHOLE_BELOW: f64 = 9_223_372_036_854_775_808.0;
    if number.fract() == 0.0 && (-WHOLE_BELOW..WHOLE_BELOW).contains(&number) {
        write_integer(out, truncated(number));
        return;
    }
    #[allow(
        clippy::cast_possible_truncation,
        reason = "taken back when it lost anything"
    )]
    let short = number as f32;
    #[allow(clippy::float_cmp, reason = "whether the shorter form lost anything")]
    if f64::from(short) == number {
        out.push(0xca);
        out.extend_from_slice(&short.to_be_bytes());
    } else {
        out.push(0xcb);
        out.extend_from_slice(&number.to_be_bytes());
    }
}

fn write_integer(out: &mut Vec<u8>, number: i64) {
    let bytes = number.to_be_bytes();
    let (tag, width) = match number {
        -32..=127 => {
            out.push(bytes[7]);
            return;
        }
        128..=0xff => (0xcc, 1),
        0x100..=0xffff => (0xcd, 2),
        0x1_0000..=0xffff_ffff => (0xce, 4),
        0x1_0000_0000.. => (0xcf, 8),
        -128..=-33 => (0xd0, 1),
        -32_768..=-129 => (0xd1, 2),
        -2_147_483_648..=-32_769 => (0xd2, 4),
        _ => (0xd3, 8),
    };
    out.push(tag);
    out.extend_from_slice(&bytes[8 - width..]);
}

fn write_table(out: &mut Vec<u8>, table: &Table, depth: usize) -> Result<(), Failure> {
    match sequence_length(table)? {
        Some(length) => {
            head(out, length, &[(0x0f, 0x90), (0xffff, 0xdc)], 0xdd);
            for place in 1..=length {
                write(out, &table.raw_get(place)?, depth + 1)?;
            }
        }
        None => {
            let count = table.pairs::<Value, Value>().count();
            head(out, count, &[(0x0f, 0x80), (0xffff, 0xde)], 0xdf);
            for pair in table.pairs::<Value, Value>() {
                let (key, value) = pair?;
                write(out, &key, depth + 1)?;
                write(out, &value, depth + 1)?;
            }
        }
    }
    Ok(())
}

/// Returns the length of a table with exactly the keys 1, 2, …
fn sequence_length(table: &Table) -> Result<Option<usize>, Failure> {
    let (mut count, mut largest) = (0_usize, 0_usize);
    for pair in table.pairs::<Value, Value>() {
        let key = convert::number(&pair?.0).filter(|key| *key > 0.0 && key.fract() == 0.0);
        let Some(key) = key.and_then(|key| usize::try_from(truncated(key)).ok()) else {
            return Ok(None);
        };
        count += 1;
        largest = largest.max(key);
    }
    Ok((count == largest).then_some(count))
}

fn unpack(lua: &Lua, arguments: MultiValue) -> Results {
    let data = library::bytes_at(&arguments, 1, "unpack")?;
    values(lua, &data, None, 0)
}

fn unpack_one(lua: &Lua, arguments: MultiValue) -> Results {
    let data = library::bytes_at(&arguments, 1, "unpack_one")?;
    let offset = integer_or(&arguments, 2, 0, "unpack_one")?;
    values(lua, &data, Some(1), offset)
}

fn unpack_limit(lua: &Lua, arguments: MultiValue) -> Results {
    let data = library::bytes_at(&arguments, 1, "unpack_limit")?;
    let limit = truncated(library::number_at(&arguments, 2, "unpack_limit")?);
    let offset = integer_or(&arguments, 3, 0, "unpack_limit")?;
    values(lua, &data, Some(limit), offset)
}

fn integer_or(
    arguments: &MultiValue,
    place: usize,
    default: i64,
    function: &str,
) -> Result<i64, Failure> {
    match arguments.get(place - 1) {
        None | Some(Value::Nil) => Ok(default),
        Some(_) => library::number_at(arguments, place, function).map(truncated),
    }
}

/// Unpacks values. With a limit, the end position comes first, or -1 at the end of the data.
fn values(lua: &Lua, data: &[u8], limit: Option<i64>, offset: i64) -> Results {
    if offset < 0 || limit.is_some_and(|limit| limit < 0) {
        // The length is in the place of the limit: scripts know the text like this.
        let length = data.len();
        let text =
            format!("Invalid request to unpack with offset of {offset} and limit of {length}.");
        return Err(Failure::Text(text));
    }
    let start = usize::try_from(offset)
        .ok()
        .filter(|start| *start <= data.len());
    let Some(start) = start else {
        let text = format!(
            "Start offset {offset} greater than input length {}.",
            data.len()
        );
        return Err(Failure::Text(text));
    };
    let limit = limit
        .and_then(|limit| usize::try_from(limit).ok())
        .filter(|limit| *limit > 0);
    let mut reader = Unpacker {
        lua,
        rest: &data[start..],
    };
    let mut results = Vec::new();
    while !reader.rest.is_empty() && limit.is_none_or(|limit| results.len() < limit) {
        results.push(reader.value(0)?);
        if results.len() > VALUES_MAX {
            return Err("too many values to unpack".into());
        }
    }
    if limit.is_some() {
        #[allow(clippy::cast_precision_loss, reason = "lengths are below 2^53")]
        let place = if reader.rest.is_empty() {
            -1.0
        } else {
            (data.len() - reader.rest.len()) as f64
        };
        results.insert(0, Value::Number(place));
    }
    Ok(MultiValue::from_vec(results))
}

/// Maximum number of results of a function.
const VALUES_MAX: usize = 7000;

struct Unpacker<'a> {
    lua: &'a Lua,
    rest: &'a [u8],
}

impl Unpacker<'_> {
    fn take(&mut self, count: usize) -> Result<&[u8], Failure> {
        let (bytes, rest) = self
            .rest
            .split_at_checked(count)
            .ok_or("Missing bytes in input.")?;
        self.rest = rest;
        Ok(bytes)
    }

    fn unsigned(&mut self, width: usize) -> Result<u64, Failure> {
        let bytes = self.take(width)?;
        Ok(bytes
            .iter()
            .fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }

    fn signed(&mut self, width: u32) -> Result<i64, Failure> {
        let bytes = self
            .unsigned(usize::try_from(width).unwrap_or(8))?
            .to_be_bytes();
        let unused = 64 - 8 * width;
        Ok(i64::from_be_bytes(bytes).wrapping_shl(unused) >> unused)
    }

    fn length(&mut self, width: usize) -> Result<usize, Failure> {
        usize::try_from(self.unsigned(width)?).map_err(|_| "Missing bytes in input.".into())
    }

    #[allow(clippy::cast_precision_loss, reason = "numbers of scripts are doubles")]
    fn value(&mut self, depth: usize) -> Result<Value, Failure> {
        if depth > UNPACKED_DEPTH_MAX {
            return Err("Found too many nested data structures.".into());
        }
        let tag = self.take(1)?[0];
        Ok(match tag {
            0..=0x7f => Value::Number(f64::from(tag)),
            0xe0..=0xff => Value::Number(f64::from(i8::from_be_bytes([tag]))),
            0x80..=0x8f => self.map(usize::from(tag & 0x0f), depth)?,
            0x90..=0x9f => self.array(usize::from(tag & 0x0f), depth)?,
            0xa0..=0xbf => self.text(usize::from(tag & 0x1f))?,
            0xc0 => Value::Nil,
            0xc2 => Value::Boolean(false),
            0xc3 => Value::Boolean(true),
            0xcc => Value::Number(self.unsigned(1)? as f64),
            0xcd => Value::Number(self.unsigned(2)? as f64),
            0xce => Value::Number(self.unsigned(4)? as f64),
            0xcf => Value::Number(self.unsigned(8)? as f64),
            0xd0 => Value::Number(self.signed(1)? as f64),
            0xd1 => Value::Number(self.signed(2)? as f64),
            0xd2 => Value::Number(self.signed(4)? as f64),
            0xd3 => Value::Number(self.signed(8)? as f64),
            0xca => Value::Number(f64::from(f32::from_bits(
                u32::try_from(self.unsigned(4)?).unwrap_or(0),
            ))),
            0xcb => Value::Number(f64::from_bits(self.unsigned(8)?)),
            0xc4 | 0xd9 => self.counted_text(1)?,
            0xc5 | 0xda => self.counted_text(2)?,
            0xc6 | 0xdb => self.counted_text(4)?,
            0xdc => self.counted_array(2, depth)?,
            0xdd => self.counted_array(4, depth)?,
            0xde => self.counted_map(2, depth)?,
            0xdf => self.counted_map(4, depth)?,
            _ => return Err("Bad data format in input.".into()),
        })
    }

    fn counted_text(&mut self, width: usize) -> Result<Value, Failure> {
        let length = self.length(width)?;
        self.text(length)
    }

    fn counted_array(&mut self, width: usize, depth: usize) -> Result<Value, Failure> {
        let length = self.length(width)?;
        self.array(length, depth)
    }

    fn counted_map(&mut self, width: usize, depth: usize) -> Result<Value, Failure> {
        let length = self.length(width)?;
        self.map(length, depth)
    }

    fn text(&mut self, length: usize) -> Result<Value, Failure> {
        let lua = self.lua;
        Ok(Value::String(lua.create_string(self.take(length)?)?))
    }

    fn array(&mut self, length: usize, depth: usize) -> Result<Value, Failure> {
        let table = self
            .lua
            .create_table_with_capacity(length.min(self.rest.len()), 0)?;
        for place in 1..=length {
            table.raw_set(place, self.value(depth + 1)?)?;
        }
        Ok(Value::Table(table))
    }

    fn map(&mut self, length: usize, depth: usize) -> Result<Value, Failure> {
        let table = self
            .lua
            .create_table_with_capacity(0, length.min(self.rest.len()))?;
        for _ in 0..length {
            let key = self.value(depth + 1)?;
            let value = self.value(depth + 1)?;
            let is_none = match &key {
                Value::Nil => true,
                Value::Number(number) => number.is_nan(),
                _ => false,
            };
            if is_none {
                return Err("table index is nil".into());
            }
            table.raw_set(key, value)?;
        }
        Ok(Value::Table(table))
    }
}
