//! `--recover-to`: the point up to which data is loaded.
//!
//! It is not a directive, because it is meant for one start only: after that start the point is in
//! the past.

use std::ffi::OsString;

use super::StartError;
use persistence::recovery::Target;

const NAME: &str = "--recover-to";

/// Removes the option from the others.
pub(super) fn take(options: &[OsString]) -> Result<(Vec<OsString>, Target), StartError> {
    let mut options = options.to_vec();
    let Some(at) = options.iter().position(|option| option == NAME) else {
        return Ok((options, Target::End));
    };
    let text = options.get(at + 1).and_then(|value| value.to_str());
    let target = text.and_then(parse).ok_or_else(|| {
        StartError(format!(
            "{NAME} needs a sequence of the log, a time as 2026-11-21T18:30:00Z, or one as @1795285800.250 \
             (seconds since 1970)"
        ))
    })?;
    options.drain(at..at + 2);
    Ok((options, target))
}

fn parse(text: &str) -> Option<Target> {
    if let Some(seconds) = text.strip_prefix('@') {
        return milliseconds(seconds).map(Target::Time);
    }
    if !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit()) {
        return text.parse().ok().map(Target::Sequence);
    }
    time(text).map(Target::Time)
}

/// Parses seconds with up to three optional decimals.
fn milliseconds(text: &str) -> Option<u64> {
    let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
    let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !is_number(whole) || !is_number(decimals) || decimals.len() > 3 {
        return None;
    }
    let decimals: u64 = format!("{decimals:0<3}").parse().ok()?;
    let whole: u64 = whole.parse().ok()?;
    whole.checked_mul(1_000)?.checked_add(decimals)
}

/// Parses a UTC time of RFC 3339, in milliseconds since 1970.
fn time(text: &str) -> Option<u64> {
    let text = text.strip_suffix(['Z', 'z'])?;
    let (date, clock) = text.split_once(['T', 't', ' '])?;
    let [year, month, day] = numbers(date, '-', [4, 2, 2])?;
    let (clock, decimals) = clock.split_once('.').unwrap_or((clock, "0"));
    let [hour, minute, second] = numbers(clock, ':', [2, 2, 2])?;
    let is_time = hour < 24 && minute < 60 && second < 60;
    let is_date =
        year >= 1970 && (1..=12).contains(&month) && (1..=days_of(year, month)).contains(&day);
    if !is_time || !is_date {
        return None;
    }
    let years: u64 = (1970..year)
        .map(|year| 365 + u64::from(is_leap(year)))
        .sum();
    let months: u64 = (1..month).map(|month| days_of(year, month)).sum();
    let days = years + months + day - 1;
    let seconds = ((days * 24 + hour) * 60 + minute) * 60 + second;
    milliseconds(&format!("{seconds}.{decimals}"))
}

/// Parses numbers with fixed counts of digits.
fn numbers(text: &str, separator: char, digits: [usize; 3]) -> Option<[u64; 3]> {
    let parts: Vec<&str> = text.split(separator).collect();
    let parts: [&str; 3] = parts.try_into().ok()?;
    let mut numbers = [0; 3];
    for ((number, part), digits) in numbers.iter_mut().zip(parts).zip(digits) {
        let is_number = part.len() == digits && part.bytes().all(|byte| byte.is_ascii_digit());
        *number = part.parse().ok().filter(|_| is_number)?;
    }
    Some(numbers)
}

fn is_leap(year: u64) -> bool {
    year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400))
}

fn days_of(year: u64, month: u64) -> u64 {
    match month {
        2 => 28 + u64::from(is_leap(year)),
        4 | 6 | 9 | 11 => 30,
        _ => 31,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_point_is_a_sequence_or_a_time() {
        for (text, target) in [
            ("0", Some(Target::Sequence(0))),
            ("18446744073709551615", Some(Target::Sequence(u64::MAX))),
            ("18446744073709551616", None),
            ("-1", None),
            ("", None),
            ("@0", Some(Target::Time(0))),
            ("@1795285800.25", Some(Target::Time(1_795_285_800_250))),
            ("@1.0005", None),
            ("@", None),
            ("1970-01-01T00:00:00Z", Some(Target::Time(0))),
            (
                "2026-11-21T18:30:00Z",
                Some(Target::Time(1_795_285_800_000)),
            ),
            (
                "2024-02-29t23:59:59.999z",
                Some(Target::Time(1_709_251_199_999)),
            ),
            ("2026-02-29T00:00:00Z", None),
            ("2026-11-21T18:30:00", None),
            ("2026-11-21T24:00:00Z", None),
            ("2026-13-01T00:00:00Z", None),
            ("26-11-21T00:00:00Z", None),
        ] {
            assert_eq!(parse(text), target, "{text:?}");
        }
    }

    #[test]
    fn it_may_stand_anywhere_and_needs_a_value() {
        let words =
            |words: &[&str]| -> Vec<OsString> { words.iter().map(OsString::from).collect() };
        let (rest, target) = take(&words(&["a.conf", "--recover-to", "7", "--port", "1"])).unwrap();
        assert_eq!(rest, words(&["a.conf", "--port", "1"]));
        assert_eq!(target, Target::Sequence(7));
        assert_eq!(take(&words(&["--port", "1"])).unwrap().1, Target::End);
        for wrong in [&["--recover-to"][..], &["--recover-to", "yesterday"]] {
            let error = take(&words(wrong)).unwrap_err().to_string();
            assert!(error.starts_with("--recover-to needs"), "{error}");
        }
    }
}
