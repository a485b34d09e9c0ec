//! What this build is.

/// The commit, if the build was told it.
const COMMIT: Option<&str> = option_env!("HOLDFAST_COMMIT");

/// Four lines of the log.
pub(crate) fn tell() {
    tracing::info!("etcd-backup-restore Version: {}", env!("CARGO_PKG_VERSION"));
    tracing::info!("Git SHA: {}", COMMIT.unwrap_or("unknown"));
    tracing::info!("Rust Version: {}", env!("CARGO_PKG_RUST_VERSION"));
    tracing::info!("OS/Arch: {}/{}", std::env::consts::OS, std::env::consts::ARCH);
}
