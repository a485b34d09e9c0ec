//! A tarball on its way into a store: packed as it is written, sent as it is packed, never whole in
//! memory.

use std::io;

use blobs::Body;
use bytes::Bytes;
use flate2::Compression;
use flate2::write::GzEncoder;
use futures::stream;
use tokio::sync::mpsc;

use crate::{layout, names, tarball};

/// Packed bytes are sent on in pieces of about this size.
const PIECE_BYTES: usize = 256 * 1024;
/// Pieces that wait to be sent.
const WAITING: usize = 4;

/// Takes members, and gives pieces to whoever holds the [`Body`].
pub(crate) struct Packer {
    packed: GzEncoder<Vec<u8>>,
    pieces: mpsc::Sender<io::Result<Bytes>>,
    mtime: i64,
    pub(crate) sent_bytes: u64,
}

impl std::fmt::Debug for Packer {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.debug_struct("Packer").field("sent_bytes", &self.sent_bytes).finish_non_exhaustive()
    }
}

/// Nobody takes the pieces any more: the upload has failed, and says why itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Unwanted;

impl Packer {
    pub(crate) fn new(mtime: i64) -> (Self, Body) {
        let (pieces, taken) = mpsc::channel(WAITING);
        let body = stream::unfold(taken, |mut taken: mpsc::Receiver<_>| async move {
            taken.recv().await.map(|piece| (piece, taken))
        });
        let packed = GzEncoder::new(Vec::new(), Compression::fast());
        (Self { packed, pieces, mtime, sent_bytes: 0 }, Box::pin(body))
    }

    /// The first member of every tarball, and how long it is.
    pub(crate) async fn begin(&mut self) -> Result<u64, Unwanted> {
        let version = format!("{}\n", names::FORMAT_VERSION);
        self.add(layout::VERSION_MEMBER, version.as_bytes()).await?;
        Ok(version.len() as u64)
    }

    pub(crate) async fn add(&mut self, path: &str, bytes: &[u8]) -> Result<(), Unwanted> {
        // Into memory: it cannot fail.
        let _ = tarball::write_member(&mut self.packed, path, bytes, self.mtime);
        if self.packed.get_ref().len() >= PIECE_BYTES {
            let piece = std::mem::take(self.packed.get_mut());
            self.send(piece).await?;
        }
        Ok(())
    }

    /// The end of the tarball.
    pub(crate) async fn finish(mut self) -> Result<u64, Unwanted> {
        let _ = tarball::write_end(&mut self.packed);
        let packed =
            std::mem::replace(&mut self.packed, GzEncoder::new(Vec::new(), Compression::none()));
        let rest = packed.finish().unwrap_or_default();
        self.send(rest).await?;
        Ok(self.sent_bytes)
    }

    /// The upload fails, and nothing is stored.
    pub(crate) async fn cut_off(self, why: &str) {
        let _ = self.pieces.send(Err(io::Error::other(why.to_owned()))).await;
    }

    async fn send(&mut self, piece: Vec<u8>) -> Result<(), Unwanted> {
        self.sent_bytes += piece.len() as u64;
        self.pieces.send(Ok(piece.into())).await.map_err(|_| Unwanted)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use futures::StreamExt;

    use super::*;
    use crate::tarball::{Limits, Sink, Unpacker};

    #[derive(Default)]
    struct Sizes(BTreeMap<String, u64>);

    impl Sink for Sizes {
        fn begin(&mut self, path: &str, len_bytes: u64) -> io::Result<bool> {
            self.0.insert(path.to_owned(), len_bytes);
            Ok(true)
        }
        fn bytes(&mut self, _: &[u8]) -> io::Result<()> {
            Ok(())
        }
        fn end(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn what_is_packed_comes_out_in_pieces_and_reads_back() {
        let (mut packer, mut body) = Packer::new(0);
        let write = async move {
            packer.begin().await.unwrap();
            for n in 0..300_u64 {
                let noise: Vec<u8> =
                    (0..5000_u64).map(|i| ((i * n * n) >> 3).to_le_bytes()[0]).collect();
                packer.add(&format!("resources/x/cluster/{n}.json"), &noise).await.unwrap();
            }
            packer.finish().await.unwrap()
        };
        let read = async move {
            let mut unpacker = Unpacker::new(Sizes::default(), Limits::default());
            let mut pieces = 0;
            while let Some(piece) = body.next().await {
                unpacker.push(&piece.unwrap()).unwrap();
                pieces += 1;
            }
            (unpacker.finish().unwrap(), pieces)
        };
        let (sent, (sizes, pieces)) = tokio::join!(write, read);
        assert_eq!(sizes.0.len(), 301);
        assert!(sent > 0 && pieces > 1, "{sent} {pieces}");
    }

    #[tokio::test]
    async fn a_packer_that_is_dropped_leaves_a_tarball_that_is_refused() {
        let (mut packer, mut body) = Packer::new(0);
        packer.begin().await.unwrap();
        drop(packer);
        let mut unpacker = Unpacker::new(Sizes::default(), Limits::default());
        while let Some(piece) = body.next().await {
            unpacker.push(&piece.unwrap()).unwrap();
        }
        assert!(unpacker.finish().is_err());
    }
}
