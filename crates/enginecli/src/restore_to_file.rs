//! `backup restore-to-file`: a backup as an image in a file, sparse where the volume is empty.
//!
//! A raw image of a volume without a backing file is written as it comes. With a backing file the
//! backup is laid over its contents: a block of the backup hides all that is below it, its zeros too.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use backupstore::restore::{FileSink, OnDamage, Plan, RestoreRequest, Restored, Sink};
use backupstore::{BackupStore, Control, Name};

use super::backup_store::{concurrent_limit, lock_timeout, open, rate, told};
use super::backup_table::flags as b;
use super::console::Console;
use super::error::Error;
use super::operation::watched;
use super::parse::Line;
use super::qemu::{self, Format};
use super::scratch::Scratch;
use super::table::flags as f;

const IMAGE: &str = "backup.img";
const CONVERTED: &str = "backup.img.converted";

/// What is asked for.
struct Wanted {
    format: Format,
    output: PathBuf,
    backing: Option<PathBuf>,
    concurrent_limit: usize,
    on_damage: OnDamage,
    bytes_per_second: Option<u64>,
    lock_timeout: Duration,
}

impl Wanted {
    fn read(line: &Line) -> Result<Self, Error> {
        let format = Format::parse(&line.flags.text(&b::OUTPUT_FORMAT))?;
        let output = match line.flags.text(&b::OUTPUT_FILE).as_str() {
            "" => PathBuf::from(format!("volume.{}", format.name())),
            path => PathBuf::from(path),
        };
        let backing = match line.flags.text(&f::BACKING_FILE).as_str() {
            "" => None,
            path => Some(backing(Path::new(path))?),
        };
        let goes_on = line.flags.switch(&b::CONTINUE_ON_ERROR);
        Ok(Self {
            format,
            output,
            backing,
            concurrent_limit: concurrent_limit(line),
            on_damage: if goes_on { OnDamage::GoOn } else { OnDamage::Fail },
            bytes_per_second: rate(line),
            lock_timeout: lock_timeout(line)?,
        })
    }

    fn needs_qemu(&self) -> bool {
        self.format != Format::Raw || self.backing.is_some()
    }

    fn request(&self, volume: &Name, backup: &Name) -> RestoreRequest {
        let mut request = RestoreRequest {
            concurrent_limit: self.concurrent_limit,
            on_damage: self.on_damage,
            lock_timeout: self.lock_timeout,
            ..RestoreRequest::new(volume.clone(), backup.clone())
        };
        request.fetch.bytes_per_second = self.bytes_per_second;
        request
    }
}

fn backing(path: &Path) -> Result<PathBuf, Error> {
    let found = std::fs::canonicalize(path)
        .map_err(|error| Error::refused(format!("cannot read {}: {error}", path.display())))?;
    qemu::require_qcow2(&found)?;
    Ok(found)
}

pub(super) async fn run(line: &Line, console: &mut Console<'_>) -> Result<(), Error> {
    let wanted = Wanted::read(line)?;
    let (store, url) = open(line).await?;
    let (volume, backup) = url.require_backup().map_err(told)?;
    let info = store.inspect_backup(volume, backup).await.map_err(told)?;
    if wanted.backing.is_none() && !info.volume_backing_image_name.is_empty() {
        let text =
            "the volume has a backing image; without --backing-file its contents are missing";
        console.log("warning", text, &[("image", &info.volume_backing_image_name)]);
    }
    let control = Control::default();
    let work = make(&wanted, &store, (volume, backup), &control);
    let restored = watched("restoring", &control, console, work).await?;
    for damaged in &restored.damaged.blocks {
        let offset = damaged.block.offset.to_string();
        let fields = [("block", damaged.path.as_str()), ("offset", &offset)];
        console.log("warning", &format!("a block is left out: {}", damaged.damage), &fields);
    }
    if restored.damaged.is_empty() {
        return Ok(());
    }
    let (output, damaged) = (wanted.output.display(), &restored.damaged);
    Err(Error::Refused(format!("{output} is written, but it is not whole: {damaged}")))
}

async fn make(
    wanted: &Wanted,
    store: &BackupStore,
    (volume, backup): (&Name, &Name),
    control: &Control,
) -> Result<Restored, Error> {
    if wanted.needs_qemu() {
        qemu::check(control).await?;
    }
    let scratch = Scratch::beside(&wanted.output)?;
    let image = scratch.path(IMAGE);
    if let Some(backing) = &wanted.backing {
        qemu::convert((backing, Format::Qcow2), (&image, Format::Raw), control).await?;
    }
    let request = wanted.request(volume, backup);
    let begun = store.begin_restore(request, control).await.map_err(told)?;
    let sink = sink(&image, begun.plan(), wanted.backing.is_some());
    let sink = sink.map_err(|error| Error::refused(format!("cannot write {IMAGE}: {error}")))?;
    let restored = begun.run(Arc::new(sink), control).await.map_err(told)?;
    match wanted.format {
        Format::Raw => scratch.publish(IMAGE)?,
        Format::Qcow2 => {
            let converted = scratch.path(CONVERTED);
            qemu::convert((&image, Format::Raw), (&converted, Format::Qcow2), control).await?;
            scratch.publish(CONVERTED)?;
        }
    }
    Ok(restored)
}

/// An empty image, or that of the backing file with holes where the backup has blocks.
fn sink(image: &Path, plan: &Plan, is_there: bool) -> std::io::Result<FileSink> {
    if !is_there {
        return FileSink::create(image, plan.volume_bytes);
    }
    let file = File::options().write(true).open(image)?;
    if file.metadata()?.len() < plan.volume_bytes {
        file.set_len(plan.volume_bytes)?;
    }
    let sink = FileSink::open(image)?;
    for offset in plan.jobs.iter().flat_map(|job| &job.offsets) {
        sink.zero(*offset, plan.block_size.bytes())?;
    }
    Ok(sink)
}
