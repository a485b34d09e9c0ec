//! Volumes of the Block Storage API, with both of their status fields.

use super::Content;
use super::volumes::word;
use crate::blocks::{Backup, Volume};
use crate::view::{Cell, Section, Table};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let mut content = Content::titled("Block Storage");
    let Some(blocks) = visit.app.blocks() else { return Err(Oops::NoPage) };
    // The service has no users of its own here: whoever may list all volumes may see these.
    if visit.reader().volumes::<api::longhorn::Volume>().await?.is_hidden {
        return Err(Oops::Hidden("volumes".to_owned()));
    }
    let (volumes, backups) = match futures::try_join!(blocks.volumes(), blocks.backups()) {
        Ok(both) => both,
        Err(error) => {
            content.sections.push(Section::Hint(error.to_string()));
            return Ok(content);
        }
    };
    content.sections.push(Section::Table(Table {
        title: "Volumes".to_owned(),
        head: &["Name", "Id", "Project", "Size", "status", "backup_status"],
        rows: volumes.into_iter().map(volume).collect(),
        none: "There are no volumes. Create one with openstack volume create.",
        foot: None,
    }));
    content.sections.push(Section::Table(Table {
        title: "Backups".to_owned(),
        head: &["Name", "Id", "Volume", "Size", "status", "Why"],
        rows: backups.into_iter().map(backup).collect(),
        none: "There are no backups.",
        foot: None,
    }));
    Ok(content)
}

fn volume(it: Volume) -> Vec<Cell> {
    vec![
        Cell::text(it.name.unwrap_or_default()),
        Cell::text(it.id),
        Cell::text(it.project.unwrap_or_default()),
        Cell::text(format!("{} GiB", it.size)),
        word(&it.status),
        word(it.backup_status.as_deref().unwrap_or_default()),
    ]
}

fn backup(it: Backup) -> Vec<Cell> {
    vec![
        Cell::text(it.name.unwrap_or_default()),
        Cell::text(it.id),
        Cell::text(it.volume_id.unwrap_or_default()),
        Cell::text(it.size.map(|it| format!("{it} GiB")).unwrap_or_default()),
        word(&it.status),
        Cell::text(it.fail_reason.unwrap_or_default()),
    ]
}
