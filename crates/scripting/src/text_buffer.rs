//! Texts on their way into the machine: one buffer, which the prelude makes strings from.
//!
//! A string that is made from outside costs a protected call and a reference, several times what a
//! short command takes; inside, the same string is one call of a library function. So keys, arguments
//! and replies are copied into a buffer that only the prelude knows, and it is told how to read them
//! ([`Passed`]). What is too long for the buffer goes the long way.
//!
//! The buffer holds one thing at a time: the prelude takes it out before anything else can be put in.

use std::cell::RefCell;

use mlua::{Buffer, Lua, Value};

/// Bytes of the buffer.
const SHARED_BYTES: usize = 32 << 10;

/// The length before a text that is none.
const NO_TEXT: u32 = u32::MAX;

/// What the prelude gets for a reply: the reply itself, or how many bytes or texts of the buffer it is
/// made from, and how. See the constants here.
pub(crate) type Passed = (Value, Option<u8>);

/// A string of so many bytes.
const TEXT: u8 = 1;
/// `{ok = text}`.
const STATUS: u8 = 2;
/// `{err = text}`, to be raised by `redis.call`.
const ERROR: u8 = 3;
/// A table of so many texts.
const TEXTS: u8 = 4;
/// The value itself, to be raised by `redis.call`.
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

    /// The buffer as the prelude knows it.
    pub(crate) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// A string, if it is short enough.
    pub(crate) fn text(&self, text: &[u8]) -> Option<Passed> {
        self.one(text, TEXT)
    }

    /// A status, if it is short enough.
    pub(crate) fn status(&self, text: &[u8]) -> Option<Passed> {
        self.one(text, STATUS)
    }

    /// An error, if it is short enough.
    pub(crate) fn error(&self, text: &[u8]) -> Option<Passed> {
        self.one(text, ERROR)
    }

    /// A table of so many texts, some of which may be none, unless `texts` ends before or they are too
    /// long.
    pub(crate) fn texts<'a>(
        &self,
        count: usize,
        texts: impl Iterator<Item = Option<&'a [u8]>>,
    ) -> Option<Passed> {
        (self.several(texts)? == count).then(|| pass(count, TEXTS))?
    }

    /// Puts texts one behind the other, each with its length before it; how many, unless they are too
    /// long.
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
