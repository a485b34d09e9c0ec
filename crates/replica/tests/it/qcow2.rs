//! Backing files in qcow2, made by the tool everybody makes them with and compared with the raw
//! image they were made from. Without that tool these tests say so and pass.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use replica::{Error, OpenRequest, Options, Replica};
use tempfile::TempDir;

use crate::place::{NOW, Place, SECTOR, pattern, read_head, read_snapshot};

const MIB: usize = 1 << 20;
/// Of the raw image; no multiple of any cluster.
const LEN: usize = 5 * MIB + 3 * 512;

struct Images {
    dir: TempDir,
    raw: Vec<u8>,
}

impl Images {
    /// A raw image with data, stretches of zeros, and what compresses badly.
    fn new() -> Option<Self> {
        if Command::new("qemu-img").arg("--version").output().is_err() {
            eprintln!("skipped: qemu-img is not installed");
            return None;
        }
        let mut raw = vec![0; LEN];
        raw[..300_000].copy_from_slice(&pattern(300_000, 3));
        let mut state = 1u32;
        for byte in &mut raw[MIB + 4096..2 * MIB] {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            *byte = state.to_be_bytes()[0];
        }
        raw[3 * MIB + 700..3 * MIB + 710].fill(9);
        raw[LEN - 5..].fill(7);
        let images = Self { dir: tempfile::tempdir().unwrap(), raw };
        durable::replace(images.path("raw"), &images.raw).unwrap();
        Some(images)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The raw image in qcow2.
    fn convert(&self, name: &str, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        let mut command = Command::new("qemu-img");
        command.args(["convert", "-f", "raw", "-O", "qcow2"]).args(options);
        run(command.arg(self.path("raw")).arg(&path));
        path
    }

    fn create(&self, name: &str, options: &[&str]) -> PathBuf {
        let path = self.path(name);
        let mut command = Command::new("qemu-img");
        command.args(["create", "-q", "-f", "qcow2"]).args(options).current_dir(self.dir.path());
        run(command.arg(&path).arg("1M"));
        path
    }
}

fn run(command: &mut Command) {
    let output = command.output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

fn create(place: &Place, backing: &Path, size: usize) -> Result<Replica, Error> {
    let options = Options { backing_file: Some(backing.to_owned()), ..Options::default() };
    let mut replica = Replica::new(place.path(), options);
    replica.create(i64::try_from(size).unwrap(), NOW)?;
    replica.open(&OpenRequest::default())?;
    Ok(replica)
}

#[test]
fn a_qcow2_backing_file_reads_as_the_raw_image_it_was_made_from() {
    let Some(images) = Images::new() else { return };
    let forms: [&[&str]; 7] = [
        &[],
        &["-o", "compat=0.10"],
        &["-o", "cluster_size=512"],
        &["-o", "cluster_size=2M"],
        &["-c"],
        &["-c", "-o", "cluster_size=4k"],
        &["-c", "-o", "cluster_size=2M"],
    ];
    for (number, form) in forms.into_iter().enumerate() {
        let backing = images.convert(&format!("image-{number}"), form);
        let place = Place::new();
        // Longer than the image: the rest is zeros.
        let mut replica = create(&place, &backing, 6 * MIB).unwrap();
        let mut expected = images.raw.clone();
        expected.resize(6 * MIB, 0);
        assert!(read_head(&mut replica) == expected, "{form:?}");
        for (offset, len) in [(0, 1), (65_535, 2), (MIB - 1, 8192), (LEN - 10, 20)] {
            let mut found = vec![0xee; len];
            replica.read_at(&mut found, offset as u64).unwrap();
            assert!(found == expected[offset..offset + len], "{form:?} at {offset}");
        }
    }
}

#[test]
fn layers_lie_on_a_qcow2_backing_file_as_on_a_raw_one() {
    let Some(images) = Images::new() else { return };
    let backing = images.convert("image", &["-c"]);
    let before = std::fs::read(&backing).unwrap();
    let place = Place::new();
    let mut replica = create(&place, &backing, 6 * MIB).unwrap();
    let mut expected = images.raw.clone();
    expected.resize(6 * MIB, 0);
    // A part of a sector: the rest of it comes out of the image.
    replica.write_at(&[5; 100], 4096 + 50).unwrap();
    expected[4146..4246].fill(5);
    replica.snapshot("a", true, NOW, None).unwrap();
    let snapshot = expected.clone();
    replica.write_zeroes_at(0, 2 * SECTOR).unwrap();
    expected[..8192].fill(0);
    replica.unmap_at(MIB as u64, MIB as u64).unwrap();
    replica.close().unwrap();
    let mut replica = place.opened();
    assert!(read_head(&mut replica) == expected);
    assert!(read_snapshot(&place.path(), "a") == snapshot);
    let mut data = 0;
    replica.block_status(0, 6 << 20, |run| data += u64::from(run.is_data) * run.len_bytes).unwrap();
    assert!(data > 0 && data < 3 << 20, "what the image does not hold is known: {data}");
    assert!(std::fs::read(&backing).unwrap() == before, "it is never written");
}

#[test]
fn zero_clusters_read_zeros() {
    let Some(images) = Images::new() else { return };
    let backing = images.convert("image", &[]);
    if Command::new("qemu-io").arg("--version").output().is_err() {
        eprintln!("skipped: qemu-io is not installed");
        return;
    }
    run(Command::new("qemu-io").args(["-f", "qcow2", "-c", "write -z 0 128k"]).arg(&backing));
    let mut expected = images.raw.clone();
    expected[..128 * 1024].fill(0);
    expected.resize(6 * MIB, 0);
    let place = Place::new();
    let mut replica = create(&place, &backing, 6 * MIB).unwrap();
    assert!(read_head(&mut replica) == expected);
}

#[test]
fn what_cannot_be_read_is_refused_with_the_reason() {
    let Some(images) = Images::new() else { return };
    images.create("below", &[]);
    let cases: [(&[&str], &str); 3] = [
        (&["-b", "below", "-F", "qcow2"], "it has a backing file of its own; flatten it first"),
        (&["-o", "data_file=data.raw"], "it keeps its data in another file"),
        (&["-o", "extended_l2=on"], "it needs features that are not known: 0x10"),
    ];
    for (number, (options, reason)) in cases.into_iter().enumerate() {
        let backing = images.create(&format!("image-{number}"), options);
        let place = Place::new();
        let text = create(&place, &backing, MIB).unwrap_err().text();
        assert_eq!(text, format!("cannot read the qcow2 image {}: {reason}", backing.display()));
        assert!(!place.path().exists(), "nothing is left of it");
    }
}

/// Every field and table entry of small images set to hostile values, one at a time: an error or
/// some contents, never a panic, a hang or a large allocation.
#[test]
fn a_hostile_image_is_an_error_or_is_read() {
    let Some(images) = Images::new() else { return };
    for options in [&["-c", "-o", "cluster_size=512"][..], &["-o", "cluster_size=64k"]] {
        let backing = images.convert("hostile", options);
        let good = std::fs::read(&backing).unwrap();
        let file = File::options().write(true).open(&backing).unwrap();
        let number = |at: usize| u64::from_be_bytes(*good[at..].first_chunk().unwrap());
        let first = usize::try_from(number(40)).unwrap();
        let second = usize::try_from(number(first) & 0x00ff_ffff_ffff_fe00).unwrap();
        let places = (4..112).step_by(4).chain([first, second, second + 8]);
        let mut refused = 0;
        for at in places {
            for value in [0, 1, 1 << 62, u64::MAX, 0x4000_0000_0000_0fff, 0x0000_ffff_ffff_0000] {
                file.write_all_at(&value.to_be_bytes(), at as u64).unwrap();
                let place = Place::in_memory();
                let read = create(&place, &backing, MIB).and_then(|mut replica| {
                    let mut found = vec![0; 64 * 1024];
                    replica.read_at(&mut found, 0)
                });
                if let Err(error) = read {
                    refused += 1;
                    assert!(error.text().starts_with("cannot read the qcow2 image "), "{error:?}");
                }
            }
            file.write_all_at(&good[at..at + 8], at as u64).unwrap();
        }
        assert!(refused > 20, "{refused}");
        std::fs::remove_file(&backing).unwrap();
    }
}

#[test]
fn an_image_that_is_cut_off_is_an_error() {
    let Some(images) = Images::new() else { return };
    let backing = images.convert("image", &["-c"]);
    let file = File::options().write(true).open(&backing).unwrap();
    let len = file.metadata().unwrap().len();
    for len in [len / 2, 3 * 65_536, 65_536, 103, 71, 4] {
        file.set_len(len).unwrap();
        let place = Place::in_memory();
        let read = create(&place, &backing, 6 * MIB).and_then(|mut replica| {
            let mut found = vec![0; 6 * MIB];
            replica.read_at(&mut found, 0)
        });
        assert!(read.unwrap_err().text().starts_with("cannot read the qcow2 image "), "{len}");
    }
}
