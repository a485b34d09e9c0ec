//! Starting the etcd of a test.

use std::time::Duration;

use etcdguard::etcd::{ConnectionConfig, Etcd};
use testkit::etcd::{Member, program};
use testkit::process::Scratch;

pub(crate) const TIMEOUT: Duration = Duration::from_mins(2);

/// One member and its files.
pub(crate) struct Alone {
    pub(crate) member: Member,
    pub(crate) scratch: Scratch,
}

impl Alone {
    /// None, and the reason printed, where no etcd is installed.
    pub(crate) fn start() -> Option<Self> {
        if let Err(why) = program("etcd") {
            eprintln!("skipped: {why}");
            return None;
        }
        let scratch = Scratch::new().unwrap();
        let member = Member::alone(scratch.path()).unwrap();
        Some(Self { member, scratch })
    }

    pub(crate) fn config(&self) -> ConnectionConfig {
        ConnectionConfig {
            endpoints: vec![self.member.seat.client.clone()],
            ..ConnectionConfig::default()
        }
    }

    pub(crate) fn connect(&self) -> Etcd {
        Etcd::connect(&self.config()).unwrap()
    }
}
