//! Transfer of texts into the machine: one buffer, from which the prelude makes strings.
//!
//! Making a string from outside costs a protected call and a reference, several times the cost of a
//! short command. Inside the machine, the same string is one call of a library function. So keys,
//! arguments and replies are copied into a buffer that only the prelude knows, and [`Passed`] tells
//! it how to read them. Texts that are too long for the buffer are passed as strings made from
//! outside.
//!
//! The buffer holds one thing at a time: the prelude takes it out before anything else can be put
//! in.

use std::cell::RefCell;

use mlua::{Buffer, Lua, Value};

/// Size of the buffer in bytes.
const SHARED_BYTES: usize = 32 << 10;

/// The length that stands for a missing text.
const NO_TEXT: u32 = u32::MAX;

/// A reply as passed to the prelude: the reply itself, or the number of bytes or texts in the
/// buffer that it is made from. The second part is one of the constants here, and says how.
pub(crate) type Passed = (Value, Option<u8>);

/// A string of this many bytes.
const TEXT: u8 = 1;
/// The reply `{ok = text}`.
const STATUS: u8 = 2;
/// The reply `{err = text}`, which `redis.call` raises.
const ERROR: u8 = 3;
/// A table of this many texts.
const TEXTS: u8 = 4;
/// The value itself, which `redis.call` raises.
pub(crate) const RAISED: u8 = 5;

/// See the module.
pub(crate) struct TextBuffer {
    buffer: Buffer,
    several: RefCell<Vec<u8>>,
}

impl TextBuffer {
    pub(crate) fn new(lua: &Lua) -> mlua::Result<Self> {
        Ok(Self {
            buffer: lua.create_buffer_with_capacity(SHARED_BYTES)?,
            several: RefCell::default(),
        })
    }

    /// Returns the buffer as the prelude knows it.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// Passes a string, if it is short enough.
    pub(crate) fn text(&self, text: &[u8]) -> Option<Passed> {
        self.one(text, TEXT)
    }

    /// Passes a status, if it is short enough.
    pub(crate) fn status(&self, text: &[u8]) -> Option<Passed> {
        self.one(text, STATUS)
    }

    /// Passes an error, if it is short enough.
    pub(crate) fn error(&self, text: &[u8]) -> Option<Passed> {
        self.one(text, ERROR)
    }

    /// Passes a table of this many texts, some of which may be missing. Returns `None` if `texts`
    /// ends early or the texts are too long.
    pub(crate) fn texts<'a>(
        &self,
        count: usize,
        texts: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Option<Passed> {
        (self.several(texts)? == count).then(|| pass(count, TEXTS))?
    }

    /// Writes texts one after the other, each preceded by its length. Returns their number, or
    /// `None` if they are too long.
    pub(crate) fn several<'a>(
        &self,
        texts: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Option<usize> {
        let mut several = self.several.borrow_mut();
        several.clear();
        let mut count = 0;
        for text in texts {
            let length = text.map_or(Some(NO_TEXT), |text| u32::try_from(text.len()).ok())?;
            let text = text.unwrap_or_default();
            if text.len() + size_of::<u32>() > SHARED_BYTES - several.len() {
                return None;
            }
            several.extend_from_slice(&length.to_le_bytes());
            several.extend_from_slice(text);
            count += 1;
        }
        self.buffer.write_bytes(0, &several);
        Some(count)
    }

    fn one(&self, text: &[u8], kind: u8) -> Option<Passed> {
        if text.len() > SHARED_BYTES {
            return None;
        }
        self.buffer.write_bytes(0, text);
        pass(text.len(), kind)
    }
}

fn pass(count: usize, kind: u8) -> Option<Passed> {
    let count = i64::try_from(count).ok()?;
    Some((Value::Integer(count), Some(kind)))
}
