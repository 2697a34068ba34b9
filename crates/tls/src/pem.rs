//! Sections of PEM files (RFC 7468) with labels that `rustls-pki-types` does not know: encrypted
//! keys.

/// Returns the decoded content of the first section with the label `label`.
pub(crate) fn section(text: &[u8], label: &str) -> Option<Vec<u8>> {
    let (begin, end) = (
        format!("-----BEGIN {label}-----"),
        format!("-----END {label}-----"),
    );
    let start = find(text, begin.as_bytes())? + begin.len();
    let rest = &text[start..];
    let length = find(rest, end.as_bytes())?;
    decode(&rest[..length])
}

/// Returns whether a text contains `part`.
pub(crate) fn contains(text: &[u8], part: &str) -> bool {
    find(text, part.as_bytes()).is_some()
}

fn find(text: &[u8], part: &[u8]) -> Option<usize> {
    text.windows(part.len()).position(|window| window == part)
}

/// Decodes base64, ignoring white space.
fn decode(text: &[u8]) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    let (mut bits, mut count) = (0_u32, 0);
    let digits = text.iter().filter(|byte| !byte.is_ascii_whitespace());
    for &digit in digits.take_while(|byte| **byte != b'=') {
        let value = match digit {
            b'A'..=b'Z' => digit - b'A',
            b'a'..=b'z' => digit - b'a' + 26,
            b'0'..=b'9' => digit - b'0' + 52,
            b'+' => 62,
            b'/' => 63,
            _ => return None,
        };
        (bits, count) = ((bits << 6 | u32::from(value)) & 0xffff, count + 6);
        if count >= 8 {
            count -= 8;
            bytes.push(u8::try_from(bits >> count & 0xff).ok()?);
        }
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_section_of_a_kind_is_found_and_decoded() {
        let text = b"junk\n-----BEGIN A-----\nZm9v\nYmE=\n-----END A-----\n-----BEGIN A-----\n-----END A-----";
        assert_eq!(section(text, "A").as_deref(), Some(&b"fooba"[..]));
        assert_eq!(section(text, "B"), None);
        assert_eq!(section(b"-----BEGIN A-----\nZm9v", "A"), None);
        assert_eq!(
            section(b"-----BEGIN A-----\nZ$9v\n-----END A-----", "A"),
            None
        );
    }
}
