//! Frontends `tgt-iscsi` and `tgt-blockdev`, with tools of the test's own that write down how
//! they were called and act as if.

use std::fs;
use std::io::Write;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

use engine::core::{Command, Mode};
use engine::frontend::{FrontendOptions, FrontendState};
use engine::volume::Volume;
use wire::frame::Request;

use crate::fake::{Fake, all_features};
use crate::{MIB, host, options, settings, write};

const IQN: &str = "iqn.2019-10.io.longhorn:my:vol";

const TGTADM: &str = r#"#!/bin/sh
dir=$(dirname "$0")
echo "tgtadm $*" >> "$dir/log"
case "$*" in
*"--op show --mode system"*) printf 'System:\n    State: ready\nBacking stores:\n    rdwr (bsoflags sync:direct)\n    longhorn\n' ;;
*"--op show --mode target"*) cat "$dir/targets" 2>/dev/null ;;
*"--op new --mode target"*)
  for last; do :; done; echo "Target 1: $last" > "$dir/targets" ;;
*"--op delete --mode target"*) rm -f "$dir/targets" ;;
esac
exit 0
"#;

const ISCSIADM: &str = r#"#!/bin/sh
dir=$(dirname "$0")
echo "iscsiadm $*" >> "$dir/log"
case "$*" in
*--login*) touch "$dir/session" ;;
*--logout*) rm -f "$dir/session" ;;
*"session -P 3"*) [ -e "$dir/session" ] || exit 21
  printf 'Target: iqn.2019-10.io.longhorn:my:vol (non-flash)\n\t\tscsi3 Channel 00 Id 0 Lun: 1\n\t\t\tAttached scsi disk sdz\t\tState: running\n' ;;
esac
exit 0
"#;

const SG_RAW: &str = "#!/bin/sh\necho \"sg_raw $*\" >> \"$(dirname \"$0\")/log\"\n";

fn install(folder: &Path, program: &str, script: &str) {
    let bin = folder.join("bin");
    fs::create_dir_all(&bin).unwrap();
    testkit::process::write_program(&bin.join(program), script).unwrap();
}

/// Calls since the last time this was asked.
fn calls(folder: &Path) -> Vec<String> {
    let log = folder.join("bin/log");
    let found = fs::read_to_string(&log).unwrap_or_default();
    let _ = fs::remove_file(log);
    found.lines().map(str::to_owned).collect()
}

/// Scripts need the shell and friends beside the tools.
fn machine(folder: &Path) -> engine::frontend::Host {
    let mut path = folder.join("bin").into_os_string();
    path.push(":/usr/bin:/bin");
    engine::frontend::Host { tools: Some(path), ..host(folder) }
}

async fn volume(folder: &Path, fake: &Fake) -> Volume {
    let volume = Volume::start_on("my_vol", settings(), machine(folder)).unwrap();
    volume.resize(MIB).await.unwrap();
    volume.attach(&fake.target(), all_features(), Mode::Rw).await.unwrap();
    volume
}

fn my_vol() -> FrontendOptions {
    FrontendOptions { volume: "my_vol".to_owned(), ..options() }
}

#[tokio::test]
async fn a_target_is_made_grown_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "tgtadm", TGTADM);
    let fake = Fake::start(2 * MIB);
    let volume = volume(folder.path(), &fake).await;
    volume.start_frontend("tgt-iscsi", &my_vol()).await.unwrap();
    assert_eq!(volume.frontend().endpoint, IQN);
    let socket = folder.path().join("longhorn-my_vol.sock");
    let mut made = calls(folder.path());
    made.dedup();
    let unit = "--mode logicalunit --tid 1 --lun 1";
    let expected = [
        "tgtadm --lld iscsi --op show --mode system".to_owned(),
        "tgtadm --lld iscsi --op show --mode target".to_owned(),
        format!("tgtadm --lld iscsi --op new --mode target --tid 1 -T {IQN}"),
        format!(
            "tgtadm --lld iscsi --op new {unit} --bstype longhorn \
             --bsopts size=1048576;request_timeout=542 -b {}",
            socket.display()
        ),
        format!("tgtadm --lld iscsi --op update {unit} --params thin_provisioning=1"),
        format!(
            "tgtadm --lld iscsi --op update {unit} --params mode_page=8:0:18:0x10:0:0xff:0xff:0:\
             0:0xff:0xff:0xff:0xff:0x80:0x14:0:0:0:0:0:0"
        ),
        "tgtadm --lld iscsi --op bind --mode target --tid 1 -I ALL".to_owned(),
    ];
    assert_eq!(made, expected);

    volume.resize(2 * MIB).await.unwrap();
    let grown = format!("tgtadm --lld iscsi --op update {unit} --params bsopts=size=2097152");
    assert_eq!(calls(folder.path()).last(), Some(&grown));

    volume.stop_frontend().await.unwrap();
    let removed = calls(folder.path());
    assert!(removed.iter().any(|call| call.contains("--op delete --mode target")), "{removed:?}");
    assert!(!socket.exists());
    assert_eq!(volume.frontend().state, FrontendState::Down);
}

/// tgt cannot pass on a flush, so each write is flushed; without it none is.
#[tokio::test]
async fn writes_are_on_disk_while_tgt_is_in_front_and_only_then() {
    let folder = tempfile::tempdir().unwrap();
    install(folder.path(), "tgtadm", TGTADM);
    let fake = Fake::start(MIB);
    let volume = volume(folder.path(), &fake).await;
    let flushes =
        || fake.seen().iter().filter(|seen| matches!(seen, Request::Flush { .. })).count();
    let before = flushes();
    write(&volume, 0, 1, 4096).await.unwrap();
    assert_eq!(flushes(), before);
    volume.start_frontend("tgt-iscsi", &my_vol()).await.unwrap();
    write(&volume, 0, 1, 4096).await.unwrap();
    assert_eq!(flushes(), before + 1);
    volume.stop_frontend().await.unwrap();
    write(&volume, 0, 1, 4096).await.unwrap();
    assert_eq!(flushes(), before + 1);
    volume.submit(Command::Flush).await.unwrap();
}

#[tokio::test]
async fn a_block_device_is_made_grown_handed_over_and_removed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path();
    install(path, "tgtadm", TGTADM);
    install(path, "iscsiadm", ISCSIADM);
    install(path, "sg_raw", SG_RAW);
    fs::create_dir_all(path.join("sys/sdz/device")).unwrap();
    fs::File::create(path.join("sys/sdz/device/timeout")).unwrap();
    fs::File::create(path.join("sys/sdz/dev")).unwrap().write_all(b"7:250\n").unwrap();
    // What a tool leaves that wrote to the path while there was no device.
    fs::create_dir_all(path.join("dev")).unwrap();
    fs::File::create(path.join("dev/my_vol")).unwrap().write_all(b"stale").unwrap();
    let fake = Fake::start(2 * MIB);
    let volume = volume(path, &fake).await;
    if let Err(error) = volume.start_frontend("tgt-blockdev", &my_vol()).await {
        let text = error.to_string();
        assert!(
            text.contains("cannot make device node") && text.contains("not permitted"),
            "{text}"
        );
        println!("skipped: {error}");
        return;
    }
    let device = path.join("dev/my_vol");
    assert_eq!(volume.frontend().endpoint, device.display().to_string());
    assert!(fs::metadata(&device).unwrap().file_type().is_block_device());
    assert_eq!(fs::read_to_string(path.join("sys/sdz/device/timeout")).unwrap(), "60");
    let made = calls(path);
    let iscsi: Vec<&str> = made
        .iter()
        .filter(|call| call.starts_with("iscsiadm"))
        .map(String::as_str)
        .skip(1)
        .collect();
    let node = format!("iscsiadm -m node -T {IQN} -p 127.0.0.1");
    let abort = "-o update -n node.session.err_timeo.abort_timeout -v 15";
    let expected = [
        "iscsiadm -m discovery -t sendtargets -p 127.0.0.1".to_owned(),
        format!("{node} {abort}"),
        format!("{node} --login"),
        "iscsiadm -m session -P 3".to_owned(),
    ];
    assert_eq!(iscsi, expected);

    volume.resize(2 * MIB).await.unwrap();
    assert_eq!(calls(path).last(), Some(&format!("{node} -R")));

    let upgraded = Volume::start_on("my_vol", settings(), machine(path)).unwrap();
    let options = FrontendOptions { upgrade: true, ..my_vol() };
    upgraded.start_frontend("tgt-blockdev", &options).await.unwrap();
    assert_eq!(calls(path), [format!("sg_raw {} a6 00 00 00 00 00", device.display())]);

    volume.stop_frontend().await.unwrap();
    assert_eq!(calls(path), [""; 0]);
    assert!(device.exists(), "the old engine took away what the new one uses");
    upgraded.stop_frontend().await.unwrap();
    let removed = calls(path);
    assert!(removed.contains(&format!("{node} --logout")), "{removed:?}");
    assert!(!device.exists());
}

#[tokio::test]
async fn missing_tools_are_named_with_their_package_and_nothing_is_left_behind() {
    let folder = tempfile::tempdir().unwrap();
    fs::create_dir(folder.path().join("bin")).unwrap();
    let volume = Volume::start_on("my_vol", settings(), host(folder.path())).unwrap();
    let refused = volume.start_frontend("tgt-iscsi", &my_vol()).await.unwrap_err().to_string();
    assert!(refused.contains("cannot find tgtadm on PATH: install tgt"), "{refused}");
    install(folder.path(), "tgtadm", TGTADM);
    let refused = volume.start_frontend("tgt-blockdev", &my_vol()).await.unwrap_err().to_string();
    assert!(refused.contains("cannot find iscsiadm on PATH: install open-iscsi"), "{refused}");
    assert!(!folder.path().join("longhorn-my_vol.sock").exists());
}

#[tokio::test]
async fn a_target_that_cannot_be_made_is_undone() {
    let folder = tempfile::tempdir().unwrap();
    let broken =
        TGTADM.replace("exit 0", "case \"$*\" in *thin_prov*) echo no >&2; exit 22;; esac");
    install(folder.path(), "tgtadm", &broken);
    let fake = Fake::start(MIB);
    let volume = volume(folder.path(), &fake).await;
    let refused = volume.start_frontend("tgt-iscsi", &my_vol()).await.unwrap_err().to_string();
    assert!(refused.contains("failed to run tgtadm") && refused.contains("no"), "{refused}");
    let made = calls(folder.path());
    assert!(made.last().is_some_and(|call| call.contains("--op delete --mode target")), "{made:?}");
    assert!(!folder.path().join("longhorn-my_vol.sock").exists());
    assert_eq!(volume.frontend().state, FrontendState::None);
}
