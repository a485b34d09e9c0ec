//! Engine images: which programs can serve volumes, and where.
//!
//! There are no container images here: the name says which program runs a volume. This build's own
//! engine has a name of its own; a node may have programs of other names, and says which
//! ([`crate::node`]).

use std::collections::{BTreeMap, BTreeSet};

use api::longhorn::{
    EngineImage, EngineImageSpec, EngineImageState, EngineImageStatus, Node, Volume,
};
use reconcile::{Failure, Key, Store};

use crate::NAMESPACE;

/// The name of this build's engine.
pub const DEFAULT: &str = concat!("holdfast/engine:v", env!("CARGO_PKG_VERSION"));

/// How the names of ours begin, of whatever version.
pub(crate) const OURS: &str = "holdfast/engine:";

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

/// Keeps the object of this build's engine, and says of all of them whether they can be used: this
/// build's is wherever a node is, of others each node says whether it has the program.
pub(crate) async fn keep(
    images: &Store<EngineImage>,
    nodes: &Store<Node>,
    volumes: &Store<Volume>,
) -> Result<(), Failure> {
    let key = Key::new(NAMESPACE, &object_name(DEFAULT));
    if images.get(&key).is_none() && !images.is_broken(&key) {
        let spec = EngineImageSpec { image: Some(DEFAULT.to_owned()) };
        let mut made = EngineImage::new(&key.name, spec);
        made.metadata.namespace = Some(NAMESPACE.to_owned());
        images.create(&made).await?;
    }
    let there: BTreeSet<String> =
        nodes.list().iter().filter_map(|node| node.metadata.name.clone()).collect();
    let mut used: BTreeMap<String, usize> = BTreeMap::new();
    for volume in volumes.list() {
        let current = volume.status.as_ref().and_then(|it| it.current_image.clone());
        *used.entry(current.unwrap_or_default()).or_default() += 1;
    }
    for known in images.list() {
        let name = known.spec.image.clone().unwrap_or_default();
        let count = used.get(&name).copied().unwrap_or(0);
        let status = judged(known.status.clone().unwrap_or_default(), &name, &there, count);
        let next = EngineImage { status: Some(status), ..known.as_ref().clone() };
        images.update(&known, &next).await?;
    }
    Ok(())
}

/// How an image is, from what nodes say of it.
fn judged(
    known: EngineImageStatus,
    image: &str,
    nodes: &BTreeSet<String>,
    used: usize,
) -> EngineImageStatus {
    let mut status = if image == DEFAULT { own(known, nodes) } else { of_nodes(known, nodes) };
    status.ref_count = Some(i32::try_from(used).unwrap_or(i32::MAX));
    status
}

fn own(known: EngineImageStatus, nodes: &BTreeSet<String>) -> EngineImageStatus {
    EngineImageStatus {
        state: Some(EngineImageState::Deployed),
        incompatible: Some(false),
        node_deployment_map: Some(nodes.iter().map(|node| (node.clone(), true)).collect()),
        version: Some(concat!("v", env!("CARGO_PKG_VERSION")).to_owned()),
        cli_api_version: Some(CLI_API.0),
        cli_api_min_version: Some(CLI_API.1),
        controller_api_version: Some(CONTROLLER_API.0),
        controller_api_min_version: Some(CONTROLLER_API.1),
        data_format_version: Some(DATA_FORMAT.0),
        data_format_min_version: Some(DATA_FORMAT.1),
        ..known
    }
}

fn of_nodes(mut known: EngineImageStatus, nodes: &BTreeSet<String>) -> EngineImageStatus {
    if let Some(map) = &mut known.node_deployment_map {
        map.retain(|node, _| nodes.contains(node));
    }
    let is_anywhere = known.node_deployment_map.iter().flatten().any(|(_, is)| *is);
    // Engines of later days say how old a caller may be.
    let speaks = known.cli_api_version.is_some();
    let incompatible = known.cli_api_min_version.is_some_and(|oldest| oldest > CLI_API.0);
    known.incompatible = Some(incompatible);
    known.state = Some(match (is_anywhere && speaks, incompatible) {
        (true, true) => EngineImageState::Incompatible,
        (true, false) => EngineImageState::Deployed,
        (false, _) => EngineImageState::Deploying,
    });
    known
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

    #[test]
    fn an_image_can_be_used_where_a_node_has_it_and_this_build_can_speak_with_it() {
        let nodes = BTreeSet::from(["n1".to_owned(), "n2".to_owned()]);
        let said = |map: &[(&str, bool)], cli: Option<(i32, i32)>| {
            let known = EngineImageStatus {
                node_deployment_map: Some(map.iter().map(|(n, is)| ((*n).into(), *is)).collect()),
                cli_api_version: cli.map(|it| it.0),
                cli_api_min_version: cli.map(|it| it.1),
                ..EngineImageStatus::default()
            };
            judged(known, "other/engine:1", &nodes, 2).state.unwrap()
        };
        let ours = Some((CLI_API.0, 1));
        assert_eq!(said(&[("n1", true), ("n2", false)], ours), EngineImageState::Deployed);
        assert_eq!(said(&[("n1", false)], ours), EngineImageState::Deploying);
        assert_eq!(said(&[("gone", true)], ours), EngineImageState::Deploying);
        let later = Some((CLI_API.0 + 9, CLI_API.0 + 1));
        assert_eq!(said(&[("n1", true)], later), EngineImageState::Incompatible);
        let own = judged(EngineImageStatus::default(), DEFAULT, &nodes, 2);
        assert_eq!((own.ref_count, own.node_deployment_map.unwrap().len()), (Some(2), 2));
    }
}
