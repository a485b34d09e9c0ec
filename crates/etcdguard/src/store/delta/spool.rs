//! A delta on its way to the store. Its name says its last revision, so nothing can be sent before
//! the last event came: until then it lies packed in memory, and in a file where it is long.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::PathBuf;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::io::{AsyncRead, ReadBuf};

use super::{Encoder, Event};
use crate::nameless::nameless;
use crate::store::compress::{Compression, Packer};

/// Packed bytes that stay in memory.
const MEMORY_MAX_BYTES: usize = 4 << 20;
/// Of one read from the file.
const READ_MAX_BYTES: usize = 256 * 1024;

/// Takes events, hashes and packs them as they come.
#[derive(Debug)]
pub struct Spool {
    encoder: Encoder<Packer<Hold>>,
    first_revision: Option<i64>,
    last_revision: Option<i64>,
}

impl Spool {
    /// `dir` is for a file, made only where the delta is long; it has no name for others to find.
    pub fn new(dir: impl Into<PathBuf>, compression: Option<Compression>) -> Self {
        let hold = Hold { dir: dir.into(), memory: Vec::new(), file: None };
        Self {
            encoder: Encoder::new(Packer::new(compression, hold)),
            first_revision: None,
            last_revision: None,
        }
    }

    pub fn push(&mut self, event: &Event) -> io::Result<()> {
        self.encoder.push(event)?;
        self.first_revision.get_or_insert(event.mod_revision);
        self.last_revision = Some(event.mod_revision);
        Ok(())
    }

    pub fn events(&self) -> u64 {
        self.encoder.events()
    }

    pub fn is_empty(&self) -> bool {
        self.events() == 0
    }

    /// Length of the text, which limits of deltas are about.
    pub fn text_bytes(&self) -> u64 {
        self.encoder.text_bytes()
    }

    /// Of the first event.
    pub fn first_revision(&self) -> Option<i64> {
        self.first_revision
    }

    /// Of the last event.
    pub fn last_revision(&self) -> Option<i64> {
        self.last_revision
    }

    /// The whole object, to be saved.
    pub fn finish(self) -> io::Result<Spooled> {
        let mut hold = self.encoder.finish()?.finish()?;
        if let Some(file) = &mut hold.file {
            file.seek(SeekFrom::Start(0))?;
        }
        Ok(Spooled { memory: io::Cursor::new(hold.memory), file: hold.file })
    }
}

#[derive(Debug)]
struct Hold {
    dir: PathBuf,
    memory: Vec<u8>,
    file: Option<File>,
}

impl Write for Hold {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if let Some(file) = &mut self.file {
            return file.write(bytes);
        }
        if self.memory.len().saturating_add(bytes.len()) > MEMORY_MAX_BYTES {
            let file = self.file.insert(nameless(&self.dir)?);
            file.write_all(&std::mem::take(&mut self.memory))?;
            return file.write(bytes);
        }
        self.memory.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The bytes of an object, read once from the front.
#[derive(Debug)]
pub struct Spooled {
    memory: io::Cursor<Vec<u8>>,
    file: Option<File>,
}

impl Spooled {
    pub fn len_bytes(&self) -> io::Result<u64> {
        match &self.file {
            Some(file) => Ok(file.metadata()?.len()),
            None => Ok(self.memory.get_ref().len() as u64),
        }
    }
}

impl AsyncRead for Spooled {
    /// Reads of a file just written come from memory, so this waits for no disk to speak of.
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let len = buffer.remaining().min(READ_MAX_BYTES);
        let Some(unfilled) = buffer.initialize_unfilled().get_mut(..len) else {
            return Poll::Ready(Ok(()));
        };
        let this = &mut *self;
        let read = match &mut this.file {
            Some(file) => file.read(unfilled)?,
            None => this.memory.read(unfilled)?,
        };
        buffer.advance(read);
        Poll::Ready(Ok(()))
    }
}
