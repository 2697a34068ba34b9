//! Identity of this server: names, versions, build.

pub use engine::identity::{IOLITE_VERSION, REDIS_VERSION, redis_version, say_redis_version};

/// Name in HELLO and INFO.
pub const SERVER_NAME: &str = "iolite";
/// Description of the build (`IOLITE_BUILD` in its environment), or the version.
const BUILD: &str = match option_env!("IOLITE_BUILD") {
    Some(build) => build,
    None => IOLITE_VERSION,
};

/// Returns sixteen hex digits that identify the build (`redis_build_id`).
pub fn build_id() -> String {
    format!("{:016x}", fnv1a(BUILD.as_bytes()))
}

/// Returns the one line of `--version`, with its newline. Tools look for `v=` and a Redis version.
pub fn version_line() -> String {
    let (bits, build) = (usize::BITS, build_id());
    format!("Iolite server v={REDIS_VERSION} iolite={IOLITE_VERSION} bits={bits} build={build}\n")
}

fn fnv1a(bytes: &[u8]) -> u64 {
    bytes.iter().fold(0xcbf2_9ce4_8422_2325, |hash, &byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_build_id_is_a_digest_in_sixteen_digits() {
        assert_eq!(fnv1a(b"a"), 0xaf63_dc4c_8601_ec8c);
        assert_eq!(build_id().len(), 16);
    }

    #[test]
    fn the_version_line_shows_both_versions() {
        let line = version_line();
        assert!(line.starts_with("Iolite server v=7.4.2 iolite="), "{line}");
    }
}
