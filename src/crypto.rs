//! Random bytes, digests, keyed digests, constant-time comparison and sealed tokens: the only user of `aws-lc-rs`
//! besides TLS.
//!
//! Everyone may call it; it imports nothing of ours, keeps no global keys and never logs what it is given.

use std::fmt;

use aws_lc_rs::aead::{AES_256_GCM_SIV, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::{constant_time, digest, hmac, rand};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// Length of a SHA-256 digest in bytes.
pub const SHA256_LEN: usize = 32;

/// `N` bytes that nobody can predict.
///
/// Ends the process if the operating system has no randomness to give: going on with guessable session ids would be
/// worse, and there is no caller that could do anything about it.
#[must_use]
pub fn random<const N: usize>() -> [u8; N] {
    let mut bytes = [0; N];
    if rand::fill(&mut bytes).is_err() {
        tracing::error!("the operating system gives no random bytes");
        std::process::abort();
    }
    bytes
}

/// The SHA-256 digest of some bytes.
#[must_use]
pub fn sha256(bytes: &[u8]) -> [u8; SHA256_LEN] {
    sha256_parts(&[bytes])
}

/// The SHA-256 digest of several pieces as if they were one.
#[must_use]
pub fn sha256_parts(parts: &[&[u8]]) -> [u8; SHA256_LEN] {
    let mut context = digest::Context::new(&digest::SHA256);
    for part in parts {
        context.update(part);
    }
    fixed(context.finish().as_ref())
}

/// HMAC-SHA-256 of several pieces as if they were one.
#[must_use]
pub fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; SHA256_LEN] {
    let mut context = hmac::Context::with_key(&hmac::Key::new(hmac::HMAC_SHA256, key));
    for part in parts {
        context.update(part);
    }
    fixed(context.sign().as_ref())
}

/// Lower-case hexadecimal.
#[must_use]
pub fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS.get(usize::from(nibble)).copied().unwrap_or(b'0'));
    let mut text = String::with_capacity(bytes.len() * 2);
    for byte in bytes {
        text.push(digit(byte >> 4));
        text.push(digit(byte & 15));
    }
    text
}

/// The SHA-256 digest as lower-case hexadecimal.
#[must_use]
pub fn sha256_hex(bytes: &[u8]) -> String {
    hex(&sha256(bytes))
}

/// Equality that takes the same time wherever the difference is. Lengths are not secret.
#[must_use]
pub fn constant_time_eq(left: &[u8], right: &[u8]) -> bool {
    constant_time::verify_slices_are_equal(left, right).is_ok()
}

/// Copies a digest whose length is known by its algorithm.
fn fixed<const N: usize>(bytes: &[u8]) -> [u8; N] {
    let mut out = [0; N];
    for (to, from) in out.iter_mut().zip(bytes) {
        *to = *from;
    }
    out
}

const KEY_LEN: usize = 32;
const KEY_ID_LEN: usize = 4;
const TAG_LEN: usize = 16;

/// Why a token that came back was not opened. A peer is told no more than "unknown".
#[derive(Clone, Copy, PartialEq, Eq, Debug, thiserror::Error)]
pub enum SealFault {
    /// Not base64url, or too short to be a token.
    #[error("not a sealed token")]
    Malformed,
    /// Made with a key that this process does not have: another daemon's, or from before a restart.
    #[error("sealed with a key that is not known here")]
    UnknownKey,
    /// Changed, invented, or made for another purpose.
    #[error("not sealed here for this purpose")]
    Forged,
}

/// One key for sealing.
pub struct SealKey {
    id: [u8; KEY_ID_LEN],
    key: LessSafeKey,
    nonce_key: [u8; KEY_LEN],
}

impl fmt::Debug for SealKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SealKey({})", hex(&self.id))
    }
}

impl SealKey {
    /// The key made of these bytes: the same id on every replica that is given them. `None` if the library refuses it.
    #[must_use]
    pub fn from_bytes(bytes: &[u8; KEY_LEN]) -> Option<Self> {
        let key = LessSafeKey::new(UnboundKey::new(&AES_256_GCM_SIV, bytes).ok()?);
        // Derived once, so that neither the id nor the stable nonces say anything about the key itself.
        let id = fixed(&hmac_sha256(bytes, &[b"manifold seal key id"]));
        let nonce_key = hmac_sha256(bytes, &[b"manifold seal stable nonce"]);
        Some(Self { id, key, nonce_key })
    }
}

/// Makes and opens tokens that leave us, come back, and must not have been read or changed in between: session ids,
/// cursors, request state, task ids.
///
/// A token is `base64url(key id | nonce | ciphertext | tag)`, AES-256-GCM-SIV, with the purpose authenticated. It is
/// safe in a header and has no second spelling.
pub struct Sealer {
    current: SealKey,
    older: Vec<SealKey>,
}

impl fmt::Debug for Sealer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sealer")
            .field("current", &self.current)
            .field("older", &self.older)
            .finish()
    }
}

impl Sealer {
    /// Seals with `current`, opens with it and with `older`.
    #[must_use]
    pub fn new(current: SealKey, older: Vec<SealKey>) -> Self {
        Self { current, older }
    }

    /// A key of this process alone: its tokens end with it.
    #[must_use]
    pub fn random() -> Self {
        loop {
            // Every 32-byte string is a key, so the loop ends on its first turn.
            if let Some(key) = SealKey::from_bytes(&random()) {
                return Self::new(key, Vec::new());
            }
        }
    }

    /// A token that is different each time. `purpose` must be given again to open it.
    #[must_use]
    pub fn seal(&self, purpose: &str, plain: &[u8]) -> String {
        self.seal_with(purpose, plain, random())
    }

    /// A token that is the same for the same purpose and text as long as the key lives. It shows when two texts are
    /// equal, which is what it is for, and nothing else.
    #[must_use]
    pub fn seal_stable(&self, purpose: &str, plain: &[u8]) -> String {
        let length = (purpose.len() as u64).to_le_bytes();
        let nonce = hmac_sha256(&self.current.nonce_key, &[&length, purpose.as_bytes(), plain]);
        self.seal_with(purpose, plain, fixed(&nonce))
    }

    fn seal_with(&self, purpose: &str, plain: &[u8], nonce: [u8; NONCE_LEN]) -> String {
        let mut body = Vec::with_capacity(plain.len() + TAG_LEN);
        body.extend_from_slice(plain);
        let aad = Aad::from(purpose.as_bytes());
        let sealed =
            self.current
                .key
                .seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut body);
        if sealed.is_err() {
            // Only texts of many gigabytes get here. An empty token opens nowhere.
            return String::new();
        }
        let mut token = Vec::with_capacity(KEY_ID_LEN + NONCE_LEN + body.len());
        token.extend_from_slice(&self.current.id);
        token.extend_from_slice(&nonce);
        token.extend_from_slice(&body);
        URL_SAFE_NO_PAD.encode(token)
    }

    /// The text that was sealed for this purpose.
    ///
    /// # Errors
    /// [`SealFault`] says why it is not one of ours; nothing of the token's content is used before it is proven.
    pub fn open(&self, purpose: &str, token: &str) -> Result<Vec<u8>, SealFault> {
        let bytes = URL_SAFE_NO_PAD.decode(token).map_err(|_| SealFault::Malformed)?;
        let (id, rest) = bytes
            .split_first_chunk::<KEY_ID_LEN>()
            .ok_or(SealFault::Malformed)?;
        let (nonce, body) = rest
            .split_first_chunk::<NONCE_LEN>()
            .ok_or(SealFault::Malformed)?;
        if body.len() < TAG_LEN {
            return Err(SealFault::Malformed);
        }
        let key = std::iter::once(&self.current)
            .chain(&self.older)
            .find(|key| key.id == *id)
            .ok_or(SealFault::UnknownKey)?;
        let mut body = body.to_vec();
        let aad = Aad::from(purpose.as_bytes());
        let length = key
            .key
            .open_in_place(Nonce::assume_unique_for_key(*nonce), aad, &mut body)
            .map_err(|_| SealFault::Forged)?
            .len();
        body.truncate(length);
        Ok(body)
    }
}

#[cfg(test)]
mod tests;
