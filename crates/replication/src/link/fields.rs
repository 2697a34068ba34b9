//! Fields of message bodies: little-endian numbers, fixed arrays, and bytes after their length.

/// Reads fields from the front of a body. Every read is checked: a body that is too short gives
/// `None`.
pub(super) struct Fields<'b> {
    rest: &'b [u8],
}

impl<'b> Fields<'b> {
    pub(super) fn new(body: &'b [u8]) -> Self {
        Self { rest: body }
    }

    pub(super) fn array<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (array, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*array)
    }

    pub(super) fn u8(&mut self) -> Option<u8> {
        self.array::<1>().map(|[byte]| byte)
    }

    pub(super) fn u16(&mut self) -> Option<u16> {
        self.array().map(u16::from_le_bytes)
    }

    pub(super) fn u32(&mut self) -> Option<u32> {
        self.array().map(u32::from_le_bytes)
    }

    pub(super) fn u64(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    /// Reads 0 or 1.
    pub(super) fn flag(&mut self) -> Option<bool> {
        match self.u8()? {
            0 => Some(false),
            1 => Some(true),
            _ => None,
        }
    }

    /// Reads bytes after a u16 of their length.
    pub(super) fn short_bytes(&mut self, bytes_max: usize) -> Option<&'b [u8]> {
        let length = usize::from(self.u16()?);
        let (bytes, rest) = self.rest.split_at_checked(length)?;
        self.rest = rest;
        (length <= bytes_max).then_some(bytes)
    }

    /// Reads a list after a u16 of its length. Allocates at most what the body has bytes for.
    pub(super) fn list<T>(
        &mut self,
        count_max: usize,
        item: impl Fn(&mut Self) -> Option<T>,
    ) -> Option<Vec<T>> {
        let count = usize::from(self.u16()?);
        if count > count_max {
            return None;
        }
        (0..count).map(|_| item(self)).collect()
    }

    /// Reads all remaining bytes.
    pub(super) fn rest(&mut self) -> &'b [u8] {
        std::mem::take(&mut self.rest)
    }

    /// Returns `value`, or `None` if bytes remain.
    pub(super) fn end<T>(self, value: T) -> Option<T> {
        self.rest.is_empty().then_some(value)
    }
}

/// Appends fields to a body.
pub(super) trait Append {
    fn u8(&mut self, number: u8);
    fn u16(&mut self, number: u16);
    fn u32(&mut self, number: u32);
    fn u64(&mut self, number: u64);
    fn flag(&mut self, flag: bool);
    fn bytes(&mut self, bytes: &[u8]);
    /// Appends a length or count that the format bounds below 2^16.
    fn length(&mut self, length: usize);
}

impl Append for Vec<u8> {
    fn u8(&mut self, number: u8) {
        self.push(number);
    }

    fn u16(&mut self, number: u16) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn u32(&mut self, number: u32) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn u64(&mut self, number: u64) {
        self.extend_from_slice(&number.to_le_bytes());
    }

    fn flag(&mut self, flag: bool) {
        self.push(u8::from(flag));
    }

    fn bytes(&mut self, bytes: &[u8]) {
        self.extend_from_slice(bytes);
    }

    fn length(&mut self, length: usize) {
        debug_assert!(
            length <= usize::from(u16::MAX),
            "{length} things in a short list"
        );
        self.u16(u16::try_from(length).unwrap_or(u16::MAX));
    }
}
