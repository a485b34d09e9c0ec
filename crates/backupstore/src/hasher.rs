//! SHA-512 of pieces that come one by one, of a file that is compared with its copy: as many together as
//! wait when there is a thread for them, since hashing eight costs little more than one.

use bytes::Bytes;
use tokio::sync::oneshot;

use crate::control::Workers;
use crate::error::Error;
use crate::groups::Groups;
use crate::repository::sha512_of_each;

/// Threads at most: with more, groups become small.
const THREADS_MAX: usize = 4;

pub type Sum = [u8; 64];

/// A piece, and who waits for its sum.
#[derive(Debug)]
struct Request {
    piece: Bytes,
    answer: oneshot::Sender<Sum>,
}

/// Clones share their threads.
#[derive(Debug, Clone)]
pub struct Hasher {
    workers: Workers,
    waiting: Groups<Request>,
}

impl Default for Hasher {
    fn default() -> Self {
        let workers = Workers::with(Workers::new().count().min(THREADS_MAX));
        Self { workers, waiting: Groups::default() }
    }
}

impl Hasher {
    /// Nobody waits for more to come: what is alone is hashed alone.
    pub async fn sum(&self, piece: Bytes) -> Result<Sum, Error> {
        let (answer, answered) = oneshot::channel();
        let (number, _) = self.waiting.push(Request { piece, answer });
        let waiting = self.waiting.clone();
        let work = move || {
            while let Some(group) = waiting.take(number) {
                let pieces: Vec<&[u8]> = group.iter().map(|request| &*request.piece).collect();
                let sums = sha512_of_each(&pieces);
                for (Request { answer, .. }, sum) in group.into_iter().zip(sums) {
                    // Who asked may be gone.
                    let _ = answer.send(sum);
                }
            }
        };
        self.workers.run(work).await?;
        answered.await.map_err(|_| Error::Cancelled)
    }
}

#[cfg(test)]
mod tests {
    use aws_lc_rs::digest;

    use super::*;

    #[tokio::test]
    async fn each_gets_the_sum_of_its_own_piece() {
        let hasher = Hasher::default();
        let all = (0..40_u8).map(|n| {
            let hasher = hasher.clone();
            async move {
                let piece = vec![n; 4096 + usize::from(n % 7) * 100];
                let sum = hasher.sum(piece.clone().into()).await.unwrap();
                assert_eq!(&sum[..], digest::digest(&digest::SHA512, &piece).as_ref());
            }
        });
        futures::future::join_all(all).await;
        assert!(hasher.waiting.is_empty());
    }
}
