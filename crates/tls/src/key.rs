//! Private keys: plain ones, and those protected by a password (PKCS #8 with PBES2, which `openssl`
//! writes since version 1.1: PBKDF2 and AES in CBC mode; RFC 8018).

use std::num::NonZeroU32;
use std::path::Path;

use aws_lc_rs::cipher::{
    AES_128, AES_192, AES_256, Algorithm, DecryptionContext, PaddedBlockDecryptingKey,
    UnboundCipherKey,
};
use aws_lc_rs::iv::FixedLength;
use aws_lc_rs::pbkdf2;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

use crate::der::{Der, tag};
use crate::error::SetupError;
use crate::{files, pem};

const PBES2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0d];
const PBKDF2: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x05, 0x0c];
const SCRYPT: &[u8] = &[0x2b, 0x06, 0x01, 0x04, 0x01, 0xda, 0x47, 0x04, 0x0b];
/// The prefix of `hmacWithSHA1` and its variants, which differ in the last byte.
const HMAC: &[u8] = &[0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x02];
/// The prefix of AES in CBC mode. The last byte denotes the key length.
const AES_CBC: &[u8] = &[0x60, 0x86, 0x48, 0x01, 0x65, 0x03, 0x04, 0x01];
/// Maximum number of PBKDF2 rounds, which take some seconds.
const ITERATIONS_MAX: u64 = 20_000_000;

/// Reads the key in a file.
pub(crate) fn load(
    path: &Path,
    password: Option<&[u8]>,
) -> Result<PrivateKeyDer<'static>, SetupError> {
    let text = files::read(path)?;
    let fault = |what: &str| SetupError::content(path, what);
    if let Some(sealed) = pem::section(&text, "ENCRYPTED PRIVATE KEY") {
        let Some(password) = password else {
            return Err(fault(
                "the key is protected by a password, and tls-key-file-pass is not set",
            ));
        };
        let key = unseal(&sealed, password).map_err(fault)?;
        return Ok(PrivatePkcs8KeyDer::from(key).into());
    }
    if pem::contains(&text, "Proc-Type: 4,ENCRYPTED") {
        return Err(fault(
            "the key is protected in the old way; 'openssl pkcs8 -topk8' writes one that can be used",
        ));
    }
    PrivateKeyDer::from_pem_slice(&text).map_err(|error| fault(&format!("no private key: {error}")))
}

/// Decrypts the key in an `EncryptedPrivateKeyInfo`.
fn unseal(sealed: &[u8], password: &[u8]) -> Result<Vec<u8>, &'static str> {
    let protection =
        Protection::of(sealed).ok_or("the protection of the key is of no known kind")??;
    let mut key = vec![0; protection.cipher_key_bytes];
    pbkdf2::derive(
        protection.hash,
        protection.iterations,
        protection.salt,
        password,
        &mut key,
    );
    let mut content = protection.content.to_vec();
    let wrong = "the key cannot be read with tls-key-file-pass";
    let key = UnboundCipherKey::new(protection.cipher, &key).map_err(|_| wrong)?;
    let key = PaddedBlockDecryptingKey::cbc_pkcs7(key).map_err(|_| wrong)?;
    let start = FixedLength::try_from(protection.start).map_err(|_| wrong)?;
    let plain = key.decrypt(&mut content, DecryptionContext::Iv128(start));
    let plain = plain.map_err(|_| wrong)?;
    // A wrong password may yield bytes that look validly padded.
    Der::new(plain).open(tag::SEQUENCE).ok_or(wrong)?;
    Ok(plain.to_vec())
}

/// The protection of a key.
struct Protection<'a> {
    hash: pbkdf2::Algorithm,
    salt: &'a [u8],
    iterations: NonZeroU32,
    cipher: &'static Algorithm,
    cipher_key_bytes: usize,
    start: &'a [u8],
    content: &'a [u8],
}

impl<'a> Protection<'a> {
    fn of(sealed: &'a [u8]) -> Option<Result<Self, &'static str>> {
        let mut whole = Der::new(sealed).open(tag::SEQUENCE)?;
        let mut scheme = whole.open(tag::SEQUENCE)?;
        let content = whole.take(tag::OCTET_STRING)?;
        if scheme.take(tag::OBJECT)? != PBES2 {
            return Some(Err(
                "only keys protected by PBES2 can be used ('openssl pkcs8 -topk8')",
            ));
        }
        let mut scheme = scheme.open(tag::SEQUENCE)?;
        let (mut derivation, mut encryption) =
            (scheme.open(tag::SEQUENCE)?, scheme.open(tag::SEQUENCE)?);
        match derivation.take(tag::OBJECT)? {
            PBKDF2 => {}
            SCRYPT => return Some(Err("keys protected by scrypt cannot be used; PBKDF2 can")),
            _ => return None,
        }
        let mut derivation = derivation.open(tag::SEQUENCE)?;
        let salt = derivation.take(tag::OCTET_STRING)?;
        let iterations = derivation
            .number()
            .filter(|count| *count <= ITERATIONS_MAX)?;
        let iterations = NonZeroU32::new(u32::try_from(iterations).ok()?)?;
        let _key_bytes = derivation.number();
        let hash = match derivation.open(tag::SEQUENCE) {
            None => pbkdf2::PBKDF2_HMAC_SHA1,
            Some(mut hash) => match hash.take(tag::OBJECT)?.strip_prefix(HMAC)? {
                [7] => pbkdf2::PBKDF2_HMAC_SHA1,
                [9] => pbkdf2::PBKDF2_HMAC_SHA256,
                [10] => pbkdf2::PBKDF2_HMAC_SHA384,
                [11] => pbkdf2::PBKDF2_HMAC_SHA512,
                _ => return None,
            },
        };
        let (cipher, cipher_key_bytes) = match encryption.take(tag::OBJECT)?.strip_prefix(AES_CBC) {
            Some([2]) => (&AES_128, 16),
            Some([22]) => (&AES_192, 24),
            Some([42]) => (&AES_256, 32),
            _ => return Some(Err("only keys encrypted by AES in CBC mode can be used")),
        };
        Some(Ok(Self {
            hash,
            salt,
            iterations,
            cipher,
            cipher_key_bytes,
            start: encryption.take(tag::OCTET_STRING)?,
            content,
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use super::*;

    fn path(name: &str) -> PathBuf {
        PathBuf::from(env!("CARGO_MANIFEST_DIR"))
            .join("tests/keys")
            .join(name)
    }

    fn told(name: &str, password: Option<&[u8]>) -> String {
        load(&path(name), password).unwrap_err().to_string()
    }

    #[test]
    fn keys_with_passwords_are_the_keys_without() {
        let plain = load(&path("plain.pem"), None).unwrap();
        for name in ["aes256-sha256.pem", "aes128-sha1.pem", "aes192-sha512.pem"] {
            let key = load(&path(name), Some(b"sesame")).unwrap();
            assert_eq!(key.secret_der(), plain.secret_der(), "{name}");
            assert!(told(name, Some(b"other")).ends_with("cannot be read with tls-key-file-pass"));
            assert!(told(name, None).contains("tls-key-file-pass is not set"));
        }
    }

    #[test]
    fn what_cannot_be_used_is_told() {
        let sesame = Some(&b"sesame"[..]);
        assert!(told("scrypt.pem", sesame).contains("scrypt"));
        assert!(told("des3.pem", sesame).contains("AES in CBC mode"));
        assert!(told("old.pem", sesame).contains("openssl pkcs8 -topk8"));
        assert!(told("nowhere.pem", None).contains("nowhere.pem"));
    }

    #[test]
    fn damage_of_a_protected_key_is_an_error() {
        let text = files::read(&path("aes256-sha256.pem")).unwrap();
        let sealed = pem::section(&text, "ENCRYPTED PRIVATE KEY").unwrap();
        for at in 0..sealed.len() {
            assert!(unseal(&sealed[..at], b"sesame").is_err());
        }
    }
}
