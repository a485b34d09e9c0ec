//! Writes the Rust of the gRPC messages and services in `crates/rpc/proto`, and the descriptors
//! that reflection serves. No `protoc` takes part: the compiler is a crate.

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use prost::Message as _;

const PROTO: &str = "crates/rpc/proto";
const GENERATED: &str = "crates/rpc/src/generated";
const FILES: &[&str] =
    &["engine.proto", "fanout.proto", "health.proto", "profiler.proto", "upkeep.proto"];

/// Writes the generated files below `root`, or with `check` fails if one is out of date.
pub(super) fn run(root: &Path, check: bool) -> Result<()> {
    let target = root.join(GENERATED);
    for (name, bytes) in generate(&root.join(PROTO))? {
        let path = target.join(&name);
        if check {
            let present =
                std::fs::read(&path).with_context(|| format!("cannot read {}", path.display()))?;
            ensure!(
                present == bytes,
                "{GENERATED}/{name} is out of date: run `cargo xtask codegen`"
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

fn generate(proto: &Path) -> Result<BTreeMap<String, Vec<u8>>> {
    let descriptors = protox::compile(FILES, [proto]).context("cannot compile the proto files")?;
    let scratch = std::env::temp_dir().join(format!("holdfast-codegen-{}", std::process::id()));
    std::fs::create_dir_all(&scratch)?;
    let encoded = descriptors.encode_to_vec();
    let built = tonic_prost_build::configure()
        .out_dir(&scratch)
        .build_transport(true)
        // Passed on as they came.
        .bytes(".holdfast.agent.v1.BlockReply.block")
        .compile_fds(descriptors)
        .context("cannot generate Rust from the descriptors")
        .and_then(|()| collect(&scratch));
    std::fs::remove_dir_all(&scratch)?;
    let mut files = built?;
    files.insert("descriptors.bin".to_owned(), encoded);
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
