//! Finds the end of a value: its body is skipped without being interpreted, so that it can be read
//! as a whole.

use std::io::Read;

use super::input::Input;
use super::{Fault, FileError, ModuleName, opcode};
use crate::VERSION_VALKEY;
use crate::code;
use crate::member_deadlines;
use crate::metadata::{self, part};
use crate::reader::{Malformed, Reader};
use crate::templates::Templates;

/// Types of modules: one whose end only the module knows, and one that any reader can skip.
const MODULE_EARLY: u8 = 6;
const MODULE: u8 = 7;

/// Bytes of an entry's id, if it is not written as two lengths.
const ID_BYTES: usize = 16;
const TIME_BYTES: usize = 8;

/// Skips the body of a value of this type. Returns the number of a stream's producers, which are
/// not kept.
pub(super) fn pass<R: Read>(
    input: &mut Input<R>,
    type_code: u8,
    version: u16,
    templates: &Templates,
) -> Result<u64, FileError> {
    if matches!(
        type_code,
        code::STREAM_PLAIN | code::STREAM_COUNTERS | code::STREAM | code::STREAM_PRODUCERS
    ) {
        return stream(input, type_code);
    }
    pass_other(input, type_code, version, templates).map(|()| 0)
}

fn pass_other<R: Read>(
    input: &mut Input<R>,
    type_code: u8,
    version: u16,
    templates: &Templates,
) -> Result<(), FileError> {
    match type_code {
        code::STRING
        | code::HASH_ZIPMAP
        | code::LIST_ZIPLIST
        | code::SET_INTSET
        | code::SORTED_SET_ZIPLIST
        | code::HASH_ZIPLIST
        | code::HASH_LISTPACK
        | code::SORTED_SET_LISTPACK
        | code::SET_LISTPACK
        | code::HASH_LISTPACK_DEADLINES_EARLY
        | code::HASH_OF_TEMPLATE_LISTPACK => texts(input, 1),
        code::LIST | code::SET | code::LIST_ZIPLISTS => each(input, |input| texts(input, 1)),
        code::HASH => each(input, |input| texts(input, 2)),
        code::SORTED_SET_TEXT => each(input, |input| {
            texts(input, 1)?;
            double_text(input)
        }),
        code::SORTED_SET => each(input, |input| {
            texts(input, 1)?;
            input.skip(size_of::<f64>())
        }),
        code::LIST_LISTPACKS => each(input, |input| {
            lengths(input, 1)?;
            texts(input, 1)
        }),
        code::HASH_DEADLINES_EARLY if version == VERSION_VALKEY => each(input, |input| {
            texts(input, 2)?;
            input.skip(TIME_BYTES)
        }),
        code::HASH_DEADLINES_EARLY => each(input, field_with_deadline),
        code::HASH_DEADLINES => {
            input.skip(TIME_BYTES)?;
            each(input, field_with_deadline)
        }
        code::HASH_LISTPACK_DEADLINES => {
            input.skip(TIME_BYTES)?;
            texts(input, 1)
        }
        code::HASH_OF_TEMPLATE => {
            let number = input.length()?;
            let fields = templates.fields(number);
            texts(
                input,
                fields.ok_or_else(|| input.wrong(Malformed::Template))?,
            )
        }
        MODULE_EARLY | MODULE => {
            let offset = input.offset();
            let fault = Fault::Module(ModuleName(input.length()?));
            Err(FileError { offset, fault })
        }
        other => Err(input.wrong(Malformed::Type(other))),
    }
}

/// Skips deadlines of members after a value. Returns their number.
pub(super) fn pass_member_deadlines<R: Read>(input: &mut Input<R>) -> Result<u64, FileError> {
    let mut count = 0;
    loop {
        let begin = input.position();
        for wanted in [member_deadlines::MEMBER, member_deadlines::TIME] {
            if !pass_aux_named(input, wanted)? {
                input.go_back(begin);
                return Ok(count);
            }
        }
        count += 1;
    }
}

/// Skips an auxiliary field with this name. Returns `false` if something else follows, part of
/// which may be skipped then.
fn pass_aux_named<R: Read>(input: &mut Input<R>, wanted: &[u8]) -> Result<bool, FileError> {
    if input.peek()? != Some(opcode::AUX) {
        return Ok(false);
    }
    input.skip(1)?;
    let name = input.text()?;
    let mut reader = Reader::new(input.part(name), 0, input.limits());
    let name = reader.text().map_err(|malformed| input.wrong(malformed))?;
    if name.as_bytes() != wanted {
        return Ok(false);
    }
    input.text().map(|_| true)
}

/// Skips data of a module that belongs to no key. Returns the module's name.
pub(super) fn pass_module<R: Read>(input: &mut Input<R>) -> Result<ModuleName, FileError> {
    let name = ModuleName(input.length()?);
    // When the module wants this data: a number behind its type.
    lengths(input, 2)?;
    module_data(input)?;
    Ok(name)
}

/// Skips metadata of the key that follows.
pub(super) fn pass_metadata<R: Read>(input: &mut Input<R>) -> Result<(), FileError> {
    each(input, |input| {
        input.skip(metadata::CLASS_BYTES)?;
        module_data(input)
    })
}

fn module_data<R: Read>(input: &mut Input<R>) -> Result<(), FileError> {
    loop {
        match input.length()? {
            part::END => return Ok(()),
            part::SIGNED | part::UNSIGNED => lengths(input, 1)?,
            part::FLOAT => input.skip(size_of::<f32>())?,
            part::DOUBLE => input.skip(size_of::<f64>())?,
            part::TEXT => texts(input, 1)?,
            _ => return Err(input.wrong(Malformed::Length)),
        }
    }
}

/// Skips a count, and that many items with `one`.
pub(super) fn each<R: Read>(
    input: &mut Input<R>,
    one: impl Fn(&mut Input<R>) -> Result<(), FileError>,
) -> Result<(), FileError> {
    // If the count is too large, the loop ends with the file.
    for _ in 0..input.length()? {
        one(input)?;
    }
    Ok(())
}

/// Skips `count` texts.
pub(super) fn texts<R: Read>(input: &mut Input<R>, count: usize) -> Result<(), FileError> {
    (0..count).try_for_each(|_| input.text().map(drop))
}

/// Skips `count` lengths.
pub(super) fn lengths<R: Read>(input: &mut Input<R>, count: usize) -> Result<(), FileError> {
    (0..count).try_for_each(|_| input.length().map(drop))
}

fn field_with_deadline<R: Read>(input: &mut Input<R>) -> Result<(), FileError> {
    lengths(input, 1)?;
    texts(input, 2)
}

fn double_text<R: Read>(input: &mut Input<R>) -> Result<(), FileError> {
    match input.byte()? {
        // Infinities and NaN, which have no digits.
        253..=255 => Ok(()),
        len => input.skip(len.into()),
    }
}

fn stream<R: Read>(input: &mut Input<R>, type_code: u8) -> Result<u64, FileError> {
    let has_counters = type_code != code::STREAM_PLAIN;
    each(input, |input| texts(input, 2))?;
    // Entries, the last id, and then: the first id, the highest deleted id, entries added.
    lengths(input, if has_counters { 8 } else { 3 })?;
    each(input, |input| {
        texts(input, 1)?;
        lengths(input, if has_counters { 3 } else { 2 })?;
        each(input, |input| {
            input.skip(ID_BYTES + TIME_BYTES)?;
            lengths(input, 1)
        })?;
        each(input, |input| {
            texts(input, 1)?;
            let times = if type_code >= code::STREAM { 2 } else { 1 };
            input.skip(times * TIME_BYTES)?;
            each(input, |input| input.skip(ID_BYTES))
        })
    })?;
    if type_code != code::STREAM_PRODUCERS {
        return Ok(0);
    }
    lengths(input, 2)?;
    let producers = input.length()?;
    for _ in 0..producers {
        texts(input, 1)?;
        each(input, |input| {
            texts(input, 1)?;
            lengths(input, 2)
        })?;
    }
    lengths(input, 2)?;
    Ok(producers)
}
