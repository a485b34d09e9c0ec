//! Every change of the whole key space from a revision on, in the order of revisions.
//!
//! Nothing is read ahead of the caller but what the window of the stream lets in, so a caller
//! that is slow slows the etcd's sending, not the growth of our memory.

use futures::StreamExt as _;
use tonic::Streaming;

use super::error::{EtcdError, Rejection, reason_of};
use super::wire::watch_client::WatchClient;
use super::wire::watch_request::RequestUnion;
use super::wire::{Event, WatchCreateRequest, WatchRequest, WatchResponse};
use super::{Etcd, transport::Peer};

/// A piece of an answer is a request of etcd's largest size and some; an event never more.
const PIECE_MAX_BYTES: usize = 64 << 20;
/// From the first key to the last.
const EVERYTHING: &[u8] = &[0];

/// An open watch. Dropping it ends it.
#[derive(Debug)]
pub struct Watch {
    answers: Streaming<WatchResponse>,
    endpoint: String,
}

/// One piece of what the watch delivers.
#[derive(Debug, Clone)]
pub struct Batch {
    pub events: Vec<Event>,
    /// Where the etcd was when it sent this.
    pub revision: i64,
    /// False while more events of the last revision may follow.
    pub whole: bool,
}

impl Etcd {
    /// Watches everything from revision `start` on. That the revision is gone may be told here
    /// or by [`Watch::next`].
    pub async fn watch(&self, start: i64) -> Result<Watch, EtcdError> {
        let create = WatchCreateRequest {
            key: EVERYTHING.into(),
            range_end: EVERYTHING.into(),
            start_revision: start,
            progress_notify: true,
            fragment: true,
            ..WatchCreateRequest::default()
        };
        let answers = self
            .stream(|peer: Peer| {
                let request = WatchRequest {
                    request_union: Some(RequestUnion::CreateRequest(create.clone())),
                };
                // The stream of requests stays open: its end would be the end of the watch.
                let requests = futures::stream::iter([request]).chain(futures::stream::pending());
                let mut client = WatchClient::new(peer).max_decoding_message_size(PIECE_MAX_BYTES);
                async move { client.watch(requests).await }
            })
            .await?;
        let mut watch = Watch { answers, endpoint: self.endpoint().to_owned() };
        // The first answer only says that the watch is there.
        let opened = tokio::time::timeout(self.timeout(), watch.answer()).await;
        opened.map_err(|_| EtcdError::Timeout {
            endpoint: self.endpoint().to_owned(),
            after: self.timeout(),
        })??;
        Ok(watch)
    }
}

impl Watch {
    /// The next piece; without events when the etcd only tells how far it is.
    ///
    /// # Cancel safety
    ///
    /// Cancel-safe: a piece is taken from the stream whole or not at all.
    pub async fn next(&mut self) -> Result<Batch, EtcdError> {
        let answer = self.answer().await?;
        Ok(Batch {
            revision: answer.header.map_or(0, |header| header.revision),
            whole: !answer.fragment,
            events: answer.events,
        })
    }

    async fn answer(&mut self) -> Result<WatchResponse, EtcdError> {
        let answer = match self.answers.message().await {
            Ok(Some(answer)) => answer,
            Ok(None) => return Err(self.ended("it ended the watch")),
            Err(status) => return Err(EtcdError::from_status(&self.endpoint, &status)),
        };
        if answer.compact_revision > 0 {
            let oldest = answer.compact_revision;
            let message = format!(
                "etcdserver: mvcc: required revision has been compacted, the oldest is {oldest}"
            );
            return Err(EtcdError::Refused { reason: Rejection::Compacted, message });
        }
        if answer.canceled {
            return Err(match reason_of(&answer.cancel_reason) {
                Some(reason) => EtcdError::Refused { reason, message: answer.cancel_reason },
                None => self.ended(&format!("it ended the watch: {}", answer.cancel_reason)),
            });
        }
        Ok(answer)
    }

    fn ended(&self, message: &str) -> EtcdError {
        EtcdError::Unavailable { endpoint: self.endpoint.clone(), message: message.to_owned() }
    }
}
