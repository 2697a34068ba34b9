//! Passwords: stored as SHA-256, compared in constant time, generated from the system's randomness.

use base::hex;
use base::random::fill_from_os;
use sha2::{Digest as _, Sha256};

/// SHA-256 of a password.
///
/// An attacker who copies the users learns only this digest. A fast hash is enough for passwords
/// that are long and random, as [`generate`] makes them, and it keeps clients from loading the
/// server with AUTH.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Digest([u8; 32]);

/// Number of characters of a digest in text form.
const HEX_LEN: usize = 64;

impl Digest {
    /// Returns the digest of a password.
    #[must_use]
    pub fn of(password: &[u8]) -> Self {
        Self(Sha256::digest(password).into())
    }

    /// Parses 64 lower-case hexadecimal digits.
    #[must_use]
    pub fn from_hex(text: &[u8]) -> Option<Self> {
        let digit = |byte: u8| match byte {
            b'0'..=b'9' => Some(byte - b'0'),
            b'a'..=b'f' => Some(byte - b'a' + 10),
            _ => None,
        };
        if text.len() != HEX_LEN {
            return None;
        }
        let mut bytes = [0; 32];
        let (pairs, _) = text.as_chunks::<2>();
        for (byte, [high, low]) in bytes.iter_mut().zip(pairs) {
            *byte = digit(*high)? << 4 | digit(*low)?;
        }
        Some(Self(bytes))
    }

    /// Returns 64 hexadecimal digits.
    #[must_use]
    pub fn to_hex(self) -> String {
        hex::text(&self.0)
    }

    /// Returns whether both digests are of the same password, in a time that does not depend on
    /// them.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        let pairs = self.0.iter().zip(&other.0);
        let differences = pairs.fold(0, |all, (one, other)| all | (one ^ other));
        std::hint::black_box(differences) == 0
    }
}

impl std::fmt::Debug for Digest {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("Digest(..)")
    }
}

/// Generates a password of `bits` random bits as hexadecimal digits, rounded up to whole digits.
#[must_use]
pub fn generate(bits: u16) -> String {
    let digits = usize::from(bits).div_ceil(4);
    let mut bytes = vec![0; digits.div_ceil(2)];
    fill_from_os(&mut bytes);
    let mut text = hex::text(&bytes);
    text.truncate(digits);
    text
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "tests")]
mod tests {
    use super::*;

    #[test]
    fn digests_are_written_and_read() {
        // FIPS 180-2, appendix B.1.
        let expected = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        let digest = Digest::of(b"abc");
        assert_eq!(digest.to_hex(), expected);
        assert!(
            Digest::from_hex(expected.as_bytes())
                .unwrap()
                .is_same(&digest)
        );
        assert!(!digest.is_same(&Digest::of(b"abd")));
        for wrong in [&expected[1..], &expected.replace('b', "B"), ""] {
            assert!(Digest::from_hex(wrong.as_bytes()).is_none(), "{wrong}");
        }
        assert_eq!(format!("{digest:?}"), "Digest(..)");
    }

    #[test]
    fn generated_passwords_have_the_length_asked_for() {
        for (bits, digits) in [(256, 64), (1, 1), (5, 2), (4, 1), (4096, 1024)] {
            assert_eq!(generate(bits).len(), digits);
        }
        assert_ne!(generate(256), generate(256));
    }
}
