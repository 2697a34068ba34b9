//! A field: a number of 1 to 64 bits anywhere in a string.

use store::{Entry, Record, StoreError};

use super::{BITS_PER_BYTE, index};

/// The bytes that a field of 64 bits touches at most.
const WINDOW_BYTES: usize = 9;

/// Where a field is and how its bits are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Field {
    /// Whether its highest bit counts negative.
    pub(super) signed: bool,
    /// How many bits it has: 1 to 64 when signed, 1 to 63 when not.
    pub(super) bits: u32,
    /// Its first bit.
    pub(super) offset: u64,
}

/// What becomes of a number that a field cannot hold.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Overflow {
    /// Its lowest bits are kept.
    #[default]
    Wrap,
    /// The nearest number that fits is kept.
    Saturate,
    /// The field stays as it was.
    Fail,
}

impl Field {
    /// The type that a text such as `i16` or `u8` names, at bit 0.
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

    /// The field that is the whole byte at `index`.
    pub(super) fn byte(index: usize) -> Self {
        Self {
            signed: false,
            bits: u8::BITS,
            offset: u64::try_from(index).unwrap_or(u64::MAX / BITS_PER_BYTE) * BITS_PER_BYTE,
        }
    }

    /// Its type as [`Field::parse_type`] reads it.
    pub(super) fn type_text(self) -> String {
        format!("{}{}", if self.signed { 'i' } else { 'u' }, self.bits)
    }

    /// How many bytes a string must have to hold the whole field.
    pub(super) fn end_bytes(self) -> usize {
        index((self.offset + u64::from(self.bits)).div_ceil(BITS_PER_BYTE))
    }

    /// The number it holds; bits behind the end of the string are clear.
    pub(super) fn load(self, record: Option<&Record<'_>>) -> i64 {
        let raw = (self.window(record) >> self.shift()) & self.mask();
        self.number(i128::try_from(raw).unwrap_or_default())
    }

    /// Makes it hold the lowest bits of `number`.
    ///
    /// # Errors
    /// As [`Entry::write_at`].
    pub(super) fn save(self, entry: &mut Entry<'_>, number: i64) -> Result<(), StoreError> {
        let others = self.window(entry.record().as_ref()) & !(self.mask() << self.shift());
        let bits = u128::from(number.cast_unsigned()) & self.mask();
        let window = (others | bits << self.shift()).to_be_bytes();
        let touched = self.end_bytes() - self.first_byte();
        entry.write_at(self.first_byte(), &window[..touched])?;
        Ok(())
    }

    /// What the field holds when it is given `exact`; `None` when it stays as it was.
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

    /// The number that SET means by `operand`.
    ///
    /// For an unsigned field a negative operand is the number above 2^63 with the same bits. For a
    /// signed one, so is an operand whose distance to the highest number of the field leaves 64
    /// bits: Redis computes it that way, and saturates upwards.
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

    /// The number that the lowest bits of `wide` are.
    fn number(self, wide: i128) -> i64 {
        // Moved to the top of an i128 and back: fills the rest with copies of the sign or zeros.
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

    /// The bytes from the field's first one on, at the top of an integer.
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

    /// How far the field is from the low end of the window.
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
