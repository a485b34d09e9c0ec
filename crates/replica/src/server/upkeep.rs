//! What a sync agent of ours asks beyond the common dialect: where the head holds data, and the
//! merge of the head's removed parent into it while the volume is in use. The work is done on the
//! data thread in small pieces, so that I/O goes on between them.

use std::pin::Pin;

use rpc::upkeep::upkeep_server::Upkeep;
use rpc::upkeep::{
    Extent, FilledRequest, FilledResponse, HeadExtents, HeadExtentsRequest,
    MergeHeadParentProgress, MergeHeadParentRequest,
};
use tasks::Tasks;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use crate::disk::{HeadMerge, MergeStep};
use crate::server::service::{gone, refused};
use crate::server::thread::Handle;

/// Of the head, looked at in one piece of work.
const WINDOW_BYTES: u64 = 256 << 20;
/// Extents in one message.
const EXTENTS_MAX: usize = 8192;
/// Copied in one piece of work.
const MERGE_BYTES: u64 = 512 * 1024;
/// Messages that wait for a slow caller before the work does.
const AHEAD: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct UpkeepService {
    pub(crate) data: Handle,
    pub(crate) tasks: Tasks,
}

type Messages<T> = Pin<Box<dyn tokio_stream::Stream<Item = Result<T, Status>> + Send>>;
type Sender<T> = mpsc::Sender<Result<T, Status>>;

/// The caller has gone; nobody waits for the rest.
struct CallerGone;

#[tonic::async_trait]
impl Upkeep for UpkeepService {
    async fn filled(
        &self,
        request: Request<FilledRequest>,
    ) -> Result<Response<FilledResponse>, Status> {
        let adoption = request.into_inner().adoption;
        let filled = self.data.call(move |core| core.owner.filled(adoption)).await.map_err(gone)?;
        filled.map_err(|error| rpc::text(error.to_string()))?;
        Ok(Response::new(FilledResponse {}))
    }

    type HeadExtentsStream = Messages<HeadExtents>;

    async fn head_extents(
        &self,
        request: Request<HeadExtentsRequest>,
    ) -> Result<Response<Self::HeadExtentsStream>, Status> {
        let (tell, told) = mpsc::channel(AHEAD);
        let (data, above) = (self.data.clone(), request.into_inner().above);
        self.tasks.spawn("head extents", async move {
            if let Err(status) = send_extents(&data, &above, &tell).await {
                let _ = tell.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }

    type MergeHeadParentStream = Messages<MergeHeadParentProgress>;

    async fn merge_head_parent(
        &self,
        _: Request<MergeHeadParentRequest>,
    ) -> Result<Response<Self::MergeHeadParentStream>, Status> {
        let (tell, told) = mpsc::channel(AHEAD);
        let data = self.data.clone();
        self.tasks.spawn("merge head parent", async move {
            if let Err(status) = merge(&data, &tell).await {
                let _ = tell.send(Err(status)).await;
            }
        });
        Ok(Response::new(Box::pin(ReceiverStream::new(told))))
    }
}

async fn send_extents(
    data: &Handle,
    above: &str,
    tell: &Sender<HeadExtents>,
) -> Result<(), Status> {
    let mut at = 0;
    loop {
        let (extents, next) = extents_from(data, above, at).await?;
        for batch in extents.chunks(EXTENTS_MAX) {
            if say(tell, HeadExtents { extents: batch.to_vec() }).await.is_err() {
                return Ok(());
            }
        }
        match next {
            Some(next) => at = next,
            None => return Ok(()),
        }
    }
}

/// The extents of one window, and where the next begins.
async fn extents_from(
    data: &Handle,
    above: &str,
    at: u64,
) -> Result<(Vec<Extent>, Option<u64>), Status> {
    let above = above.to_owned();
    let look = move |core: &mut crate::server::core::Core| {
        let size = core.replica.size_bytes().unwrap_or(0);
        let end = at.saturating_add(WINDOW_BYTES);
        let mut found: Vec<Extent> = Vec::new();
        let range = at..end.min(size);
        let mut each = |extent: crate::disk::Extent| {
            let (offset, len) = (extent.start, extent.end.saturating_sub(extent.start));
            match found.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += len,
                _ => found.push(Extent { offset, len }),
            }
        };
        if above.is_empty() {
            core.replica.head_extents(range, &mut each)?;
        } else {
            core.replica.extents_above(&above, range, &mut each)?;
        }
        Ok((found, (end < size).then_some(end)))
    };
    data.call(look).await.map_err(gone)?.map_err(refused)
}

/// Steps the merge until nothing is left of it, or nobody listens: it goes on where it is.
async fn merge(data: &Handle, tell: &Sender<MergeHeadParentProgress>) -> Result<(), Status> {
    let mut merge = HeadMerge::default();
    loop {
        let work = move |core: &mut crate::server::core::Core| {
            let step = merge.step(&mut core.replica, MERGE_BYTES);
            (merge, step)
        };
        let (back, step) = data.call(work).await.map_err(gone)?;
        merge = back;
        match step.map_err(refused)? {
            MergeStep::Working => {}
            MergeStep::NeedsFlush => {
                data.flush().await.map_err(gone)?.map_err(rpc::text)?;
                merge.flushed();
            }
            MergeStep::Done => return Ok(()),
        }
        let (done, total) = merge.progress();
        if say(tell, MergeHeadParentProgress { done, total }).await.is_err() {
            return Ok(());
        }
    }
}

async fn say<T>(tell: &Sender<T>, message: T) -> Result<(), CallerGone> {
    tell.send(Ok(message)).await.map_err(|_| CallerGone)
}
