//! The four forms of a key's expiry: EX, PX, EXAT and PXAT.

use base::number;
use engine::error::CommandError;

/// A deadline as given by a client, not yet parsed.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Expiry<'a> {
    form: ExpiryForm,
    text: &'a [u8],
}

/// The unit and origin of an expiry's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ExpiryForm {
    /// Seconds from now.
    Seconds,
    /// Milliseconds from now.
    Milliseconds,
    /// Seconds since 1970 UTC.
    UnixSeconds,
    /// Milliseconds since 1970 UTC.
    UnixMilliseconds,
}

impl ExpiryForm {
    /// Returns the form that an option word in capitals names.
    pub(crate) fn from_word(word: &[u8]) -> Option<Self> {
        Some(match word {
            b"EX" => Self::Seconds,
            b"PX" => Self::Milliseconds,
            b"EXAT" => Self::UnixSeconds,
            b"PXAT" => Self::UnixMilliseconds,
            _ => return None,
        })
    }

    /// Whether the number is an absolute time.
    fn is_absolute(self) -> bool {
        matches!(self, Self::UnixSeconds | Self::UnixMilliseconds)
    }

    /// Returns the unit in milliseconds.
    fn unit_ms(self) -> i64 {
        match self {
            Self::Seconds | Self::UnixSeconds => 1000,
            Self::Milliseconds | Self::UnixMilliseconds => 1,
        }
    }
}

impl<'a> Expiry<'a> {
    pub(crate) const fn new(form: ExpiryForm, text: &'a [u8]) -> Self {
        Self { form, text }
    }

    /// Whether the same form may be given again, as Redis allows.
    pub(crate) fn has_form(self, form: ExpiryForm) -> bool {
        self.form == form
    }

    /// Whether it is an absolute time, not relative to now.
    pub(crate) fn is_absolute(self) -> bool {
        self.form.is_absolute()
    }

    /// Returns the deadline in milliseconds since 1970 UTC. `command` (lower case) is for the error
    /// text.
    ///
    /// # Errors
    /// If the text is not a number, the number is not positive, or the deadline exceeds 64 bits.
    pub(crate) fn deadline_unix_ms(
        self,
        now_unix_ms: u64,
        command: &str,
    ) -> Result<u64, CommandError> {
        let count = number::parse_i64(self.text).ok_or(CommandError::NotInteger)?;
        self.add_up(count, now_unix_ms)
            .ok_or_else(|| invalid_expire_time(command))
    }

    fn add_up(self, count: i64, now_unix_ms: u64) -> Option<u64> {
        if count <= 0 {
            return None;
        }
        let given_ms = count.checked_mul(self.form.unit_ms())?;
        let base_ms = if self.form.is_absolute() {
            0
        } else {
            i64::try_from(now_unix_ms).ok()?
        };
        u64::try_from(given_ms.checked_add(base_ms)?).ok()
    }
}

fn invalid_expire_time(command: &str) -> CommandError {
    CommandError::Text(format!("ERR invalid expire time in '{command}' command").into())
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: u64 = 1_700_000_000_000;

    fn deadline(form: ExpiryForm, text: &str) -> Option<u64> {
        Expiry::new(form, text.as_bytes())
            .deadline_unix_ms(NOW, "set")
            .ok()
    }

    #[test]
    fn every_form_gives_its_point_in_time() {
        assert_eq!(deadline(ExpiryForm::Seconds, "10"), Some(NOW + 10_000));
        assert_eq!(deadline(ExpiryForm::Milliseconds, "10"), Some(NOW + 10));
        assert_eq!(deadline(ExpiryForm::UnixSeconds, "10"), Some(10_000));
        assert_eq!(deadline(ExpiryForm::UnixMilliseconds, "10"), Some(10));
    }

    #[test]
    fn what_leaves_64_bits_or_is_not_positive_is_refused() {
        for (form, text) in [
            (ExpiryForm::Seconds, "0"),
            (ExpiryForm::UnixMilliseconds, "-1"),
            (ExpiryForm::Seconds, "9223372036854775"),
            (ExpiryForm::UnixSeconds, "9223372036854776"),
            (ExpiryForm::Milliseconds, "9223372036854775807"),
        ] {
            assert_eq!(deadline(form, text), None, "{form:?} {text}");
        }
        assert_eq!(
            deadline(ExpiryForm::UnixMilliseconds, "9223372036854775807"),
            Some(i64::MAX.unsigned_abs())
        );
    }
}
