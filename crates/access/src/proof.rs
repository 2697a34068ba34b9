//! Proofs that a peer knows a secret, without sending the secret: HMAC-SHA-256 over what both sides
//! said.
//!
//! A proof is bound to one *use* (a text of the protocol with the role of the prover). It is
//! worthless for another use, and what one side sent cannot be sent back to it.

use hmac::{Hmac, Mac as _};
use sha2::Sha256;

/// Size of a proof in bytes.
pub const PROOF_BYTES: usize = 32;

/// The key of proofs, derived from a secret, or from a password used as one.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct ProofKey([u8; PROOF_BYTES]);

impl ProofKey {
    /// Derives the key for a use from a secret of any length.
    #[must_use]
    pub fn derive(secret: &[u8], usage: &[u8]) -> Self {
        Self(code(secret, &[usage]).finalize().into_bytes().into())
    }

    /// Returns the proof of these parts. Each part is hashed after its length, so no two lists of
    /// parts yield the same bytes.
    #[must_use]
    pub fn prove(&self, parts: &[&[u8]]) -> [u8; PROOF_BYTES] {
        code(&self.0, parts).finalize().into_bytes().into()
    }

    /// Returns whether a proof is that of these parts, in a time that does not depend on the proof.
    #[must_use]
    pub fn is_proof(&self, proof: &[u8; PROOF_BYTES], parts: &[&[u8]]) -> bool {
        code(&self.0, parts).verify_slice(proof).is_ok()
    }
}

impl std::fmt::Debug for ProofKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("ProofKey(..)")
    }
}

fn code(key: &[u8], parts: &[&[u8]]) -> Hmac<Sha256> {
    // Keys of all lengths are accepted: keys longer than a block are hashed.
    let mut code = Hmac::<Sha256>::new_from_slice(key).unwrap_or_else(|_| no_key());
    for part in parts {
        code.update(&(part.len() as u64).to_le_bytes());
        code.update(part);
    }
    code
}

/// Never called: HMAC accepts every key.
#[cold]
fn no_key() -> Hmac<Sha256> {
    Hmac::<Sha256>::new(&Default::default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_proof_is_of_its_key_and_of_its_parts_only() {
        let key = ProofKey::derive(b"secret", b"link");
        let proof = key.prove(&[b"one", b"other"]);
        assert!(key.is_proof(&proof, &[b"one", b"other"]));
        for parts in [[b"oneo".as_slice(), b"ther"], [b"other", b"one"]] {
            assert!(!key.is_proof(&proof, &parts));
        }
        for other in [
            ProofKey::derive(b"secreT", b"link"),
            ProofKey::derive(b"secret", b"linK"),
        ] {
            assert!(!other.is_proof(&proof, &[b"one", b"other"]));
        }
        let mut changed = proof;
        changed[31] ^= 1;
        assert!(!key.is_proof(&changed, &[b"one", b"other"]));
    }

    /// RFC 4231, test case 2: the code is HMAC-SHA-256.
    #[test]
    fn it_is_the_code_that_others_know() {
        let mut code = Hmac::<Sha256>::new_from_slice(b"Jefe").unwrap_or_else(|_| no_key());
        code.update(b"what do ya want for nothing?");
        let expected = "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843";
        assert_eq!(base::hex::text(&code.finalize().into_bytes()), expected);
    }
}
