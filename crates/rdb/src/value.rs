//! Values: a type's code, and the body that follows it.
//!
//! Which codes there are depends on the version that is written:
//!
//! | Value | 9 | 10 | 11 | 12 |
//! |---|---|---|---|---|
//! | string | 0 | 0 | 0 | 0 |
//! | list | 1 | 18 | 18 | 18 |
//! | set: numbers, block, table | 11, 2, 2 | 11, 2, 2 | 11, 20, 2 | 11, 20, 2 |
//! | sorted set: block, tree | 5, 5 | 17, 5 | 17, 5 | 17, 5 |
//! | hash: block, table | 4, 4 | 16, 4 | 16, 4 | 16, 4 |
//! | hash with deadlines: few, many | – | – | – | 25, 24 |
//! | stream | 15 | 19 | 21 | 21 |
//!
//! All of these are read, and besides them 3 (scores as texts), 9 (zipmap), 10, 12, 13 and 14
//! (ziplists), 22 and 23 (deadlines before they were published), and Valkey's 22.

use structures::Object;

use crate::reader::{Malformed, Reader};
use crate::writer::{Style, write_text};

mod hashes;
mod lists;
mod sets;
mod sorted_sets;
mod streams;

/// A value as it is read and written.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Bytes.
    String(Vec<u8>),
    /// Anything else.
    Object(Object),
}

/// The codes of the types.
mod code {
    pub(super) const STRING: u8 = 0;
    pub(super) const LIST: u8 = 1;
    pub(super) const SET: u8 = 2;
    pub(super) const SORTED_SET_TEXT: u8 = 3;
    pub(super) const HASH: u8 = 4;
    pub(super) const SORTED_SET: u8 = 5;
    pub(super) const HASH_ZIPMAP: u8 = 9;
    pub(super) const LIST_ZIPLIST: u8 = 10;
    pub(super) const SET_INTSET: u8 = 11;
    pub(super) const SORTED_SET_ZIPLIST: u8 = 12;
    pub(super) const HASH_ZIPLIST: u8 = 13;
    pub(super) const LIST_ZIPLISTS: u8 = 14;
    pub(super) const STREAM_PLAIN: u8 = 15;
    pub(super) const HASH_LISTPACK: u8 = 16;
    pub(super) const SORTED_SET_LISTPACK: u8 = 17;
    pub(super) const LIST_LISTPACKS: u8 = 18;
    pub(super) const STREAM_COUNTERS: u8 = 19;
    pub(super) const SET_LISTPACK: u8 = 20;
    pub(super) const STREAM: u8 = 21;
    /// Of Valkey, and of unpublished versions of Redis, where it is another.
    pub(super) const HASH_DEADLINES_EARLY: u8 = 22;
    pub(super) const HASH_LISTPACK_DEADLINES_EARLY: u8 = 23;
    pub(super) const HASH_DEADLINES: u8 = 24;
    pub(super) const HASH_LISTPACK_DEADLINES: u8 = 25;
}

/// Reads the body of a value whose type has this code.
///
/// # Errors
/// See [`Malformed`]. How far was read is then left open.
pub fn read(type_code: u8, reader: &mut Reader<'_>) -> Result<Value, Malformed> {
    let object = match type_code {
        code::STRING => return reader.text().map(|text| Value::String(text.into_vec())),
        code::LIST => lists::read_plain(reader).map(Object::List),
        code::LIST_ZIPLIST => lists::read_ziplist(reader).map(Object::List),
        code::LIST_ZIPLISTS => lists::read_ziplists(reader).map(Object::List),
        code::LIST_LISTPACKS => lists::read_listpacks(reader).map(Object::List),
        code::SET => sets::read_plain(reader).map(Object::Set),
        code::SET_INTSET => sets::read_ints(reader).map(Object::Set),
        code::SET_LISTPACK => sets::read_listpack(reader).map(Object::Set),
        code::SORTED_SET_TEXT | code::SORTED_SET => {
            let is_text = type_code == code::SORTED_SET_TEXT;
            sorted_sets::read_plain(reader, is_text).map(Object::SortedSet)
        }
        code::SORTED_SET_ZIPLIST => sorted_sets::read_ziplist(reader).map(Object::SortedSet),
        code::SORTED_SET_LISTPACK => sorted_sets::read_listpack(reader).map(Object::SortedSet),
        code::HASH => hashes::read_plain(reader).map(Object::Hash),
        code::HASH_ZIPMAP => hashes::read_zipmap(reader).map(Object::Hash),
        code::HASH_ZIPLIST => hashes::read_ziplist(reader).map(Object::Hash),
        code::HASH_LISTPACK => hashes::read_listpack(reader).map(Object::Hash),
        code::HASH_DEADLINES_EARLY if reader.version() == crate::VERSION_VALKEY => {
            hashes::read_valkey(reader).map(Object::Hash)
        }
        code::HASH_DEADLINES_EARLY => hashes::read_deadlines(reader, false).map(Object::Hash),
        code::HASH_DEADLINES => hashes::read_deadlines(reader, true).map(Object::Hash),
        code::HASH_LISTPACK_DEADLINES_EARLY => {
            hashes::read_listpack_deadlines(reader, false).map(Object::Hash)
        }
        code::HASH_LISTPACK_DEADLINES => {
            hashes::read_listpack_deadlines(reader, true).map(Object::Hash)
        }
        code::STREAM_PLAIN | code::STREAM_COUNTERS | code::STREAM => {
            streams::read(reader, type_code).map(Object::Stream)
        }
        other => Err(Malformed::Type(other)),
    };
    object.map(Value::Object)
}

/// The oldest version in which the value can be written. An older one loses deadlines of fields. What
/// only tells about a stream, and is not in it, does not count: the counters of its entries (from
/// version 10 on), and when a consumer last got something (from 11 on).
#[must_use]
pub fn version_needed(value: &Value) -> u16 {
    match value {
        Value::Object(Object::Hash(hash)) if hash.has_deadlines() => hashes::DEADLINES_VERSION,
        _ => crate::VERSION_MIN,
    }
}

/// The code of the type that [`write()`] writes the value as.
#[must_use]
pub fn type_code(value: &Value, style: Style) -> u8 {
    match value {
        Value::String(_) => code::STRING,
        Value::Object(Object::List(_)) => lists::type_code(style),
        Value::Object(Object::Set(set)) => sets::type_code(set, style),
        Value::Object(Object::SortedSet(set)) => sorted_sets::type_code(set, style),
        Value::Object(Object::Hash(hash)) => hashes::type_code(hash, style),
        Value::Object(Object::Stream(_)) => streams::type_code(style),
    }
}

/// Writes the body of a value. O(n).
pub fn write(value: &Value, style: Style, out: &mut Vec<u8>) {
    match value {
        Value::String(text) => write_text(text, style, out),
        Value::Object(Object::List(list)) => lists::write(list, style, out),
        Value::Object(Object::Set(set)) => sets::write(set, style, out),
        Value::Object(Object::SortedSet(set)) => sorted_sets::write(set, style, out),
        Value::Object(Object::Hash(hash)) => hashes::write(hash, style, out),
        Value::Object(Object::Stream(stream)) => streams::write(stream, style, out),
    }
}
