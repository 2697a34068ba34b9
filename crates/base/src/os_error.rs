//! What the system says about an error, for people.

use std::io;

/// The reason alone: without the number that the standard library puts behind it.
#[must_use]
pub fn system_reason(error: &io::Error) -> String {
    let text = error.to_string();
    match text.rsplit_once(" (os error ") {
        Some((sentence, _)) => sentence.to_owned(),
        None => text,
    }
}
