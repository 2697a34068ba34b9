//! Values: a type's code, and the body that follows it.
//!
//! The codes depend on the version that is written:
//!
//! | Value | 9 | 10 | 11 | 12 | 80 |
//! |---|---|---|---|---|---|
//! | string | 0 | 0 | 0 | 0 | 0 |
//! | list | 1 | 18 | 18 | 18 | 18 |
//! | set: numbers, block, table | 11, 2, 2 | 11, 2, 2 | 11, 20, 2 | 11, 20, 2 | 11, 20, 2 |
//! | sorted set: block, tree | 5, 5 | 17, 5 | 17, 5 | 17, 5 | 17, 5 |
//! | hash: block, table | 4, 4 | 16, 4 | 16, 4 | 16, 4 | 16, 4 |
//! | hash with deadlines: few, many | – | – | – | 25, 24 | 22, 22 |
//! | stream | 15 | 19 | 21 | 21 | 21 |
//!
//! All of these are read, and also 3 (scores as texts), 9 (zipmap), 10, 12, 13 and 14 (ziplists),
//! 22 and 23 of Redis (deadlines before they were published), 26 (streams since Redis 8.6), 29 and
//! 31 (hashes with their own templates; those with a template of their file are 30 and 32, which
//! only [`file`](crate::file) can read).

use structures::Object;

use crate::code;
use crate::reader::{Malformed, Reader};
use crate::writer::{Output, Style, write_text};

mod hashes;
mod lists;
mod sets;
mod sorted_sets;
mod streams;

/// A decoded value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// A string.
    String(Vec<u8>),
    /// Any other value.
    Object(Object),
}

/// The code of a string's type, in every version.
pub const STRING: u8 = code::STRING;

/// Reads the body of a value whose type has this code.
///
/// # Errors
/// See [`Malformed`]. The reader's position is then unspecified.
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
        code::HASH_TEMPLATE_LISTPACK => hashes::read_template_listpack(reader).map(Object::Hash),
        code::HASH_TEMPLATE => hashes::read_template(reader).map(Object::Hash),
        code::STREAM_PLAIN | code::STREAM_COUNTERS | code::STREAM | code::STREAM_PRODUCERS => {
            streams::read(reader, type_code).map(Object::Stream)
        }
        other => Err(Malformed::Type(other)),
    };
    object.map(Value::Object)
}

/// Returns the oldest version in which the value can be written. An older one loses deadlines of
/// fields. Facts about a stream that are not part of its content do not count: the counters of its
/// entries (from version 10 on), and when a consumer last got an entry (from 11 on).
#[must_use]
pub fn version_needed(value: &Value) -> u16 {
    match value {
        Value::String(_) => crate::VERSION_MIN,
        Value::Object(object) => version_needed_of(object),
    }
}

/// Like [`version_needed`], for a borrowed object.
#[must_use]
pub fn version_needed_of(object: &Object) -> u16 {
    match object {
        Object::Hash(hash) if hash.has_deadlines() => hashes::DEADLINES_VERSION,
        _ => crate::VERSION_MIN,
    }
}

/// Returns the type code with which [`write()`] writes the value.
#[must_use]
pub fn type_code(value: &Value, style: Style) -> u8 {
    match value {
        Value::String(_) => STRING,
        Value::Object(object) => type_code_of(object, style),
    }
}

/// Returns the type code with which [`write_object`] writes the object. For a string it is
/// [`STRING`].
#[must_use]
pub fn type_code_of(object: &Object, style: Style) -> u8 {
    match object {
        Object::List(_) => lists::type_code(style),
        Object::Set(set) => sets::type_code(set, style),
        Object::SortedSet(set) => sorted_sets::type_code(set, style),
        Object::Hash(hash) => hashes::type_code(hash, style),
        Object::Stream(_) => streams::type_code(style),
    }
}

/// Whether a body of this type, as written in some version, is also valid in this version:
/// [`write()`] could have written it.
#[must_use]
pub fn is_type_of(type_code: u8, version: u16) -> bool {
    match type_code {
        code::STRING | code::SET | code::SET_INTSET | code::SORTED_SET | code::HASH => true,
        code::LIST_LISTPACKS | code::SORTED_SET_LISTPACK | code::HASH_LISTPACK => version >= 10,
        code::SET_LISTPACK | code::STREAM => version >= 11,
        code::HASH_DEADLINES | code::HASH_LISTPACK_DEADLINES => {
            version == hashes::DEADLINES_VERSION
        }
        _ => false,
    }
}

/// Writes the body of a value. O(n).
pub fn write(value: &Value, style: Style, out: &mut impl Output) {
    match value {
        Value::String(text) => write_text(text, style, out),
        Value::Object(object) => write_object(object, style, out),
    }
}

/// Writes the body of an object. O(n), without a copy of the whole. For a string it is
/// [`write_text`].
pub fn write_object(object: &Object, style: Style, out: &mut impl Output) {
    match object {
        Object::List(list) => lists::write(list, style, out),
        Object::Set(set) => sets::write(set, style, out),
        Object::SortedSet(set) => sorted_sets::write(set, style, out),
        Object::Hash(hash) => hashes::write(hash, style, out),
        Object::Stream(stream) => streams::write(stream, style, out),
    }
}
