//! The framing of a snapshot between the other bytes of a link.
//!
//! ```text
//!   $<length> CR LF │ as many bytes
//!   $EOF:<40 bytes> CR LF │ bytes │ the same 40 bytes
//! ```

use base::number::parse_i64;

const MARK_BYTES: usize = 40;
type Mark = [u8; MARK_BYTES];

/// How the end of the snapshot is found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// After this many more bytes.
    Length(u64),
    /// At this mark.
    Mark(Mark),
    /// The mark was found.
    Ended,
}

impl Framing {
    /// Returns the framing that the line before the snapshot states.
    pub(super) fn of_line(line: &[u8]) -> Option<Self> {
        let text = line.strip_prefix(b"$")?;
        if let Some(mark) = text.strip_prefix(b"EOF:") {
            return mark.try_into().ok().map(Self::Mark);
        }
        u64::try_from(parse_i64(text)?).ok().map(Self::Length)
    }

    /// Returns how many bytes follow, or `None` if it is unknown.
    pub(super) fn bytes(&self) -> Option<u64> {
        match self {
            Self::Length(bytes) => Some(*bytes),
            Self::Mark(_) | Self::Ended => None,
        }
    }

    pub(super) fn is_at_end(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Ended)
    }

    /// Returns how many bytes are consumed, and which of them belong to the snapshot. Bytes that
    /// may be the beginning of the mark are not consumed.
    pub(super) fn take<'b>(&mut self, bytes: &'b [u8]) -> (usize, &'b [u8]) {
        match self {
            Self::Length(left) => {
                let now = usize::try_from(*left).map_or(bytes.len(), |it| it.min(bytes.len()));
                *left -= now as u64;
                (now, &bytes[..now])
            }
            Self::Mark(mark) => {
                if let Some(at) = memchr::memmem::find(bytes, mark) {
                    *self = Self::Ended;
                    return (at + MARK_BYTES, &bytes[..at]);
                }
                let now = bytes.len() - mark_begun(bytes, mark);
                (now, &bytes[..now])
            }
            Self::Ended => (0, &[]),
        }
    }
}

/// Returns how many bytes at the end are the beginning of the mark.
fn mark_begun(bytes: &[u8], mark: &Mark) -> usize {
    let longest = bytes.len().min(MARK_BYTES - 1);
    let begun = (1..=longest).rev();
    begun
        .into_iter()
        .find(|len| bytes.ends_with(&mark[..*len]))
        .unwrap_or(0)
}
