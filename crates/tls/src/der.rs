//! A reader of DER, the encoding of certificates and keys. It supports what this room needs: tags
//! of one byte and lengths of up to four.

/// Tags of X.690.
pub(crate) mod tag {
    pub(crate) const INTEGER: u8 = 0x02;
    pub(crate) const OCTET_STRING: u8 = 0x04;
    pub(crate) const OBJECT: u8 = 0x06;
    pub(crate) const UTF8_TEXT: u8 = 0x0c;
    pub(crate) const PRINTABLE_TEXT: u8 = 0x13;
    pub(crate) const IA5_TEXT: u8 = 0x16;
    pub(crate) const UTC_TIME: u8 = 0x17;
    pub(crate) const GENERAL_TIME: u8 = 0x18;
    pub(crate) const SEQUENCE: u8 = 0x30;
    pub(crate) const SET: u8 = 0x31;

    /// Returns the tag of a constructed value with the context-specific number `number`.
    pub(crate) const fn part(number: u8) -> u8 {
        0xa0 | number
    }

    /// Returns the tag of a primitive value with the context-specific number `number`.
    pub(crate) const fn value(number: u8) -> u8 {
        0x80 | number
    }
}

/// The bytes that remain to be read.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Der<'a>(&'a [u8]);

impl<'a> Der<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        Self(bytes)
    }

    #[cfg(test)]
    pub(crate) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the next value with its tag.
    pub(crate) fn next(&mut self) -> Option<(u8, &'a [u8])> {
        let (&tag, rest) = self.0.split_first()?;
        let (&first, rest) = rest.split_first()?;
        let (length, rest) = if first < 0x80 {
            (usize::from(first), rest)
        } else {
            let digits = usize::from(first & 0x7f);
            if digits == 0 || digits > 4 {
                return None;
            }
            let (digits, rest) = rest.split_at_checked(digits)?;
            let add = |length: usize, digit: &u8| length << 8 | usize::from(*digit);
            (digits.iter().fold(0, add), rest)
        };
        let (content, rest) = rest.split_at_checked(length)?;
        self.0 = rest;
        Some((tag, content))
    }

    /// Returns the next value if it has this tag.
    pub(crate) fn take(&mut self, tag: u8) -> Option<&'a [u8]> {
        let mut ahead = *self;
        let (found, content) = ahead.next()?;
        if found != tag {
            return None;
        }
        *self = ahead;
        Some(content)
    }

    /// Returns a reader of the next value's content if the value has this tag.
    pub(crate) fn open(&mut self, tag: u8) -> Option<Self> {
        self.take(tag).map(Self)
    }

    /// Returns the next value as a number that is not negative.
    pub(crate) fn number(&mut self) -> Option<u64> {
        let digits = self.take(tag::INTEGER)?;
        let is_small = digits.len() <= 8 && digits.first().is_some_and(|first| *first < 0x80);
        let add = |number: u64, digit: &u8| number << 8 | u64::from(*digit);
        is_small.then(|| digits.iter().fold(0, add))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_read_one_after_the_other() {
        let mut der = Der::new(&[0x30, 0x03, 0x02, 0x01, 0x05, 0x04, 0x81, 0x01, 0xff]);
        let mut inner = der.open(tag::SEQUENCE).unwrap();
        assert_eq!(inner.number(), Some(5));
        assert!(inner.is_empty());
        assert_eq!(der.take(tag::OBJECT), None);
        assert_eq!(der.take(tag::OCTET_STRING), Some(&[0xff][..]));
        assert!(der.is_empty() && der.next().is_none());
    }

    #[test]
    fn lengths_that_lie_are_the_end() {
        for bytes in [
            &[0x30][..],
            &[0x30, 0x80],
            &[0x30, 0x85, 0, 0, 0, 0, 1, 0],
            &[0x30, 0x84, 0xff, 0xff, 0xff, 0xff],
            &[0x30, 0x02, 0x00],
        ] {
            assert!(Der::new(bytes).next().is_none(), "{bytes:x?}");
        }
    }
}
