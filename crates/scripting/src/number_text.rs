//! Numbers as text: the `%.14g` of Lua's `tostring`, and the text of a number in a command's
//! arguments.

use base::float::FloatText;
use base::number::IntegerText;

/// Appends `number` to `out` as C's `%.<digits>g` writes it.
pub(crate) fn general(out: &mut Vec<u8>, number: f64, digits: usize) {
    if number.is_nan() {
        out.extend_from_slice(if number.is_sign_negative() {
            b"-nan"
        } else {
            b"nan"
        });
        return;
    }
    if number.is_infinite() {
        out.extend_from_slice(if number < 0.0 { b"-inf" } else { b"inf" });
        return;
    }
    let digits = digits.max(1);
    let scientific = format!("{number:.*e}", digits - 1);
    let Some((mantissa, exponent)) = scientific.split_once('e') else {
        return;
    };
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let places = i32::try_from(digits).unwrap_or(i32::MAX);
    if exponent < -4 || exponent >= places {
        out.extend_from_slice(trimmed(mantissa).as_bytes());
        let sign = if exponent < 0 { '-' } else { '+' };
        out.extend_from_slice(format!("e{sign}{:02}", exponent.unsigned_abs()).as_bytes());
    } else {
        let after_point = usize::try_from(places - 1 - exponent).unwrap_or(0);
        out.extend_from_slice(trimmed(&format!("{number:.after_point$}")).as_bytes());
    }
}

/// Appends a number for a command's argument: integers with all their digits, others with
/// seventeen, as `%.17g`.
pub(crate) fn argument(out: &mut Vec<u8>, number: f64) {
    match whole(number) {
        Some(whole) => out.extend_from_slice(IntegerText::new(whole).as_bytes()),
        None => out.extend_from_slice(FloatText::seventeen(number).as_bytes()),
    }
}

/// Returns `number` as an integer, if it is one and `%.17g` would show all its digits.
pub(crate) fn whole(number: f64) -> Option<i64> {
    const EXACT_BELOW: f64 = 9_007_199_254_740_992.0;
    if number.fract() != 0.0
        || number.abs() >= EXACT_BELOW
        || (number == 0.0 && number.is_sign_negative())
    {
        return None;
    }
    Some(truncated(number))
}

/// Returns the number without its fraction, as C converts it on common machines: numbers that do
/// not fit in 64 bits, and NaN, become the smallest integer.
pub(crate) fn truncated(number: f64) -> i64 {
    const BEYOND: f64 = 9_223_372_036_854_775_808.0;
    if (-BEYOND..BEYOND).contains(&number) {
        #[allow(
            clippy::cast_possible_truncation,
            reason = "inside the range, just checked"
        )]
        {
            number as i64
        }
    } else {
        i64::MIN
    }
}

fn trimmed(text: &str) -> &str {
    if text.contains('.') {
        text.trim_end_matches('0').trim_end_matches('.')
    } else {
        text
    }
}
