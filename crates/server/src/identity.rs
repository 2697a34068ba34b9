//! Who this server says it is: versions, build, and the identity of one run.

use std::fmt;
use std::fs::File;
use std::io::{self, Read};

/// Name in HELLO and INFO.
pub const SERVER_NAME: &str = "iolite";
/// Version of this server.
pub const IOLITE_VERSION: &str = env!("CARGO_PKG_VERSION");
/// Version of Redis whose commands this server answers; clients switch features on it.
pub const REDIS_VERSION: &str = "7.2.4";
/// Commit and machine of the build when whoever built it said so, else the version.
pub const BUILD: &str = match option_env!("IOLITE_BUILD") {
    Some(build) => build,
    None => IOLITE_VERSION,
};

/// Sixteen hex digits that tell builds apart (`redis_build_id`).
pub fn build_id() -> String {
    let hash = BUILD.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    format!("{hash:016x}")
}

/// Identity of one run of the server: 40 hex digits, new at every start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunId(String);

impl RunId {
    /// Draws a new identity from the system's randomness.
    ///
    /// # Errors
    /// The system has no randomness to give.
    pub fn draw() -> io::Result<Self> {
        let mut bytes = [0_u8; 20];
        File::open("/dev/urandom")?.read_exact(&mut bytes)?;
        Ok(Self(
            bytes.iter().map(|byte| format!("{byte:02x}")).collect(),
        ))
    }

    /// The 40 digits.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RunId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_ids_are_forty_hex_digits_and_differ() {
        let (one, other) = (RunId::draw().unwrap(), RunId::draw().unwrap());
        assert_eq!(one.as_str().len(), 40);
        assert!(one.as_str().bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, other);
    }

    #[test]
    fn the_build_id_has_sixteen_digits() {
        assert_eq!(build_id().len(), 16);
    }
}
