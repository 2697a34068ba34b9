//! The data block behind the line of a request that stores.

/// What follows a line.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Data<'a> {
    /// The block, and how many bytes it took with its end.
    Whole(&'a [u8], usize),
    /// It took so many bytes and does not end as it should.
    Bad(usize),
    /// So many bytes are needed.
    Partial(usize),
}

/// A block of `len` bytes and its line end.
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
