//! Standby volumes: how far each is behind its source, and a button to let it take over.

use api::longhorn::{Backup, Engine, Volume};
use jiff::Timestamp;
use kube::ResourceExt as _;
use people::standby::{Following, is_standby};
use people::units::age;
use people::volume::state;

use super::volumes::{health, word};
use super::{Content, tone};
use crate::chart::{Bar, bars};
use crate::view::{Cell, Form, Section, Table, Tone, path};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let reader = visit.reader();
    let (mut volumes, engines, backups) = futures::try_join!(
        reader.volumes::<Volume>(),
        reader.volumes::<Engine>(),
        reader.volumes::<Backup>(),
    )?;
    volumes.items.retain(is_standby);
    let followers: Vec<Follower<'_>> = volumes
        .items
        .iter()
        .map(|it| Follower::of(it, &engines.items, &backups.items, visit.now))
        .collect();
    let mut content = Content::titled("Standby volumes");
    let lags: Vec<Bar> = followers.iter().filter_map(Follower::bar).collect();
    if !lags.is_empty() {
        let told = "Age of the data that each standby volume holds.".to_owned();
        content.sections.push(Section::Charts(vec![bars("Lag", told, lags)]));
    }
    content.sections.push(Section::Table(Table {
        title: "Volumes that follow the backups of others".to_owned(),
        head: &["Volume", "State", "Robustness", "Follows", "Holds", "Newest", "Lag", "Actions"],
        rows: followers.iter().map(Follower::row).collect(),
        none: "There are no standby volumes. Create one from a backup on the Backups page.",
        foot: volumes.foot(),
    }));
    Ok(content)
}

struct Follower<'a> {
    volume: &'a Volume,
    following: Following,
    /// How old what it holds is.
    lag: Option<(u64, String)>,
}

impl<'a> Follower<'a> {
    fn of(volume: &'a Volume, engines: &[Engine], backups: &[Backup], now: Timestamp) -> Self {
        let name = volume.name_any();
        let own = |it: &&Engine| it.spec.instance.volume_name.as_deref() == Some(&name);
        let following = Following::of(volume, engines.iter().find(own));
        let held = backups.iter().find(|it| it.name_any() == following.holds);
        let lag = held.and_then(people::backup::time).map(|at| {
            let seconds = now.as_second().saturating_sub(at.as_second());
            (u64::try_from(seconds).unwrap_or(0), age(at, now))
        });
        Self { volume, following, lag }
    }

    fn bar(&self) -> Option<Bar> {
        let (value, told) = self.lag.clone()?;
        Some(Bar { label: self.volume.name_any(), value, told })
    }

    fn row(&self) -> Vec<Cell> {
        let name = self.volume.name_any();
        let told = self.following.told();
        vec![
            Cell::link("/volumes", &name),
            word(state(self.volume).as_str()),
            health(self.volume),
            Cell::going(self.following.progress, tone(&told), told.clone()),
            Cell::text(self.following.holds.clone()),
            Cell::text(self.following.newest.clone()),
            Cell::text(self.lag.as_ref().map(|(_, told)| told.clone()).unwrap_or_default()),
            Cell::Forms(vec![Form {
                id: format!("activate-{name}"),
                label: "Activate",
                told: format!(
                    "Restores the newest backup and turns {name} into an ordinary volume. It stops following its source."
                ),
                action: path("/standby", &name) + "/activate",
                button: "Activate now",
                tone: Tone::Bad,
                fields: Vec::new(),
            }]),
        ]
    }
}
