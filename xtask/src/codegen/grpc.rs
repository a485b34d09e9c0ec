//! Writes the Rust of the gRPC messages and services that crates of ours speak, and the
//! descriptors that reflection serves. No `protoc` takes part: the compiler is a crate.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use prost::Message as _;

/// One set of files that is generated together.
struct Set {
    proto: &'static str,
    files: &'static [&'static str],
    generated: &'static str,
    role: Role,
}

/// What a crate is in a dialect.
#[derive(Clone, Copy)]
enum Role {
    /// It calls and answers, and serves the descriptors.
    Both,
    /// It only calls; bytes fields are shared, not copied.
    Client,
}

const SETS: &[Set] = &[
    Set {
        proto: "crates/rpc/proto",
        files: &[
            "engine.proto",
            "fanout.proto",
            "health.proto",
            "profiler.proto",
            "upkeep.proto",
            "volume.proto",
        ],
        generated: "crates/rpc/src/generated",
        role: Role::Both,
    },
    Set {
        proto: "crates/etcdguard/proto",
        files: &["etcd.proto"],
        generated: "crates/etcdguard/src/etcd/generated",
        role: Role::Client,
    },
];

/// Writes the generated files below `root`, or with `check` fails if one is out of date.
pub(super) fn run(root: &Path, check: bool) -> Result<()> {
    SETS.iter().try_for_each(|set| write(set, root, check))
}

fn write(set: &Set, root: &Path, check: bool) -> Result<()> {
    let target = root.join(set.generated);
    for (name, bytes) in generate(set, root)? {
        let path = target.join(&name);
        if check {
            let present =
                std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(
                present == bytes,
                "{}/{name} is out of date: run `cargo xtask codegen`",
                set.generated
            );
        } else {
            std::fs::create_dir_all(&target)
                .with_context(|| format!("cannot make {}", target.display()))?;
            std::fs::File::create(&path)
                .and_then(|mut file| file.write_all(&bytes))
                .with_context(|| format!("cannot write {}", path.display()))?;
        }
    }
    Ok(())
}

fn generate(set: &Set, root: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let descriptors = protox::compile(set.files, [root.join(set.proto)])
        .context("cannot compile the proto files")?;
    let scratch = std::env::temp_dir().join(format!("holdfast-codegen-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let encoded = descriptors.encode_to_vec();
    let builder = tonic_prost_build::configure().out_dir(&scratch).build_transport(true);
    let builder = match set.role {
        // Blocks of a backup are passed on as they came.
        Role::Both => builder.bytes(".holdfast.agent.v1.BlockReply.block"),
        Role::Client => builder.build_server(false).bytes("."),
    };
    let built = builder
        .compile_fds(descriptors)
        .context("cannot generate Rust from the descriptors")
        .and_then(|()| collect(&scratch));
    std::fs::remove_dir_all(&scratch)?;
    let mut files = built?;
    if matches!(set.role, Role::Both) {
        files.insert("descriptors.bin".to_owned(), encoded);
    }
    Ok(files)
}

fn collect(scratch: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(scratch)? {
        let entry = entry?;
        let bytes = std::fs::read(entry.path())?;
        // Well-known types come out as a file of nothing.
        if !bytes.is_empty() {
            files.insert(entry.file_name().to_string_lossy().into_owned(), bytes);
        }
    }
    Ok(files)
}
