//! The engine image: which engine this build brings.
//!
//! There are no container images here: the name says which program runs a volume. This build's own
//! engine has a name of its own; a node may have programs of other names.

use std::collections::BTreeMap;

use api::longhorn::{EngineImage, EngineImageSpec, EngineImageState, EngineImageStatus, Node};
use reconcile::{Failure, Key, Store};

use crate::NAMESPACE;

/// The name of this build's engine.
pub const DEFAULT: &str = concat!("holdfast/engine:v", env!("CARGO_PKG_VERSION"));

/// Versions of the dialect that this build's engine speaks, as its own `version` command tells.
const CLI_API: (i32, i32) = (12, 8);
const CONTROLLER_API: (i32, i32) = (6, 4);
const DATA_FORMAT: (i32, i32) = (1, 1);

/// From this version of its command line on, an engine rebuilds replicas from a backup.
pub const CLI_API_WITH_RESTORE_REBUILD: i32 = 4;

/// Name of the object of an image.
pub fn object_name(image: &str) -> String {
    // The same for the same image, on every machine and in every run.
    let hash = image
        .bytes()
        .fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("ei-{hash:08x}")
}

/// Keeps the object of this build's engine: it is deployed wherever a node is.
pub(crate) async fn keep(
    images: &Store<EngineImage>,
    nodes: &Store<Node>,
    references: usize,
) -> Result<(), Failure> {
    let key = Key::new(NAMESPACE, &object_name(DEFAULT));
    let known = match images.get(&key) {
        Some(known) => known,
        None if images.is_broken(&key) => return Ok(()),
        None => {
            let spec = EngineImageSpec { image: Some(DEFAULT.to_owned()) };
            let mut made = EngineImage::new(&key.name, spec);
            made.metadata.namespace = Some(NAMESPACE.to_owned());
            images.create(&made).await?
        }
    };
    let deployed: BTreeMap<String, bool> =
        nodes.list().iter().filter_map(|node| Some((node.metadata.name.clone()?, true))).collect();
    let mut next = known.as_ref().clone();
    next.status = Some(EngineImageStatus {
        state: Some(EngineImageState::Deployed),
        ref_count: Some(i32::try_from(references).unwrap_or(i32::MAX)),
        incompatible: Some(false),
        node_deployment_map: Some(deployed),
        version: Some(concat!("v", env!("CARGO_PKG_VERSION")).to_owned()),
        cli_api_version: Some(CLI_API.0),
        cli_api_min_version: Some(CLI_API.1),
        controller_api_version: Some(CONTROLLER_API.0),
        controller_api_min_version: Some(CONTROLLER_API.1),
        data_format_version: Some(DATA_FORMAT.0),
        data_format_min_version: Some(DATA_FORMAT.1),
        ..known.status.clone().unwrap_or_default()
    });
    images.update(&known, &next).await.map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_image_has_one_name() {
        assert_eq!(object_name(DEFAULT), object_name(DEFAULT));
        assert_ne!(object_name("a"), object_name("b"));
        assert_eq!(object_name("a").len(), 11);
    }
}
