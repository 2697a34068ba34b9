//! The system's description of an error, for people.

use std::io;

/// Returns the reason without the number that the standard library appends.
#[must_use]
pub fn system_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((sentence, _)) => sentence.to_owned(),
        None => text,
    }
}
