//! Versions and ciphers, as Redis' directives name them.
//!
//! Only sound ones exist: TLS 1.2 with forward secrecy and authenticated encryption, and TLS 1.3. A
//! list in OpenSSL's language that names one of these works. The ciphers that such a list excludes
//! were never offered.

use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::{CipherSuite, SupportedCipherSuite, SupportedProtocolVersion, version};

use crate::error::SetupError;

/// OpenSSL's names for suites of TLS 1.2.
const SUITES_OF_1_2: [(&str, CipherSuite); 6] = [
    (
        "ECDHE-ECDSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-ECDSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-ECDSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
    (
        "ECDHE-RSA-AES256-GCM-SHA384",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
    ),
    (
        "ECDHE-RSA-AES128-GCM-SHA256",
        CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
    ),
    (
        "ECDHE-RSA-CHACHA20-POLY1305",
        CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
    ),
];

const SUITES_OF_1_3: [(&str, CipherSuite); 3] = [
    (
        "TLS_AES_256_GCM_SHA384",
        CipherSuite::TLS13_AES_256_GCM_SHA384,
    ),
    (
        "TLS_AES_128_GCM_SHA256",
        CipherSuite::TLS13_AES_128_GCM_SHA256,
    ),
    (
        "TLS_CHACHA20_POLY1305_SHA256",
        CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
    ),
];

/// OpenSSL's words that stand for many suites.
const ALL_WORDS: [&str; 4] = ["DEFAULT", "ALL", "HIGH", "COMPLEMENTOFDEFAULT"];

/// Returns the versions that `text` names, separated by spaces. An empty text means all.
pub(crate) fn versions(text: &str) -> Result<Vec<&'static SupportedProtocolVersion>, SetupError> {
    let mut all = Vec::new();
    for word in text.split_whitespace() {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => all.push(&version::TLS12),
            "tlsv1.3" => all.push(&version::TLS13),
            "tlsv1" | "tlsv1.1" => {}
            _ => {
                let what = "Invalid tls-protocols specified. Use a combination of 'TLSv1.2' and 'TLSv1.3'.";
                return Err(SetupError::Options(what.to_owned()));
            }
        }
    }
    match (all.is_empty(), text.trim().is_empty()) {
        (true, true) => Ok(rustls::ALL_VERSIONS.to_vec()),
        (true, false) => Err(SetupError::Options(
            "tls-protocols names only versions that are not safe; there are 'TLSv1.2' and 'TLSv1.3'."
                .to_owned(),
        )),
        _ => Ok(all),
    }
}

/// Returns the crypto provider with the suites of TLS 1.2 and of TLS 1.3 that two texts name, in
/// their order. An empty text means all.
pub(crate) fn provider(of_1_2: &str, of_1_3: &str) -> Result<CryptoProvider, SetupError> {
    let mut provider = aws_lc_rs::default_provider();
    let new = chosen("tls-ciphersuites", of_1_3, &SUITES_OF_1_3)?;
    let old = chosen("tls-ciphers", of_1_2, &SUITES_OF_1_2)?;
    let pick = |wanted: &CipherSuite| {
        let mut all = provider.cipher_suites.iter();
        all.find(|suite| suite.suite() == *wanted).copied()
    };
    let suites: Vec<SupportedCipherSuite> = new.iter().chain(&old).filter_map(pick).collect();
    provider.cipher_suites = suites;
    Ok(provider)
}

fn chosen(
    directive: &str,
    text: &str,
    known: &[(&str, CipherSuite)],
) -> Result<Vec<CipherSuite>, SetupError> {
    if text.is_empty() {
        return Ok(known.iter().map(|(_, suite)| *suite).collect());
    }
    let mut suites: Vec<CipherSuite> = Vec::new();
    for word in text.split([':', ',', ' ']).filter(|word| !word.is_empty()) {
        let find = |name: &str| known.iter().find(|(one, _)| one.eq_ignore_ascii_case(name));
        if let Some(name) = word.strip_prefix(['!', '-']) {
            if let Some((_, unwanted)) = find(name) {
                suites.retain(|suite| suite != unwanted);
            }
        } else if ALL_WORDS.contains(&word) {
            for (_, suite) in known {
                if !suites.contains(suite) {
                    suites.push(*suite);
                }
            }
        } else if let Some((_, suite)) = find(word)
            && !suites.contains(suite)
        {
            suites.push(*suite);
        }
    }
    if suites.is_empty() {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let what = format!(
            "{directive} names no cipher that is there; there are {}",
            names.join(", ")
        );
        return Err(SetupError::Options(what));
    }
    Ok(suites)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(of_1_2: &str) -> Vec<CipherSuite> {
        chosen("tls-ciphers", of_1_2, &SUITES_OF_1_2).unwrap()
    }

    #[test]
    fn versions_are_named_as_redis_names_them() {
        assert_eq!(versions("").unwrap().len(), 2);
        assert_eq!(versions("TLSv1.3").unwrap(), [&version::TLS13]);
        assert_eq!(versions("TLSv1 tlsv1.2").unwrap(), [&version::TLS12]);
        assert!(versions("TLSv1.1").is_err());
        assert!(versions("SSLv3").is_err());
    }

    #[test]
    fn lists_of_ciphers_choose_and_exclude() {
        assert_eq!(names("").len(), 6);
        assert_eq!(names("DEFAULT:!MEDIUM").len(), 6);
        assert_eq!(names("HIGH:!ECDHE-RSA-CHACHA20-POLY1305:!aNULL").len(), 5);
        let one = CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256;
        assert_eq!(names("AES128-SHA:ECDHE-RSA-AES128-GCM-SHA256"), [one]);
        assert!(chosen("tls-ciphers", "RC4-MD5", &SUITES_OF_1_2).is_err());
    }

    #[test]
    fn the_provider_has_what_was_chosen_in_that_order() {
        let text = "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_GCM_SHA256";
        let provider = provider("ECDHE-RSA-AES256-GCM-SHA384", text).unwrap();
        let suites: Vec<_> = provider
            .cipher_suites
            .iter()
            .map(|one| one.suite())
            .collect();
        assert_eq!(
            suites,
            [
                CipherSuite::TLS13_CHACHA20_POLY1305_SHA256,
                CipherSuite::TLS13_AES_128_GCM_SHA256,
                CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384
            ]
        );
    }
}
