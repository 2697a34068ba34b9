//! Whole numbers and their text.

/// The number that `text` spells canonically.
#[must_use]
pub fn parse_i64(text: &[u8]) -> Option<i64> {
    let number: i64 = std::str::from_utf8(text).ok()?.parse().ok()?;
    (number.to_string().as_bytes() == text).then_some(number)
}
