//! HyperLogLog: counts of distinct elements, stored in strings.
//!
//! `PFADD`, `PFCOUNT` and `PFMERGE` are in `count`, commands that show internals in `debug`.
//!
//! # Effects
//! `PFADD` as sent. Otherwise the bytes that were written: `SETRANGE key 8 …` for a count that
//! PFCOUNT caches, `SETRANGE key 0 …` (or `SET … KEEPTTL` if it became shorter) for a whole sketch.

use engine::error::{CommandError, CommandResult};
use engine::spec::{CommandSpec, Group};
use store::{Deadline, Entry, Record};
use structures::hyper_log_log::{self, Corrupted, Form, HEADER_BYTES, REGISTERS, Registers};

use crate::families::strings::shared::check_string;

mod count;
mod debug;

/// The rows of this family, by theme.
pub const COMMANDS: &[&[CommandSpec]] = &[count::COMMANDS, debug::COMMANDS];

/// The base row of this family.
const ROW: CommandSpec = CommandSpec {
    group: Group::HyperLogLog,
    since: "2.8.9",
    ..CommandSpec::BLANK
};

const NO_SKETCH: CommandError =
    CommandError::fixed("WRONGTYPE Key is not a valid HyperLogLog string value.");

/// Returns the error for a string that is not a valid sketch.
fn corrupted(_: Corrupted) -> CommandError {
    CommandError::fixed("INVALIDOBJ Corrupted HLL object detected")
}

/// Returns the form and the header of the sketch in a record.
fn look(record: &Record<'_>) -> Result<(Form, [u8; HEADER_BYTES]), CommandError> {
    check_string(Some(record))?;
    if record.len() < HEADER_BYTES {
        return Err(NO_SKETCH);
    }
    let mut header = [0; HEADER_BYTES];
    record.copy_to(0, &mut header);
    let form = hyper_log_log::form_of(&header, record.len()).ok_or(NO_SKETCH)?;
    Ok((form, header))
}

/// Raises `registers` to those of the sketch in a record, and returns its form.
fn merge(record: &Record<'_>, registers: &mut Registers) -> Result<Form, CommandError> {
    let (form, _) = look(record)?;
    hyper_log_log::merge(registers, form, &record.to_vec()).map_err(corrupted)?;
    Ok(form)
}

fn no_registers() -> Box<Registers> {
    Box::new([0; REGISTERS])
}

/// Stores these bytes at a key, keeps its deadline, and states it.
fn put(entry: &mut Entry<'_>, sketch: &[u8]) -> CommandResult {
    let old_len = entry.record().map_or(0, |record| record.len());
    entry.set_raw(sketch, Deadline::Keep)?;
    let key = entry.key();
    entry.effect(|effect| {
        if sketch.len() >= old_len {
            effect.command(&[b"SETRANGE", key.bytes(), b"0", sketch]);
        } else {
            effect.command(&[b"SET", key.bytes(), sketch, b"KEEPTTL"]);
            effect.command(&[b"APPEND", key.bytes(), b""]);
        }
    });
    Ok(())
}
