//! A field: an integer of 1 to 64 bits at any position in a string.

use store::{Entry, Record, StoreError};

use super::{BITS_PER_BYTE, index};

/// Maximum number of bytes that a field of 64 bits touches.
const WINDOW_BYTES: usize = 9;

/// A field's position and type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Whether its highest bit is a sign.
    pub(super) signed: bool,
    /// Number of bits: 1 to 64 if signed, 1 to 63 if not.
    pub(super) bits: u32,
    /// Index of its first bit.
    pub(super) offset: u64,
}

/// What happens to a number that does not fit a field.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Keep its lowest bits.
    #[default]
    Wrap,
    /// Keep the nearest number that fits.
    Saturate,
    /// Leave the field unchanged.
    Fail,
}

impl Field {
    /// Parses a type such as `i16` or `u8`, as a field at bit 0.
    pub(super) fn parse_type(text: &[u8]) -> Option<Self> {
        let (signed, digits) = match text {
            [b'i', digits @ ..] => (true, digits),
            [b'u', digits @ ..] => (false, digits),
            _ => return None,
        };
        let bits = u32::try_from(base::number::parse_i64(digits)?).ok()?;
        let bits_max = if signed { 64 } else { 63 };
        (1..=bits_max).contains(&bits).then_some(Self {
            signed,
            bits,
            offset: 0,
        })
    }

    /// Returns the field that covers the byte at `index`.
    pub(super) fn byte(index: usize) -> Self {
        Self {
            signed: false,
            bits: u8::BITS,
            offset: u64::try_from(index).unwrap_or(u64::MAX / BITS_PER_BYTE) * BITS_PER_BYTE,
        }
    }

    /// Returns its type in the form that [`Field::parse_type`] reads.
    pub(super) fn type_text(self) -> String {
        format!("{}{}", if self.signed { 'i' } else { 'u' }, self.bits)
    }

    /// Returns the length in bytes that a string needs to hold the whole field.
    pub(super) fn end_bytes(self) -> usize {
        index((self.offset + u64::from(self.bits)).div_ceil(BITS_PER_BYTE))
    }

    /// Returns the field's number. Bits beyond the end of the string are clear.
    pub(super) fn load(self, record: Option<&Record<'_>>) -> i64 {
        let raw = (self.window(record) >> self.shift()) & self.mask();
        self.number(i128::try_from(raw).unwrap_or_default())
    }

    /// Stores the lowest bits of `number` in the field.
    ///
    /// # Errors
    /// The errors of [`Entry::write_at`].
    pub(super) fn save(self, entry: &mut Entry<'_>, number: i64) -> Result<(), StoreError> {
        let others = self.window(entry.record().as_ref()) & !(self.mask() << self.shift());
        let bits = u128::from(number.cast_unsigned()) & self.mask();
        let window = (others | bits << self.shift()).to_be_bytes();
        let touched = self.end_bytes() - self.first_byte();
        entry.write_at(self.first_byte(), &window[..touched])?;
        Ok(())
    }

    /// Returns the number to store for `exact`, or `None` if the field stays unchanged.
    pub(super) fn fit(self, exact: i128, overflow: Overflow) -> Option<i64> {
        let (least, most) = self.bounds();
        if (least..=most).contains(&exact) {
            return i64::try_from(exact).ok();
        }
        match overflow {
            Overflow::Wrap => Some(self.number(exact)),
            Overflow::Saturate => i64::try_from(exact.clamp(least, most)).ok(),
            Overflow::Fail => None,
        }
    }

    /// Returns the number that SET means by `operand`.
    ///
    /// For an unsigned field, a negative operand means the number above 2^63 with the same bits.
    /// For a signed field, the same applies to an operand whose distance from the field's maximum
    /// exceeds 64 bits: Redis computes it that way, and saturates upwards.
    pub(super) fn operand(self, operand: i64) -> i128 {
        let operand = i128::from(operand);
        let (_, most) = self.bounds();
        let turns_over = match self.signed {
            true => self.bits < i64::BITS && most - operand > i64::MAX.into(),
            false => operand < 0,
        };
        if turns_over {
            operand + (1 << 64)
        } else {
            operand
        }
    }

    fn bounds(self) -> (i128, i128) {
        if self.signed {
            let half = 1 << (self.bits - 1);
            (-half, half - 1)
        } else {
            (0, (1 << self.bits) - 1)
        }
    }

    /// Returns the number in the lowest bits of `wide`.
    fn number(self, wide: i128) -> i64 {
        // Shifting to the top of an i128 and back fills the rest with copies of the sign or zeros.
        let unused = i128::BITS - self.bits;
        let top = wide << unused;
        let number = if self.signed {
            top >> unused
        } else {
            (top.cast_unsigned() >> unused).cast_signed()
        };
        i64::try_from(number).unwrap_or_default()
    }

    fn first_byte(self) -> usize {
        index(self.offset / BITS_PER_BYTE)
    }

    /// Returns the bytes from the field's first one on, at the top of an integer.
    fn window(self, record: Option<&Record<'_>>) -> u128 {
        let mut window = [0; size_of::<u128>()];
        if let Some(record) = record {
            let left = record.len().saturating_sub(self.first_byte());
            if left > 0 {
                record.copy_to(self.first_byte(), &mut window[..left.min(WINDOW_BYTES)]);
            }
        }
        u128::from_be_bytes(window)
    }

    /// Returns the distance of the field from the low end of the window.
    fn shift(self) -> u32 {
        let inside = u32::try_from(self.offset % BITS_PER_BYTE).unwrap_or_default();
        u128::BITS - inside - self.bits
    }

    fn mask(self) -> u128 {
        (1 << self.bits) - 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn field(text: &str) -> Field {
        Field::parse_type(text.as_bytes()).expect("a type")
    }

    #[test]
    fn types_are_read_as_redis_reads_them() {
        assert_eq!(field("i64").bits, 64);
        assert!(!field("u63").signed);
        for text in ["", "u", "u0", "u64", "i65", "I8", "u08", "i-1", "f4", "u8 "] {
            assert_eq!(Field::parse_type(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn numbers_that_do_not_fit_wrap_saturate_or_fail() {
        use Overflow::{Fail, Saturate, Wrap};
        for (text, exact, wrapped, saturated) in [
            ("u2", 5, 1, 3),
            ("u2", -1, 3, 0),
            ("i8", 128, -128, 127),
            ("i8", -129, 127, -128),
            ("i64", i128::from(i64::MAX) + 1, i64::MIN, i64::MAX),
            ("u63", i128::from(u64::MAX), i64::MAX, i64::MAX),
            ("i1", 1, -1, 0),
        ] {
            assert_eq!(
                field(text).fit(exact, Wrap),
                Some(wrapped),
                "{text} {exact}"
            );
            assert_eq!(
                field(text).fit(exact, Saturate),
                Some(saturated),
                "{text} {exact}"
            );
            assert_eq!(field(text).fit(exact, Fail), None, "{text} {exact}");
        }
        assert_eq!(field("i8").fit(-128, Fail), Some(-128));
    }

    #[test]
    fn operands_far_below_a_field_count_as_above_it() {
        let saturated = |text: &str, operand| {
            let field = field(text);
            field.fit(field.operand(operand), Overflow::Saturate)
        };
        assert_eq!(saturated("u8", -1), Some(255));
        assert_eq!(saturated("i8", -129), Some(-128));
        assert_eq!(saturated("i8", i64::MIN + 128), Some(-128));
        assert_eq!(saturated("i8", i64::MIN + 127), Some(127));
        assert_eq!(saturated("i64", i64::MIN), Some(i64::MIN));
        assert_eq!(
            field("i8").fit(field("i8").operand(i64::MIN), Overflow::Wrap),
            Some(0)
        );
    }
}
