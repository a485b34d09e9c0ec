//! Encryption of objects before they are sent, for those who switch it on.
//!
//! An object is `HFSNAP1\0`, 32 random bytes, and sealed pieces. Its key is derived (HKDF-SHA-256)
//! from the store's key, those random bytes, and the name of the snapshot, so that an object under
//! another name is refused. Each piece is 64 KiB, the last one shorter or equal, sealed with
//! AES-256-GCM; its nonce is its number (11 bytes, big endian) and one byte that is 1 for the last:
//! pieces that are cut off, repeated or swapped are refused.

use std::io;
use std::path::Path;

use aws_lc_rs::aead::{AES_256_GCM, Aad, LessSafeKey, NONCE_LEN, Nonce, UnboundKey};
use aws_lc_rs::hkdf::{HKDF_SHA256, Salt};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use futures::stream;
use tokio::io::{AsyncRead, AsyncReadExt};
use tokio_util::io::StreamReader;

use super::error::StoreError;
use super::snapshot::Snapshot;

/// Names the file that holds the key: 32 bytes, as they are, in hex or in base64.
pub const KEY_VARIABLE: &str = "SNAPSHOT_ENCRYPTION_KEY_FILE";
const KEY_BYTES: usize = 32;
const KEY_FILE_MAX_BYTES: usize = 4096;
const MAGIC: [u8; 8] = *b"HFSNAP1\0";
const SALT_BYTES: usize = 32;
const PIECE_BYTES: usize = 64 * 1024;
const TAG_BYTES: usize = 16;

/// The key of a store.
#[derive(Clone)]
pub struct StoreKey([u8; KEY_BYTES]);

impl std::fmt::Debug for StoreKey {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str("StoreKey")
    }
}

impl StoreKey {
    pub fn read(path: &Path) -> Result<Self, StoreError> {
        let bad = |what: String| StoreError::Key { path: path.to_owned(), what };
        let bytes =
            durable::read_limited(path, KEY_FILE_MAX_BYTES).map_err(|e| bad(e.to_string()))?;
        Self::parse(&bytes).ok_or_else(|| {
            bad(format!("it holds no {KEY_BYTES} bytes, as they are, in hex or in base64"))
        })
    }

    fn parse(bytes: &[u8]) -> Option<Self> {
        if let Ok(key) = <[u8; KEY_BYTES]>::try_from(bytes) {
            return Some(Self(key));
        }
        let text = std::str::from_utf8(bytes).ok()?.trim();
        let key = if text.len() == 2 * KEY_BYTES {
            let digit = |at| u8::from_str_radix(text.get(at..at + 2)?, 16).ok();
            (0..text.len()).step_by(2).map(digit).collect::<Option<Vec<u8>>>()?
        } else {
            BASE64_STANDARD.decode(text).ok()?
        };
        key.try_into().ok().map(Self)
    }

    /// What seals and opens one object.
    pub fn of(&self, snapshot: &Snapshot) -> ObjectKey {
        ObjectKey { key: self.clone(), name: snapshot.identity() }
    }
}

/// The key of a store, and the name of the object it is for.
#[derive(Debug, Clone)]
pub struct ObjectKey {
    key: StoreKey,
    name: String,
}

impl ObjectKey {
    fn piece_key(&self, salt: &[u8]) -> io::Result<LessSafeKey> {
        let unusable = |_| io::Error::other("the key for encryption cannot be derived");
        let derived = Salt::new(HKDF_SHA256, salt).extract(&self.key.0);
        let info = [b"holdfast snapshot".as_slice(), self.name.as_bytes()];
        let mut key = [0; KEY_BYTES];
        derived.expand(&info, HKDF_SHA256).and_then(|it| it.fill(&mut key)).map_err(unusable)?;
        Ok(LessSafeKey::new(UnboundKey::new(&AES_256_GCM, &key).map_err(unusable)?))
    }

    /// `source`, sealed.
    pub fn encrypt<R>(&self, source: R) -> Box<dyn AsyncRead + Send + Unpin>
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        let salt: [u8; SALT_BYTES] = rand::random();
        let pieces = Pieces::new(self.clone(), source, Some(salt));
        Box::new(StreamReader::new(Box::pin(stream::try_unfold(pieces, Pieces::seal_next))))
    }

    /// What was sealed into `source`; fails where it is not whole or not ours.
    pub fn decrypt<R>(&self, source: R) -> Box<dyn AsyncRead + Send + Unpin>
    where
        R: AsyncRead + Send + Unpin + 'static,
    {
        let pieces = Pieces::new(self.clone(), source, None);
        Box::new(StreamReader::new(Box::pin(stream::try_unfold(pieces, Pieces::open_next))))
    }
}

struct Pieces<R> {
    object: ObjectKey,
    source: R,
    /// To be written first; none where it is read first.
    salt: Option<[u8; SALT_BYTES]>,
    key: Option<LessSafeKey>,
    number: u64,
    /// Read already: whether it is empty says whether the piece before it is the last.
    ahead: Bytes,
    ended: bool,
}

impl<R: AsyncRead + Unpin> Pieces<R> {
    fn new(object: ObjectKey, source: R, salt: Option<[u8; SALT_BYTES]>) -> Self {
        Self { object, source, salt, key: None, number: 0, ahead: Bytes::new(), ended: false }
    }

    async fn seal_next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.key.is_none() {
            let salt = self.salt.unwrap_or_default();
            self.key = Some(self.object.piece_key(&salt)?);
            self.ahead = read_full(&mut self.source, PIECE_BYTES).await?;
            let header = Bytes::from([MAGIC.as_slice(), &salt].concat());
            return Ok(Some((header, self)));
        }
        let Some((piece, nonce)) = self.next_piece(PIECE_BYTES).await? else { return Ok(None) };
        let mut sealed = piece.to_vec();
        let key = self.key.as_ref().ok_or(io::ErrorKind::Other)?;
        key.seal_in_place_append_tag(nonce, Aad::empty(), &mut sealed)
            .map_err(|_| io::Error::other("a piece cannot be sealed"))?;
        Ok(Some((sealed.into(), self)))
    }

    async fn open_next(mut self) -> io::Result<Option<(Bytes, Self)>> {
        if self.key.is_none() {
            let header = read_full(&mut self.source, MAGIC.len() + SALT_BYTES).await?;
            let salt = header.strip_prefix(MAGIC.as_slice());
            let salt = salt.filter(|salt| salt.len() == SALT_BYTES).ok_or_else(refused)?;
            self.key = Some(self.object.piece_key(salt)?);
            self.ahead = read_full(&mut self.source, PIECE_BYTES + TAG_BYTES).await?;
        }
        loop {
            let next = self.next_piece(PIECE_BYTES + TAG_BYTES).await?;
            let Some((piece, nonce)) = next else { return Ok(None) };
            let mut opened = piece.to_vec();
            let key = self.key.as_ref().ok_or(io::ErrorKind::Other)?;
            let plain =
                key.open_in_place(nonce, Aad::empty(), &mut opened).map_err(|_| refused())?;
            let len = plain.len();
            opened.truncate(len);
            // A stream of bytes has no empty pieces.
            if len > 0 {
                return Ok(Some((opened.into(), self)));
            }
        }
    }

    async fn next_piece(&mut self, len: usize) -> io::Result<Option<(Bytes, Nonce)>> {
        if self.ended {
            return Ok(None);
        }
        let next = read_full(&mut self.source, len).await?;
        self.ended = next.is_empty();
        let piece = std::mem::replace(&mut self.ahead, next);
        let mut nonce = [0; NONCE_LEN];
        let number = self.number.to_be_bytes();
        nonce.iter_mut().skip(3).zip(number).for_each(|(byte, number)| *byte = number);
        if let Some(last) = nonce.last_mut() {
            *last = u8::from(self.ended);
        }
        self.number += 1;
        Ok(Some((piece, Nonce::assume_unique_for_key(nonce))))
    }
}

fn refused() -> io::Error {
    let why = "the object is damaged, is under another name, or was encrypted with another key";
    io::Error::new(io::ErrorKind::InvalidData, why)
}

/// Less than `len` only at the end.
async fn read_full(source: &mut (impl AsyncRead + Unpin), len: usize) -> io::Result<Bytes> {
    let mut bytes = BytesMut::with_capacity(len);
    while bytes.len() < len {
        let missing = (len - bytes.len()) as u64;
        if (&mut *source).take(missing).read_buf(&mut bytes).await? == 0 {
            break;
        }
    }
    Ok(bytes.freeze())
}

#[cfg(test)]
mod tests;
