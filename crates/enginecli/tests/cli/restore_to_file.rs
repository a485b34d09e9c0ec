//! `backup restore-to-file`: the image is the volume, byte for byte, in the format that was asked for.

use std::fs::{self, File};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::store::Store;
use crate::world::{Outcome, fatal, run};

const BLOCK: u64 = 2 << 20;
const SIZE: u64 = 16 * BLOCK;

/// A file of that size with data at a few places; others are holes.
fn image(path: &Path, pieces: &[(u64, usize, u8)]) {
    let file = File::create(path).unwrap();
    file.set_len(SIZE).unwrap();
    for (offset, len, letter) in pieces {
        file.write_all_at(&vec![*letter; *len], *offset).unwrap();
    }
}

struct Place {
    dir: tempfile::TempDir,
    store: Store,
}

impl Place {
    /// A backup of a volume with data at the pieces.
    fn with(pieces: &[(u64, usize, u8)]) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Store::at(&dir.path().join("store"));
        let place = Self { dir, store };
        image(&place.path("volume"), pieces);
        place.store.back_up("vol", "backup-1", &place.path("volume"));
        fs::create_dir(place.path("out")).unwrap();
        place
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn restore(&self, flags: &str) -> Outcome {
        let url = self.store.url("vol", "backup-1");
        let output = self.path("out/image");
        run(&format!("backup restore-to-file {url} --output-file {} {flags}", output.display()))
    }

    fn left(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path("out")).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

fn qemu_img(words: &[&str], paths: &[&Path]) -> Option<String> {
    match Command::new("qemu-img").args(words).args(paths).output() {
        Ok(output) => {
            assert!(output.status.success(), "{words:?}: {output:?}");
            Some(String::from_utf8(output.stdout).unwrap())
        }
        Err(error) => {
            println!("skipped: qemu-img: {error}");
            None
        }
    }
}

/// The contents of an image.
fn contents(format: &str, path: &Path) -> Option<Vec<u8>> {
    let raw = path.with_extension("as-raw");
    qemu_img(&["convert", "-f", format, "-O", "raw"], &[path, &raw])?;
    let bytes = fs::read(&raw).unwrap();
    fs::remove_file(&raw).unwrap();
    Some(bytes)
}

const PIECES: &[(u64, usize, u8)] =
    &[(0, 4096, b'a'), (3 * BLOCK + 8192, 70_000, b'b'), (15 * BLOCK, BLOCK as usize, b'c')];

#[test]
fn a_raw_image_is_the_volume_and_as_sparse() {
    let place = Place::with(PIECES);
    let outcome = place.restore("--output-format raw");
    assert_eq!((outcome.exit_code, outcome.err.as_str()), (0, ""), "{}", outcome.out);
    let output = place.path("out/image");
    assert!(fs::read(&output).unwrap() == fs::read(place.path("volume")).unwrap());
    let allocated = fs::metadata(&output).unwrap().blocks() * 512;
    assert!(allocated < BLOCK + (1 << 20), "{allocated}");
    assert_eq!(place.left(), ["image"]);
}

#[test]
fn a_qcow2_image_is_the_volume() {
    let place = Place::with(PIECES);
    let output = place.path("out/image");
    if qemu_img(&["--version"], &[]).is_none() {
        return;
    }
    let outcome = place.restore("");
    assert_eq!((outcome.exit_code, outcome.err.as_str()), (0, ""), "{}", outcome.out);
    let info = qemu_img(&["info", "--output=json"], &[&output]).unwrap();
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    assert_eq!((&info["format"], &info["virtual-size"]), (&"qcow2".into(), &SIZE.into()));
    assert!(info["actual-size"].as_u64().unwrap() < BLOCK + (1 << 20), "{info}");
    assert_eq!(place.left(), ["image"]);
    assert!(contents("qcow2", &output).unwrap() == fs::read(place.path("volume")).unwrap());
}

#[test]
fn a_backing_file_shows_only_where_the_backup_has_no_block() {
    // Blocks 0, 3 and 15 are in the backup; the zeros in them hide what is below.
    let place = Place::with(PIECES);
    let (raw, backing) = (place.path("below.raw"), place.path("below.qcow2"));
    let below = File::create(&raw).unwrap();
    below.write_all_at(&vec![b'z'; 5 * BLOCK as usize], 0).unwrap();
    if qemu_img(&["convert", "-f", "raw", "-O", "qcow2"], &[&raw, &backing]).is_none() {
        return;
    }
    let mut wanted = fs::read(place.path("volume")).unwrap();
    for block in [1, 2, 4] {
        let at = (block * BLOCK) as usize;
        wanted[at..at + BLOCK as usize].fill(b'z');
    }
    for format in ["raw", "qcow2"] {
        let flags = format!("--backing-file {} --output-format {format}", backing.display());
        let outcome = place.restore(&flags);
        assert_eq!((outcome.exit_code, outcome.err.as_str()), (0, ""), "{}", outcome.out);
        assert!(contents(format, &place.path("out/image")).unwrap() == wanted, "{format}");
        assert_eq!(place.left(), ["image"]);
    }
    let refused = place.restore(&format!("--backing-file {}", raw.display()));
    assert_eq!(refused.exit_code, 1);
    assert_eq!(refused.out, "the format of backing file is not qcow2\n");
}

#[test]
fn what_fails_leaves_nothing_and_keeps_what_was_there() {
    let place = Place::with(PIECES);
    let refused = place.restore("--output-format vmdk");
    assert_eq!(refused.out, "unsupported output image format: vmdk\n");
    let broken = place.store.damage_a_block("vol");
    durable::replace(place.path("out/image"), b"older").unwrap();
    let failed = place.restore("--output-format raw");
    assert_eq!(failed.exit_code, 1);
    assert!(fatal(&failed.err).contains(&broken), "{}", failed.err);
    assert_eq!(fs::read(place.path("out/image")).unwrap(), b"older");
    assert!(place.left().iter().all(|name| !name.contains("holdfast")), "{:?}", place.left());
    // Asked to, it makes what can be made, and says what is missing.
    let outcome = place.restore("--output-format raw --continue-on-error");
    assert_eq!(outcome.exit_code, 1, "{}", outcome.out);
    assert!(fatal(&outcome.err).contains("is not whole"), "{}", outcome.err);
    assert!(outcome.err.contains("a block is left out") && outcome.err.contains(&broken));
    let (found, wanted) =
        (fs::read(place.path("out/image")).unwrap(), fs::read(place.path("volume")).unwrap());
    let differ = |at: usize| found[at..at + BLOCK as usize] != wanted[at..at + BLOCK as usize];
    let different = (0..SIZE as usize).step_by(BLOCK as usize).filter(|at| differ(*at)).count();
    assert_eq!(different, 1);
}
