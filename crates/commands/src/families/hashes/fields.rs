//! `FIELDS numfields field …`, the form in which newer commands name their fields.

use engine::args::{Args, Rest};
use engine::error::CommandError;

/// The wording of a command's error about its number of fields.
#[derive(Clone, Copy)]
pub(super) enum Complaint {
    /// HEXPIRE and its forms.
    Parameter,
    /// All others.
    Number,
}

/// Parses `FIELDS numfields` and the arguments after it: `step` arguments for each field.
///
/// # Errors
/// If the word is missing, or the number does not match the fields that follow.
pub(super) fn parse<'a>(
    args: &mut Args<'a>,
    step: usize,
    complaint: Complaint,
) -> Result<Rest<'a>, CommandError> {
    if !args.take_word("FIELDS") {
        return Err(CommandError::fixed(
            "ERR Mandatory argument FIELDS is missing or not at the right position",
        ));
    }
    let count = args
        .integer()
        .ok()
        .and_then(|count| usize::try_from(count).ok());
    let Some(count) = count.filter(|count| *count > 0) else {
        return Err(CommandError::fixed(match complaint {
            Complaint::Parameter => "ERR Parameter `numFields` should be greater than 0",
            Complaint::Number => "ERR Number of fields must be a positive integer",
        }));
    };
    if count.checked_mul(step) != Some(args.remaining()) {
        return Err(CommandError::fixed(
            "ERR The `numfields` parameter must match the number of arguments",
        ));
    }
    Ok(args.rest())
}
