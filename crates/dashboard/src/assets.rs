//! The one style sheet, the one script and the icon: part of the binary, named after their contents.

use std::fmt::Write as _;
use std::sync::LazyLock;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest as _, Sha256};

/// One file.
#[derive(Debug)]
pub(crate) struct Asset {
    /// Its path: a change of contents is a change of name, so browsers may keep it for ever.
    pub(crate) path: String,
    /// For subresource integrity.
    pub(crate) integrity: String,
    pub(crate) kind: &'static str,
    pub(crate) text: &'static str,
}

impl Asset {
    fn new(stem: &str, extension: &str, kind: &'static str, text: &'static str) -> Self {
        let digest: [u8; 32] = Sha256::digest(text.as_bytes()).into();
        let short = digest.iter().take(6).fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        });
        Self {
            path: format!("/assets/{stem}-{short}.{extension}"),
            integrity: format!("sha256-{}", STANDARD.encode(digest)),
            kind,
            text,
        }
    }
}

pub(crate) static STYLE: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/dashboard.css");
    Asset::new("dashboard", "css", "text/css; charset=utf-8", text)
});
pub(crate) static SCRIPT: LazyLock<Asset> = LazyLock::new(|| {
    let text = include_str!("../assets/dashboard.js");
    Asset::new("dashboard", "js", "text/javascript; charset=utf-8", text)
});
pub(crate) static ICON: LazyLock<Asset> = LazyLock::new(|| {
    Asset::new("icon", "svg", "image/svg+xml", include_str!("../assets/icon.svg"))
});

pub(crate) fn find(path: &str) -> Option<&'static Asset> {
    [&*STYLE, &*SCRIPT, &*ICON].into_iter().find(|asset| asset.path == path)
}
