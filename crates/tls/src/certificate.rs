//! The fields of a certificate (RFC 5280) that operators ask for and that name users.

use reactor::PeerNames;

use crate::der::{Der, tag};

const COMMON_NAME: &[u8] = &[0x55, 0x04, 0x03];
const ALTERNATIVE_NAMES: &[u8] = &[0x55, 0x1d, 0x11];
/// The tag number of a URI among the alternative names.
const URI: u8 = 6;
/// Maximum number of URIs of a certificate that are kept.
const URIS_MAX: usize = 16;

/// The fields of a certificate that INFO shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Certificate {
    /// The serial number, in hexadecimal digits.
    pub serial: String,
    /// The second at which the certificate expires.
    pub ends_unix: i64,
}

/// Describes a certificate in DER, or returns `None` if `bytes` are anything else.
#[must_use]
pub fn describe(bytes: &[u8]) -> Option<Certificate> {
    let parts = Parts::of(bytes)?;
    let mut validity = parts.validity;
    validity.next()?;
    let (tag, end) = validity.next()?;
    let digits = parts.serial.iter().skip_while(|byte| **byte == 0);
    Some(Certificate {
        serial: digits.map(|byte| format!("{byte:02X}")).collect(),
        ends_unix: unix_time(tag, end)?,
    })
}

/// Returns the names that a certificate in DER gives its owner. Names that cannot be the name of a
/// user are left out.
pub(crate) fn names(bytes: &[u8]) -> Option<PeerNames> {
    let parts = Parts::of(bytes)?;
    Some(PeerNames {
        common_name: common_name(parts.subject),
        uris: uris(parts.rest).unwrap_or_default(),
    })
}

struct Parts<'a> {
    serial: &'a [u8],
    validity: Der<'a>,
    subject: Der<'a>,
    rest: Der<'a>,
}

impl<'a> Parts<'a> {
    fn of(bytes: &'a [u8]) -> Option<Self> {
        let mut whole = Der::new(bytes).open(tag::SEQUENCE)?;
        let mut signed = whole.open(tag::SEQUENCE)?;
        let _version = signed.take(tag::part(0));
        let serial = signed.take(tag::INTEGER)?;
        let _signature = signed.take(tag::SEQUENCE)?;
        let _issuer = signed.take(tag::SEQUENCE)?;
        let validity = signed.open(tag::SEQUENCE)?;
        let subject = signed.open(tag::SEQUENCE)?;
        let _key = signed.take(tag::SEQUENCE)?;
        Some(Self {
            serial,
            validity,
            subject,
            rest: signed,
        })
    }
}

fn common_name(mut subject: Der<'_>) -> Option<String> {
    while let Some(mut attributes) = subject.open(tag::SET) {
        while let Some(mut attribute) = attributes.open(tag::SEQUENCE) {
            if attribute.take(tag::OBJECT)? == COMMON_NAME {
                let (tag, text) = attribute.next()?;
                let is_text = [tag::UTF8_TEXT, tag::PRINTABLE_TEXT, tag::IA5_TEXT].contains(&tag);
                return is_text.then(|| name(text)).flatten();
            }
        }
    }
    None
}

fn uris(mut rest: Der<'_>) -> Option<Vec<String>> {
    while let Some((found, content)) = rest.next() {
        if found != tag::part(3) {
            continue;
        }
        let mut extensions = Der::new(content).open(tag::SEQUENCE)?;
        while let Some(mut extension) = extensions.open(tag::SEQUENCE) {
            if extension.take(tag::OBJECT)? != ALTERNATIVE_NAMES {
                continue;
            }
            let (mut found, mut content) = extension.next()?;
            if found != tag::OCTET_STRING {
                // The flag that says whether the extension is critical comes first.
                (found, content) = extension.next()?;
            }
            if found != tag::OCTET_STRING {
                return None;
            }
            let mut all = Der::new(content).open(tag::SEQUENCE)?;
            let next = || all.next();
            let uris = std::iter::from_fn(next).filter(|(found, _)| *found == tag::value(URI));
            return Some(
                uris.filter_map(|(_, text)| name(text))
                    .take(URIS_MAX)
                    .collect(),
            );
        }
    }
    None
}

/// Returns a text if it can be the name of a user.
fn name(text: &[u8]) -> Option<String> {
    let text = std::str::from_utf8(text).ok()?;
    let is_plain = !text.is_empty() && !text.chars().any(|one| one.is_control() || one == ' ');
    is_plain.then(|| text.to_owned())
}

/// Returns the Unix second that a time in a certificate denotes.
fn unix_time(tag: u8, text: &[u8]) -> Option<i64> {
    let digits = text.strip_suffix(b"Z")?;
    let numbers: Vec<i64> = digits
        .chunks(2)
        .map(|pair| match pair {
            [tens @ b'0'..=b'9', ones @ b'0'..=b'9'] => {
                Some(i64::from(tens - b'0') * 10 + i64::from(ones - b'0'))
            }
            _ => None,
        })
        .collect::<Option<_>>()?;
    let (year, rest) = match (tag, numbers.as_slice()) {
        (tag::UTC_TIME, [year, rest @ ..]) if *year >= 50 => (1900 + year, rest),
        (tag::UTC_TIME, [year, rest @ ..]) => (2000 + year, rest),
        (tag::GENERAL_TIME, [century, year, rest @ ..]) => (century * 100 + year, rest),
        _ => return None,
    };
    let [
        month @ 1..=12,
        day @ 1..=31,
        hour @ 0..=23,
        minute @ 0..=59,
        second @ 0..=60,
    ] = rest
    else {
        return None;
    };
    let days = days_before(year, *month) + day - 1;
    Some(((days * 24 + hour) * 60 + minute) * 60 + second)
}

/// Returns the days from 1970 to the beginning of a month of the Gregorian calendar.
fn days_before(year: i64, month: i64) -> i64 {
    const BEFORE: [i64; 12] = [0, 31, 59, 90, 120, 151, 181, 212, 243, 273, 304, 334];
    let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
    let leap_days = |year: i64| year / 4 - year / 100 + year / 400;
    let month = usize::try_from(month - 1).unwrap_or_default();
    let whole_years = (year - 1970) * 365 + leap_days(year - 1) - leap_days(1969);
    whole_years + BEFORE[month] + i64::from(is_leap && month > 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates_are_seconds() {
        for (tag, text, expected) in [
            (tag::UTC_TIME, "700101000000Z", Some(0)),
            (tag::UTC_TIME, "260301000000Z", Some(1_772_323_200)),
            (tag::UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (tag::GENERAL_TIME, "20240229120000Z", Some(1_709_208_000)),
            (tag::GENERAL_TIME, "99991231235959Z", Some(253_402_300_799)),
            (tag::GENERAL_TIME, "20241329120000Z", None),
            (tag::GENERAL_TIME, "2024022912000Z", None),
            (tag::UTC_TIME, "", None),
        ] {
            assert_eq!(unix_time(tag, text.as_bytes()), expected, "{text}");
        }
    }

    #[test]
    fn names_that_no_user_can_have_are_none() {
        assert_eq!(name(b"alice"), Some("alice".to_owned()));
        for text in [&b""[..], b"two words", b"nul\0", b"\xff"] {
            assert_eq!(name(text), None);
        }
    }
}
