//! `struct`: numbers and texts to bytes and back, by a format.
//!
//! Formats: `<` `>` `=` byte order, `!n` alignment, `b B h H i I l L T` integers (`i` and `I` take
//! a size), `f d` floating point, `s` text up to a zero byte, `cn` text of `n` bytes (`c0`: as many
//! as the number before says), `x` a padding byte.

use mlua::{Lua, MultiValue, Table, Value};

use crate::convert;
use crate::library::{self, Failure, Results};
use crate::number_text::truncated;

const SIZE_MAX: usize = 32;
const TOO_SHORT: &str = "bad argument #2 to 'unpack' (data string too short)";
/// Maximum number of bytes that `pack` produces and `size` counts.
const PACKED_BYTES_MAX: usize = 512 << 20;

/// Returns the functions of the library.
pub(crate) fn table(lua: &Lua) -> mlua::Result<Table> {
    let table = lua.create_table()?;
    table.raw_set("pack", library::function(lua, pack)?)?;
    table.raw_set("unpack", library::function(lua, unpack)?)?;
    table.raw_set("size", library::function(lua, size)?)?;
    Ok(table)
}

/// A format, read from its start.
struct Format<'a> {
    rest: &'a [u8],
    little: bool,
    align: usize,
    /// The function whose errors these are.
    function: &'static str,
}

/// One item of a format.
#[derive(Clone, Copy)]
struct Item {
    kind: u8,
    size: usize,
    /// Number of zero bytes before it.
    padding: usize,
}

impl<'a> Format<'a> {
    fn new(rest: &'a [u8], function: &'static str) -> Self {
        Self {
            rest,
            function,
            little: cfg!(target_endian = "little"),
            align: 1,
        }
    }

    /// Returns the next item that takes space, if `total` bytes precede it.
    fn next(&mut self, total: usize) -> Result<Option<Item>, Failure> {
        while let Some((&kind, rest)) = self.rest.split_first() {
            self.rest = rest;
            match kind {
                b' ' => {}
                b'>' => self.little = false,
                b'<' => self.little = true,
                b'=' => self.little = cfg!(target_endian = "little"),
                b'!' => {
                    let align = self.number(8)?;
                    if align == 0 || !align.is_power_of_two() {
                        return Err(Failure::Text(format!(
                            "alignment {align} is not a power of 2"
                        )));
                    }
                    self.align = align;
                }
                _ => return self.item(kind, total).map(Some),
            }
        }
        Ok(None)
    }

    fn item(&mut self, kind: u8, total: usize) -> Result<Item, Failure> {
        let size = match kind {
            b'b' | b'B' | b'x' => 1,
            b'h' | b'H' => 2,
            b'f' => 4,
            b'l' | b'L' | b'T' | b'd' => 8,
            b'i' | b'I' => {
                let size = self.number(4)?;
                if size > SIZE_MAX {
                    let text = format!("integral size {size} is larger than limit of {SIZE_MAX}");
                    return Err(Failure::Text(text));
                }
                size
            }
            b'c' => self.number(1)?,
            b's' => 0,
            other => {
                let text = format!(
                    "bad argument #1 to '{}' (invalid format option '{}')",
                    self.function,
                    char::from(other)
                );
                return Err(Failure::Text(text));
            }
        };
        let align = if matches!(kind, b'c' | b's' | b'x') {
            1
        } else {
            size.min(self.align)
        };
        let padding = if align > 1 {
            (align - (total & (align - 1))) & (align - 1)
        } else {
            0
        };
        Ok(Item {
            kind,
            size,
            padding,
        })
    }

    fn number(&mut self, default: usize) -> Result<usize, Failure> {
        let digits = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        if digits == 0 {
            return Ok(default);
        }
        let (text, rest) = self.rest.split_at(digits);
        self.rest = rest;
        let number = base::number::parse_u64(
            text.strip_prefix(b"0")
                .filter(|rest| !rest.is_empty())
                .unwrap_or(text),
        );
        number
            .and_then(|number| i32::try_from(number).ok())
            .and_then(|number| usize::try_from(number).ok())
            .ok_or_else(|| "integral size overflow".into())
    }
}

fn pack(lua: &Lua, mut arguments: MultiValue) -> Results {
    let text = library::bytes_at(&arguments, 1, "pack")?;
    let mut format = Format::new(&text, "pack");
    let mut out = Vec::new();
    let mut place = 2;
    // A missing argument counts as nil.
    arguments.push_back(Value::Nil);
    while let Some(item) = format.next(out.len())? {
        out.resize(out.len() + item.padding, 0);
        match item.kind {
            b'x' => out.push(0),
            b's' | b'c' => {
                pack_text(
                    &mut out,
                    item,
                    &library::bytes_at(&arguments, place, "pack")?,
                    place,
                )?;
                place += 1;
            }
            _ => {
                pack_number(
                    &mut out,
                    item,
                    library::number_at(&arguments, place, "pack")?,
                    format.little,
                );
                place += 1;
            }
        }
        if out.len() > PACKED_BYTES_MAX {
            return Err("format result too large".into());
        }
    }
    library::text(lua, &out)
}

fn pack_text(out: &mut Vec<u8>, item: Item, text: &[u8], place: usize) -> Result<(), Failure> {
    let size = if item.size == 0 || item.kind == b's' {
        text.len()
    } else {
        item.size
    };
    match text.get(..size) {
        Some(text) => out.extend_from_slice(text),
        None => {
            return Err(Failure::Text(format!(
                "bad argument #{} to 'pack' (string too short)",
                place + 1
            )));
        }
    }
    if item.kind == b's' {
        out.push(0);
    }
    Ok(())
}

fn pack_number(out: &mut Vec<u8>, item: Item, number: f64, little: bool) {
    let mut bytes = [0; SIZE_MAX];
    match item.kind {
        #[allow(clippy::cast_possible_truncation, reason = "what the format asks for")]
        b'f' => bytes[..4].copy_from_slice(&(number as f32).to_le_bytes()),
        b'd' => bytes[..8].copy_from_slice(&number.to_le_bytes()),
        _ => {
            let whole = wrapped(number);
            bytes[..8].copy_from_slice(&whole.to_le_bytes());
        }
    }
    let bytes = &mut bytes[..item.size];
    if !little {
        bytes.reverse();
    }
    out.extend_from_slice(bytes);
}

/// Converts a number. Numbers beyond the signed range are taken as unsigned.
fn wrapped(number: f64) -> i64 {
    const SIGNED_BELOW: f64 = 9_223_372_036_854_775_808.0;
    const UNSIGNED_BELOW: f64 = 18_446_744_073_709_551_616.0;
    if (SIGNED_BELOW..UNSIGNED_BELOW).contains(&number) {
        #[allow(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "inside the range"
        )]
        let unsigned = number as u64;
        i64::from_le_bytes(unsigned.to_le_bytes())
    } else {
        truncated(number)
    }
}

fn unpack(lua: &Lua, arguments: MultiValue) -> Results {
    let text = library::bytes_at(&arguments, 1, "unpack")?;
    let data = library::bytes_at(&arguments, 2, "unpack")?;
    let start = match arguments.get(2) {
        None | Some(Value::Nil) => 1.0,
        Some(_) => library::number_at(&arguments, 3, "unpack")?,
    };
    let start = truncated(start)
        .checked_sub(1)
        .and_then(|start| usize::try_from(start).ok());
    let mut position = start.ok_or("bad argument #3 to 'unpack' (offset must be 1 or greater)")?;
    let mut format = Format::new(&text, "unpack");
    let mut results: Vec<Value> = Vec::new();
    while let Some(item) = format.next(position)? {
        position = position.saturating_add(item.padding);
        let (value, used) = unpack_item(lua, item, &data, position, format.little, &mut results)?;
        position += used;
        results.extend(value);
    }
    results.push(whole_number(position + 1));
    Ok(MultiValue::from_vec(results))
}

fn whole_number(number: usize) -> Value {
    #[allow(clippy::cast_precision_loss, reason = "lengths are below 2^53")]
    Value::Number(number as f64)
}

/// Returns the value, if the item has one, and the number of bytes that it takes.
fn unpack_item(
    lua: &Lua,
    item: Item,
    data: &[u8],
    position: usize,
    little: bool,
    before: &mut Vec<Value>,
) -> Result<(Option<Value>, usize), Failure> {
    let rest = data.get(position..).ok_or(TOO_SHORT)?;
    let take = |size: usize| rest.get(..size).ok_or_else(|| Failure::from(TOO_SHORT));
    match item.kind {
        b'x' => take(1).map(|_| (None, 1)),
        b's' => {
            let end = rest
                .iter()
                .position(|byte| *byte == 0)
                .ok_or("unfinished string in data")?;
            Ok((
                Some(Value::String(lua.create_string(&rest[..end])?)),
                end + 1,
            ))
        }
        b'c' => {
            let size = if item.size == 0 {
                counted(before)?
            } else {
                item.size
            };
            Ok((Some(Value::String(lua.create_string(take(size)?)?)), size))
        }
        _ => {
            let mut bytes = [0; SIZE_MAX];
            let own = &mut bytes[..item.size];
            own.copy_from_slice(take(item.size)?);
            if !little {
                own.reverse();
            }
            Ok((Some(Value::Number(number_of(item, &bytes))), item.size))
        }
    }
}

/// Returns the size for `c0`, which is the value before it.
fn counted(before: &mut Vec<Value>) -> Result<usize, Failure> {
    let size = before.pop().as_ref().and_then(convert::number);
    let size = size.ok_or("format 'c0' needs a previous size")?;
    usize::try_from(truncated(size)).map_err(|_| TOO_SHORT.into())
}

fn number_of(item: Item, bytes: &[u8; SIZE_MAX]) -> f64 {
    let mut low = [0; 8];
    low.copy_from_slice(&bytes[..8]);
    let unsigned = u64::from_le_bytes(low);
    match item.kind {
        b'f' => f64::from(f32::from_le_bytes([low[0], low[1], low[2], low[3]])),
        b'd' => f64::from_le_bytes(low),
        #[allow(clippy::cast_precision_loss, reason = "numbers of scripts are doubles")]
        b'B' | b'H' | b'I' | b'L' | b'T' => unsigned as f64,
        _ => {
            let unused = 64 - 8 * u32::try_from(item.size.clamp(1, 8)).unwrap_or(8);
            let signed = i64::from_le_bytes(low).wrapping_shl(unused) >> unused;
            #[allow(clippy::cast_precision_loss, reason = "numbers of scripts are doubles")]
            {
                signed as f64
            }
        }
    }
}

fn size(_: &Lua, arguments: MultiValue) -> Results {
    let text = library::bytes_at(&arguments, 1, "size")?;
    let mut format = Format::new(&text, "size");
    let mut total: usize = 0;
    while let Some(item) = format.next(total)? {
        if item.kind == b's' {
            return Err("bad argument #1 to 'size' (option 's' has no fixed size)".into());
        }
        if item.kind == b'c' && item.size == 0 {
            return Err("bad argument #1 to 'size' (option 'c0' has no fixed size)".into());
        }
        total = total
            .checked_add(item.padding + item.size)
            .filter(|total| i32::try_from(*total).is_ok())
            .ok_or("format too large")?;
    }
    Ok(library::one(whole_number(total)))
}
