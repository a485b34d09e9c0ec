//! The events of an unpacked delta, read one by one.

use std::fmt;
use std::io;
use std::pin::Pin;

use tokio::io::{AsyncRead, AsyncReadExt};

use super::decode::Decoder;
use super::{DeltaError, Event};

const READ_BYTES: usize = 64 * 1024;

/// Reads unpacked bytes and gives events in their order.
pub struct Events {
    source: Pin<Box<dyn AsyncRead + Send>>,
    decoder: Option<Decoder>,
    buffer: Box<[u8]>,
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Events").field("decoder", &self.decoder).finish_non_exhaustive()
    }
}

impl Events {
    pub fn of(source: Pin<Box<dyn AsyncRead + Send>>) -> Self {
        let buffer = vec![0; READ_BYTES].into_boxed_slice();
        Self { source, decoder: Some(Decoder::default()), buffer }
    }

    /// The next event. `None` says that all were given and that the checksum is right; until then
    /// they may not be what was written.
    pub async fn next(&mut self) -> Result<Option<Event>, DeltaError> {
        loop {
            let Some(decoder) = self.decoder.as_mut() else { return Ok(None) };
            if let Some(event) = decoder.next_event()? {
                return Ok(Some(event));
            }
            let read = match self.source.read(&mut self.buffer).await {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read?,
            };
            match self.buffer.get(..read) {
                Some([]) | None => {
                    if let Some(decoder) = self.decoder.take() {
                        decoder.finish()?;
                    }
                }
                Some(bytes) => decoder.push(bytes),
            }
        }
    }
}
