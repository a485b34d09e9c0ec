//! `backup …-backing-image`: the images below volumes, in a target. URLs name one by `backingImage`.

use std::path::Path;
use std::sync::Arc;

use backupstore::{
    BackingImageRequest, Compression, Control, FileSource, ImageRestoreOptions, Name,
};
use futures::TryFutureExt as _;

use super::backup_store::{
    argument, concurrent_limit, delete_options, found, lock_timeout, open, open_at, rate, told,
};
use super::backup_table::flags as b;
use super::console::Console;
use super::error::Error;
use super::operation::watched;
use super::parse::Line;
use super::scratch::Scratch;
use super::table::flags as f;
use super::value;

const IMAGE: &str = "backing.img";

pub(super) async fn ls(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, _) = open(line).await?;
    let names = store.list_backing_images().await.map_err(told)?;
    console.json(&names.iter().map(Name::as_str).collect::<Vec<_>>())
}

pub(super) async fn inspect(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    let image = url.require_backing_image().map_err(told)?;
    console.json(&store.inspect_backing_image(image).await.map_err(told)?)
}

pub(super) async fn rm(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    let image = url.require_backing_image().map_err(told)?;
    if !line.is_peer() {
        let is_there = store.list_backing_images().await.map_err(told)?.contains(image);
        found(is_there, || format!("the backing image {image}"))?;
    }
    let (options, control) = (delete_options(line)?, Control::default());
    let work = store.delete_backing_image(image, &options, &control).map_err(told);
    watched("removing", &control, console, work).await
}

pub(super) async fn create(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let file = argument(line, 0, "FILE")?;
    let (store, url) = open_at(line, 1).await?;
    let image = url.require_backing_image().map_err(told)?;
    let method = line.flags.text(&b::COMPRESSION_METHOD);
    let labels = value::labels(&line.flags.list(&f::LABEL)).map_err(Error::Refused)?;
    let request = BackingImageRequest {
        labels: (!labels.is_empty()).then(|| labels.into_iter().collect()),
        compression: Compression::parse(&method).map_err(Error::Refused)?,
        concurrent_limit: concurrent_limit(line),
        checksum: line.flags.text(&b::CHECKSUM).to_ascii_lowercase(),
        lock_timeout: lock_timeout(line)?,
        ..BackingImageRequest::new(image.clone())
    };
    let source = FileSource::open(Path::new(file))
        .map_err(|error| Error::refused(format!("cannot read {file}: {error}")))?;
    let control = Control::default();
    let work = store.create_backing_image(&request, Arc::new(source), &control).map_err(told);
    watched("storing", &control, console, work).await?;
    console.json(&store.inspect_backing_image(image).await.map_err(told)?)
}

pub(super) async fn restore(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let (store, url) = open(line).await?;
    let image = url.require_backing_image().map_err(told)?;
    let mut options = ImageRestoreOptions {
        concurrent_limit: concurrent_limit(line),
        lock_timeout: lock_timeout(line)?,
        ..ImageRestoreOptions::default()
    };
    options.fetch.bytes_per_second = rate(line);
    let scratch = Scratch::beside(Path::new(argument(line, 1, "FILE")?))?;
    let (path, control) = (scratch.path(IMAGE), Control::default());
    let work = store.restore_backing_image(image, &path, &options, &control).map_err(told);
    watched("restoring", &control, console, work).await?;
    scratch.publish(IMAGE)
}
