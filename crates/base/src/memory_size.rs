//! Amounts of memory as people write and read them: `100mb` in, `1.50M` out.

/// Returns the bytes that `text` names, as in `maxmemory 100mb`.
///
/// A number and one of the units (any case) `b`, `k` = 1000, `kb` = 1024, `m`, `mb`, `g`, `gb`; no
/// unit means bytes, and no digits mean zero. `None` if the unit is unknown, if there is a sign, a
/// space or a point, or if the amount exceeds 64 bits.
#[must_use]
pub fn parse(text: &[u8]) -> Option<u64> {
    let digits_end = text
        .iter()
        .position(|byte| !byte.is_ascii_digit())
        .unwrap_or(text.len());
    let (digits, unit) = text.split_at(digits_end);
    digits
        .iter()
        .try_fold(0_u64, |sum, &digit| {
            sum.checked_mul(10)?.checked_add(u64::from(digit - b'0'))
        })?
        .checked_mul(unit_bytes(unit)?)
}

/// Prints `bytes` in the largest binary unit that leaves one or more, as INFO's `..._human` fields
/// do.
///
/// ```
/// assert_eq!(base::memory_size::human(1_572_864), "1.50M");
/// assert_eq!(base::memory_size::human(1023), "1023B");
/// ```
#[must_use]
#[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
pub fn human(bytes: u64) -> String {
    const UNITS: [char; 5] = ['K', 'M', 'G', 'T', 'P'];
    let power = bytes.max(1).ilog2() / 10;
    // There is no unit for exabytes: they are shown in bytes.
    match UNITS.get((power as usize).wrapping_sub(1)) {
        Some(unit) => format!("{:.2}{unit}", bytes as f64 / (1_u64 << (10 * power)) as f64),
        None => format!("{bytes}B"),
    }
}

fn unit_bytes(unit: &[u8]) -> Option<u64> {
    Some(match unit.to_ascii_lowercase().as_slice() {
        b"" | b"b" => 1,
        b"k" => 1000,
        b"kb" => 1 << 10,
        b"m" => 1000 * 1000,
        b"mb" => 1 << 20,
        b"g" => 1000 * 1000 * 1000,
        b"gb" => 1 << 30,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units() {
        let cases: [(&[u8], Option<u64>); 20] = [
            (b"0", Some(0)),
            (b"10", Some(10)),
            (b"10b", Some(10)),
            (b"64k", Some(64_000)),
            (b"64kb", Some(65_536)),
            (b"64KB", Some(65_536)),
            (b"3m", Some(3_000_000)),
            (b"100mb", Some(104_857_600)),
            (b"1g", Some(1_000_000_000)),
            (b"1Gb", Some(1_073_741_824)),
            (b"18446744073709551615", Some(u64::MAX)),
            (b"18446744073709551616", None),
            (b"17179869184gb", None),
            (b"-1", None),
            (b"+1", None),
            (b"1 mb", None),
            (b"1tb", None),
            (b"mb", Some(0)),
            (b"", Some(0)),
            (b"1.5gb", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{}", text.escape_ascii());
        }
    }

    #[test]
    fn human_texts() {
        let cases = [
            (0, "0B"),
            (1023, "1023B"),
            (1024, "1.00K"),
            (863_496, "843.26K"),
            (1_572_864, "1.50M"),
            (1_073_741_823, "1024.00M"),
            (1 << 30, "1.00G"),
            (5 << 40, "5.00T"),
            (7 << 50, "7.00P"),
            (1 << 60, "1152921504606846976B"),
        ];
        for (bytes, expected) in cases {
            assert_eq!(human(bytes), expected);
        }
    }
}
