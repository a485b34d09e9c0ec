//! The sync agent: the long file work beside a replica.

use std::ops::RangeInclusive;
use std::path::PathBuf;

/// The flags of `sync-agent`.
#[derive(Debug, Clone)]
pub struct AgentOptions {
    /// The replica's directory.
    pub dir: PathBuf,
    pub volume_name: String,
    pub instance_name: String,
    pub listen: String,
    /// Control address of the replica this agent belongs to.
    pub replica: String,
    /// Ports for file receivers.
    pub ports: RangeInclusive<u16>,
}
