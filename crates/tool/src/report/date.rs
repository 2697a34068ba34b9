//! Calendar dates.

/// Returns the UTC date of a moment, as `2026-11-21`.
pub(super) fn utc_date(unix_ms: u64) -> String {
    let (year, month, day) = civil(unix_ms / 86_400_000);
    format!("{year:04}-{month:02}-{day:02}")
}

/// Converts days since 1970 to year, month and day.
///
/// Years are counted from March, so that the leap day is the last of a year and the lengths of
/// months follow a pattern of five (31 30 31 30 31); eras are the 400 years after which the
/// calendar repeats.
fn civil(days: u64) -> (u64, u64, u64) {
    // There are 719,468 days between the first of March of the year 0 and 1970.
    let days = days + 719_468;
    let (era, day_of_era) = (days / 146_097, days % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    (era * 400 + year_of_era + u64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_those_of_the_calendar() {
        for (unix_s, date) in [
            (0, "1970-01-01"),
            (951_782_400, "2000-02-29"),
            (1_709_164_799, "2024-02-28"),
            (1_709_251_200, "2024-03-01"),
            (1_798_675_200, "2026-12-31"),
            (4_107_542_400, "2100-03-01"),
        ] {
            assert_eq!(utc_date(unix_s * 1_000), date);
        }
    }
}
