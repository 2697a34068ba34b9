//! Numbers for people: rates, durations, sizes.

/// Returns the whole part of a number; 0 for negative numbers and NaN.
#[must_use]
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "the conversion saturates, and its ends are what the callers want"
)]
pub(crate) fn whole(number: f64) -> u64 {
    number as u64
}

/// Formats digits in groups of three: `1,234,567`.
#[must_use]
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// Formats a count with three digits and a unit: `1.23 M`, `45.6 K`, `789`.
#[must_use]
pub(crate) fn short_count(number: f64) -> String {
    let (scaled, unit) = match number.abs() {
        size if size >= 1e9 => (number / 1e9, " G"),
        size if size >= 1e6 => (number / 1e6, " M"),
        size if size >= 1e4 => (number / 1e3, " K"),
        _ => (number, ""),
    };
    format!("{}{unit}", three_digits(scaled))
}

/// Formats a duration with three digits and a unit: `850 ns`, `12.3 µs`, `4.56 ms`, `7.89 s`.
#[must_use]
pub(crate) fn short_duration(ns: f64) -> String {
    let (scaled, unit) = match ns {
        ns if ns >= 1e9 => (ns / 1e9, "s"),
        ns if ns >= 1e6 => (ns / 1e6, "ms"),
        ns if ns >= 1e3 => (ns / 1e3, "\u{b5}s"),
        ns => (ns, "ns"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// Formats a size with three digits and a unit: `64 B`, `2 KiB`, `1.5 GiB`.
#[must_use]
pub(crate) fn short_bytes(bytes: u64) -> String {
    let size = bytes as f64;
    let (scaled, unit) = match bytes {
        0..1024 => return format!("{bytes} B"),
        1024..0x10_0000 => (size / 1024.0, "KiB"),
        0x10_0000..0x4000_0000 => (size / 1_048_576.0, "MiB"),
        _ => (size / 1_073_741_824.0, "GiB"),
    };
    format!("{} {unit}", three_digits(scaled))
}

/// Formats three significant digits, without trailing zeros of a fraction.
#[must_use]
pub(crate) fn three_digits(number: f64) -> String {
    let text = match number.abs() {
        size if size >= 99.95 => return format!("{number:.0}"),
        size if size >= 9.995 => format!("{number:.1}"),
        _ => format!("{number:.2}"),
    };
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_three_digits_and_a_unit() {
        assert_eq!(grouped(1_234_567), "1,234,567");
        assert_eq!(grouped(12), "12");
        assert_eq!(short_count(1_234_567.0), "1.23 M");
        assert_eq!(short_count(9_876.0), "9876");
        assert_eq!(short_duration(850.0), "850 ns");
        assert_eq!(short_duration(12_340.0), "12.3 \u{b5}s");
        assert_eq!(short_duration(2_000_000.0), "2 ms");
        assert_eq!(short_bytes(64), "64 B");
        assert_eq!(short_bytes(2_048), "2 KiB");
        assert_eq!(short_bytes(1_610_612_736), "1.5 GiB");
        assert_eq!(three_digits(99.96), "100");
        assert_eq!(whole(-1.0), 0);
    }
}
