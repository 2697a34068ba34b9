//! The argument of an incomplete request whose bytes are not all received.

use base::number::parse_i64;

/// Maximum number of arguments that are checked, the awaited one included.
const ARGUMENTS_MAX: usize = 8;

/// The argument in which an incomplete request ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AwaitedArgument<'a> {
    /// The request's first argument; empty if that is the awaited one.
    pub name: &'a [u8],
    /// Index of the argument; the name has index 0.
    pub index: usize,
    /// Start of the line with its length.
    pub header_start: usize,
    /// Start of its bytes.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// Finds the argument in which the incomplete request at the front of `input` ends, among its first
/// few arguments. The decoder has already accepted these bytes; for bytes that it would not accept,
/// returns `None`.
#[must_use]
pub fn awaited_argument(input: &[u8]) -> Option<AwaitedArgument<'_>> {
    let (_count, mut at) = header(input, 0, b'*')?;
    let mut name = &input[..0];
    for index in 0..ARGUMENTS_MAX {
        let (len, start) = header(input, at, b'$')?;
        let end = start.checked_add(len)?.checked_add(2)?;
        if end > input.len() {
            return Some(AwaitedArgument {
                name,
                index,
                header_start: at,
                start,
                len,
            });
        }
        if index == 0 {
            name = &input[start..start + len];
        }
        at = end;
    }
    None
}

/// Returns the number in the line at `at` that begins with `marker`, and the end of the line.
fn header(input: &[u8], at: usize, marker: u8) -> Option<(usize, usize)> {
    let line = input.get(at..)?.strip_prefix(&[marker])?;
    let digits = line.iter().position(|&byte| byte == b'\r')?;
    let number = parse_i64(&line[..digits])?;
    let end = at + 1 + digits + 2;
    (end <= input.len()).then_some((usize::try_from(number).ok()?, end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_argument_that_is_coming_is_found() {
        let input = b"*3\r\n$3\r\nset\r\n$1\r\nk\r\n$100000\r\nabc";
        let found = awaited_argument(input).unwrap();
        assert_eq!(
            (found.name, found.index, found.len),
            (&b"set"[..], 2, 100_000)
        );
        assert_eq!(&input[found.header_start..], b"$100000\r\nabc");
        assert_eq!(&input[found.start..], b"abc");
        let name = awaited_argument(b"*1\r\n$9\r\nabc").unwrap();
        assert_eq!((name.name, name.index, name.start), (&b""[..], 0, 8));
    }

    #[test]
    fn nothing_is_found_in_what_is_no_such_request() {
        for input in [
            "",
            "*3",
            "*3\r\n",
            "PING\r\n",
            "*2\r\n$1\r\na\r\n$x\r\n",
            "*2\r\n$1\r\na\r\n$5\r",
            "*2\r\n$1\r\na\r\n:5\r\n",
            "*1\r\n$-5\r\n",
            "*2\r\n$18446744073709551615\r\na",
        ] {
            assert_eq!(awaited_argument(input.as_bytes()), None, "{input:?}");
        }
    }
}
