//! `qemu-img`, which knows the formats of disk images. Formats are always said, never guessed: what a
//! guest wrote to its disk must not be taken for an image. It ends with the operation it is run for.

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;
use std::process::Stdio;

use backupstore::Control;
use tokio::process::Command;

use super::error::Error;

const PROGRAM: &str = "qemu-img";
const QCOW2_MAGIC: [u8; 4] = *b"QFI\xfb";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Format {
    Raw,
    Qcow2,
}

impl Format {
    pub(super) fn parse(text: &str) -> Result<Self, Error> {
        match text {
            "raw" => Ok(Self::Raw),
            "qcow2" => Ok(Self::Qcow2),
            other => Err(Error::refused(format!("unsupported output image format: {other}"))),
        }
    }

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Raw => "raw",
            Self::Qcow2 => "qcow2",
        }
    }
}

/// Whether the program is there, asked before anything is fetched in vain.
pub(super) async fn check(control: &Control) -> Result<(), Error> {
    run(&["--version"], &[], control).await
}

/// Writes the contents of `from` to a new image `to`; holes stay holes. Both are absolute: a name with
/// a colon in it would mean something else.
pub(super) async fn convert(
    (from, as_format): (&Path, Format),
    (to, to_format): (&Path, Format),
    control: &Control,
) -> Result<(), Error> {
    let words = ["convert", "-f", as_format.name(), "-O", to_format.name()];
    run(&words, &[from, to], control).await
}

async fn run(words: &[&str], paths: &[&Path], control: &Control) -> Result<(), Error> {
    let mut command = Command::new(PROGRAM);
    command.args(words).args(paths).kill_on_drop(true);
    let output = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped()).output();
    let output = tokio::select! {
        output = output => output,
        () = control.cancelled() => return Err(Error::refused("the operation was cancelled")),
    };
    let output = output.map_err(|error| {
        Error::refused(format!(
            "cannot run {PROGRAM}, which is needed for all but raw images without a backing file: \
             {error}"
        ))
    })?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(Error::refused(format!(
        "{PROGRAM} {}: {}: {}",
        words.join(" "),
        output.status,
        said.trim()
    )))
}

pub(super) fn require_qcow2(path: &Path) -> Result<(), Error> {
    let refused =
        |error: io::Error| Error::refused(format!("cannot read {}: {error}", path.display()));
    let mut magic = Vec::new();
    File::open(path).map_err(refused)?.take(4).read_to_end(&mut magic).map_err(refused)?;
    if magic == QCOW2_MAGIC {
        Ok(())
    } else {
        Err(Error::refused("the format of backing file is not qcow2"))
    }
}
