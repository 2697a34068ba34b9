//! The data block after the line of a storing request.

/// The data after a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Data<'a> {
    /// The block, and the number of bytes that it took with its end.
    Whole(&'a [u8], usize),
    /// The block took this many bytes and its end is wrong.
    Bad(usize),
    /// This many bytes are needed.
    Partial(usize),
}

/// Returns a block of `len` bytes and its line end.
pub(crate) fn data(input: &[u8], len: usize) -> Data<'_> {
    let Some(whole) = len.checked_add(2) else {
        return Data::Bad(input.len());
    };
    if input.len() < whole {
        return Data::Partial(whole);
    }
    match input[..whole].strip_suffix(b"\r\n") {
        Some(block) => Data::Whole(block, whole),
        None => Data::Bad(whole),
    }
}
