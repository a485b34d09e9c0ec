//! Copies between images and volumes: tasks of this process, looked at by the work they belong to. A
//! copy that is lost with its process is begun again by whoever takes over the work.

use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::{Bytes, BytesMut};
use futures::StreamExt;
use sha2::{Digest, Sha256, Sha512};

use super::disk::{Disk, PIECE, Place};
use super::{Image, ImageError, Images, as_service};
use crate::store::work::Work;
use crate::store::{Store, hex};

/// Writes are whole multiples of this.
const SECTOR: usize = 4096;

/// How a copy came to nothing.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(crate) enum CopyError {
    /// Trying again may help.
    #[error("{0}")]
    Broken(String),
    /// Trying again will not help.
    #[error("{0}")]
    Hopeless(String),
    /// The work is somebody else's now, or nobody's.
    #[error("the work is no longer this worker's")]
    Lost,
}

impl From<ImageError> for CopyError {
    fn from(error: ImageError) -> Self {
        let said = error.to_string();
        match error {
            ImageError::Unreachable(_) | ImageError::Unauthorized => Self::Broken(said),
            ImageError::NotFound(_) | ImageError::Refused(_) => Self::Hopeless(said),
        }
    }
}

impl From<std::io::Error> for CopyError {
    fn from(error: std::io::Error) -> Self {
        match error.kind() {
            std::io::ErrorKind::Unsupported => Self::Hopeless(error.to_string()),
            _ => Self::Broken(error.to_string()),
        }
    }
}

/// How far a copy is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum State {
    Running,
    Ended(Result<(), CopyError>),
}

/// The copies of this process, by the work they belong to.
#[derive(Debug, Clone)]
pub(crate) struct Copies {
    tasks: tasks::Tasks,
    known: Arc<Mutex<HashMap<String, State>>>,
}

impl Copies {
    pub(crate) fn new(tasks: tasks::Tasks) -> Self {
        Self { tasks, known: Arc::default() }
    }

    fn known(&self) -> MutexGuard<'_, HashMap<String, State>> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Nothing if none was begun here, or its end was taken.
    pub(crate) fn look(&self, work: &str) -> Option<State> {
        let mut known = self.known();
        match known.get(work)? {
            State::Running => Some(State::Running),
            State::Ended(_) => known.remove(work),
        }
    }

    pub(crate) fn begin(
        &self,
        work: &str,
        copy: impl Future<Output = Result<(), CopyError>> + Send + 'static,
    ) {
        self.known().insert(work.to_owned(), State::Running);
        let (all, work) = (self.clone(), work.to_owned());
        self.tasks.spawn("image-copy", async move {
            // A copy that is dropped at the end of the process, or breaks, is not left as running.
            let ended = Ending { all, work };
            let outcome = copy.await;
            match outcome {
                // Nobody will look.
                Err(CopyError::Lost) => ended.all.known().remove(&ended.work),
                outcome => ended.all.known().insert(ended.work.clone(), State::Ended(outcome)),
            };
        });
    }
}

struct Ending {
    all: Copies,
    work: String,
}

impl Drop for Ending {
    fn drop(&mut self) {
        let mut known = self.all.known();
        if known.get(&self.work) == Some(&State::Running) {
            known.remove(&self.work);
        }
    }
}

enum Hash {
    Sha256(Sha256),
    Sha512(Sha512),
    /// Of a kind that is not known here.
    None,
}

impl Hash {
    fn of(image: &Image) -> Self {
        match image.hash.as_ref().map(|(kind, _)| kind.as_str()) {
            Some("sha256") => Self::Sha256(Sha256::new()),
            Some("sha512") => Self::Sha512(Sha512::new()),
            _ => Self::None,
        }
    }

    fn add(&mut self, data: &[u8]) {
        match self {
            Self::Sha256(it) => it.update(data),
            Self::Sha512(it) => it.update(data),
            Self::None => {}
        }
    }

    fn end(self) -> Option<String> {
        match self {
            Self::Sha256(it) => Some(hex(&it.finalize())),
            Self::Sha512(it) => Some(hex(&it.finalize())),
            Self::None => None,
        }
    }
}

/// Whose work a copy belongs to. Asked before every write: what is no longer wanted, or taken over
/// by another worker, must not be written.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    pub(crate) store: Store,
    pub(crate) work: Work,
    pub(crate) owner: String,
}

impl Claim {
    async fn holds(&self) -> bool {
        // That this worker does not reach the database says nothing of the others: one of them may have
        // it by now, and the volume may be its user's. Begun anew costs time only.
        self.store.holds(&self.work, &self.owner).await.unwrap_or(false)
    }
}

/// Writes an image into a volume. Pieces of zeros are left out where nothing was ever
/// written to the volume.
pub(crate) async fn fill(
    images: &Images,
    image: &Image,
    place: &Place,
    is_empty: bool,
    claim: &Claim,
) -> Result<(), CopyError> {
    let mut disk = Disk::open(place).await?;
    let data = as_service!(images, token => images.glance.read(token, &image.id).await)?;
    let mut data = std::pin::pin!(data);
    let (mut hash, mut offset, mut read) = (Hash::of(image), 0_u64, 0_u64);
    let mut pending = BytesMut::with_capacity(2 * PIECE);
    let mut ended = false;
    while !ended {
        if let Some(piece) = data.next().await {
            let piece = piece?;
            hash.add(&piece);
            read += piece.len() as u64;
            pending.extend_from_slice(&piece);
        } else {
            ended = true;
            let whole = pending.len().next_multiple_of(SECTOR);
            pending.resize(whole, 0);
        }
        while pending.len() >= PIECE || (ended && !pending.is_empty()) {
            let piece = pending.split_to(pending.len().min(PIECE)).freeze();
            let len = piece.len() as u64;
            if offset + len > disk.size_bytes {
                let said = "the image is larger than the volume".to_owned();
                return Err(CopyError::Hopeless(said));
            }
            if !claim.holds().await {
                return Err(CopyError::Lost);
            }
            if !(is_empty && piece.iter().all(|it| *it == 0)) {
                disk.write(offset, piece).await?;
            }
            offset += len;
        }
    }
    if i64::try_from(read).unwrap_or(i64::MAX) != image.size {
        let said = format!("the image has {} bytes and {read} came", image.size);
        return Err(CopyError::Broken(said));
    }
    let expected = image.hash.as_ref().map(|(_, value)| value.as_str());
    if hash.end().is_some_and(|it| Some(it.as_str()) != expected) {
        return Err(CopyError::Broken("the data is not what the image's hash says".to_owned()));
    }
    Ok(disk.flush().await?)
}

/// Reads a volume into an image.
pub(crate) async fn upload(images: &Images, image: &str, place: &Place) -> Result<(), CopyError> {
    as_service!(images, token => {
        let disk = Disk::open(place).await?;
        images.glance.write(token, image, disk.size_bytes, pieces(disk)).await
    })?;
    Ok(())
}

fn pieces(disk: Disk) -> impl futures::Stream<Item = std::io::Result<Bytes>> + Send + 'static {
    futures::stream::try_unfold((disk, 0_u64), |(mut disk, offset)| async move {
        let left = disk.size_bytes.saturating_sub(offset);
        let len = u32::try_from(left.min(PIECE as u64)).unwrap_or_default();
        if len == 0 {
            return Ok(None);
        }
        let data = disk.read(offset, len).await?;
        Ok(Some((data, (disk, offset + u64::from(len)))))
    })
}
