//! `backup scrub`: what is broken is found, told, kept in the report, and forgotten when it is mended.

use std::fs;
use std::os::unix::fs::FileExt;

use serde_json::Value;

use crate::store::Store;
use crate::world::{Outcome, fatal, run};

#[test]
fn a_scrub_finds_what_is_broken_and_says_since_when() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::at(&place.path().join("store"));
    for (volume, letter) in [("good", b'g'), ("vol", b'v')] {
        let image = place.path().join(volume);
        let file = fs::File::create(&image).unwrap();
        file.set_len(4 << 20).unwrap();
        file.write_all_at(&[letter; 5000], 2 << 20).unwrap();
        store.back_up(volume, "backup-1", &image);
    }
    let report_at = place.path().join("reports");
    fs::create_dir(&report_at).unwrap();
    let scrub = |flags: &str| -> Outcome {
        run(&format!(
            "backup scrub {} --once --report {} {flags}",
            store.target,
            report_at.display()
        ))
    };
    let report = || -> Value {
        let text = fs::read_to_string(report_at.join("scrub-report.json")).unwrap();
        serde_json::from_str(&text).unwrap()
    };
    let first = scrub("");
    assert_eq!((first.exit_code, first.err.as_str()), (0, ""), "{}", first.out);
    let printed: Value = serde_json::from_str(&first.out).unwrap();
    assert_eq!(printed, report());
    for volume in ["good", "vol"] {
        assert_eq!(printed["volumes"][volume]["healthy"][0], "backup-1");
        assert!(printed["volumes"][volume]["deepChecked"].is_string(), "{printed}");
    }
    // Nothing is due: the damage is not seen yet.
    let broken = store.damage_a_block("vol");
    assert_eq!(scrub("").exit_code, 0);
    let found = scrub("--deep-every 0");
    assert_eq!(found.exit_code, 1);
    assert_eq!(fatal(&found.err), "1 backups are broken, 0 volumes could not be checked");
    assert!(found.err.contains("a backup is broken") && found.err.contains("volume=vol"));
    let known = report();
    let backup = &known["volumes"]["vol"]["broken"]["backup-1"];
    assert_eq!(
        (&backup["places"][0]["path"], &backup["foundBy"]),
        (&broken.into(), &"deep".into())
    );
    assert!(known["volumes"]["good"]["broken"].as_object().unwrap().is_empty());
    // Still broken without another look, since the same moment.
    let again = scrub("--every 0 --deep-every 30d");
    assert_eq!(again.exit_code, 1);
    assert_eq!(report()["volumes"]["vol"]["broken"]["backup-1"]["since"], backup["since"]);
    let lines = run(&format!("backup rm {} ", store.url("vol", "backup-1")));
    assert_eq!(lines.exit_code, 0, "{}", lines.out);
    assert_eq!(scrub("--every 0").exit_code, 0);
    assert_eq!(store.files(".lck"), Vec::<std::path::PathBuf>::new(), "no lock was ever taken");
}

#[test]
fn a_scrub_refuses_what_it_cannot_keep_to() {
    let place = tempfile::tempdir().unwrap();
    let target = format!("vfs://{}", place.path().display());
    let refused = |line: &str| run(line).out;
    assert!(refused(&format!("backup scrub {target}")).starts_with("--report is required"));
    let bad = refused(&format!("backup scrub {target} --once --every soon"));
    assert_eq!(bad, "--every: \"soon\" is not a time, as in 12h or 7d\n");
    let report = place.path().join("r.json");
    durable::replace(&report, br#"{"target":"vfs:///other","updated":null,"volumes":{}}"#).unwrap();
    let other = refused(&format!("backup scrub {target} --once --report {}", report.display()));
    assert!(other.contains("the report of another target, vfs:///other"), "{other}");
    durable::replace(&report, b"noise").unwrap();
    let noise = refused(&format!("backup scrub {target} --once --report {}", report.display()));
    assert!(noise.contains("it is not a report of a scrub"), "{noise}");
}

#[test]
fn backing_images_are_checked_and_cleaned_like_volumes() {
    let place = tempfile::tempdir().unwrap();
    let store = Store::at(&place.path().join("store"));
    for (image, letter) in [("image-1", b'a'), ("image-2", b'b')] {
        let file = place.path().join(image);
        durable::replace(&file, &[letter; 3000]).unwrap();
        let url = format!("{}?backingImage={image}", store.target);
        let stored = run(&format!("backup create-backing-image {} {url}", file.display()));
        assert_eq!(stored.exit_code, 0, "{}", stored.out);
    }
    let verify = |flags: &str| run(&format!("backup verify {} {flags}", store.target));
    let gc = |flags: &str| -> Value {
        let done = run(&format!("backup gc --backing-images {} {flags}", store.target));
        assert_eq!(done.exit_code, 0, "{}", done.out);
        serde_json::from_str(&done.out).unwrap()
    };
    let none = verify("");
    assert!(none.out.contains("--volume, or ask for --backing-images"), "{}", none.out);
    let both = verify("--volume vol --backing-images");
    assert!(both.out.contains("one after the other"), "{}", both.out);
    let sound = verify("--backing-images --deep");
    assert_eq!(sound.exit_code, 0, "{}", sound.out);
    let report: Value = serde_json::from_str(&sound.out).unwrap();
    assert_eq!((&report["kind"], &report["checkedBlocks"]), (&"backingImages".into(), &2.into()));
    // Spoiled: found by a deep look and by a scrub of all there is.
    let broken = store.damage_a_block("backing-images");
    assert_eq!(verify("--backing-images").exit_code, 0);
    let found = run(&format!("backup verify {}?backingImage=image-1 --deep", store.target));
    assert_eq!(found.exit_code, 1);
    assert_eq!(fatal(&found.err), "1 backing images are damaged, 0 cannot be read");
    let scrub = |flags: &str| run(&format!("backup scrub {} --once {flags}", store.target));
    let found = scrub("");
    let text = "0 backups are broken, 1 backing images, too, 0 volumes could not be checked";
    assert_eq!((found.exit_code, fatal(&found.err).as_str()), (1, text));
    assert!(found.err.contains("a backing image is broken"), "{}", found.err);
    let json = found.out.rsplit_once("\n0 backups").unwrap().0;
    let report: Value = serde_json::from_str(json).unwrap();
    let images = report["backingImages"]["broken"].as_object().unwrap();
    let (image, of) = images.iter().next().unwrap();
    assert_eq!((&of["places"][0]["path"], &of["foundBy"]), (&broken.into(), &"deep".into()));
    // Its record goes astray: its block is garbage, and only that.
    let record = store.files(&format!("{image}/backing-image.cfg")).remove(0);
    fs::remove_file(record).unwrap();
    let dry = gc("--dry-run");
    assert_eq!((&dry["orphanBlocks"], &dry["removedBlocks"]), (&1.into(), &0.into()));
    assert_eq!(store.files(".blk").len(), 2);
    assert_eq!(gc("")["removedBlocks"], 1);
    assert_eq!(store.files(".blk").len(), 1);
    assert_eq!(scrub("--backing-images").exit_code, 0);
}
