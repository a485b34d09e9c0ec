//! The stores backups go to.

use api::longhorn::BackupTarget;
use jiff::Timestamp;
use kube::ResourceExt as _;
use people::target::{has_url, reachable, why};
use people::units::age;

use super::{Content, tone};
use crate::view::{Cell, Form, Section, Table, Tone, path};
use crate::visit::Visit;
use crate::web::Oops;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let targets = visit.reader().volumes::<BackupTarget>().await?;
    let mut content = Content::titled("Targets");
    content.sections.push(Section::Table(Table {
        title: "Backup targets".to_owned(),
        head: &["Target", "URL", "Reachable", "Last checked", "Backups", "Why", "Actions"],
        rows: targets.items.iter().map(|it| row(it, visit.now)).collect(),
        none: "There are no targets. Set one with holdfast target set.",
        foot: targets.foot(),
    }));
    Ok(content)
}

fn row(target: &BackupTarget, now: Timestamp) -> Vec<Cell> {
    let name = target.name_any();
    let status = target.status.clone().unwrap_or_default();
    let looked = status.last_synced_at.map(|it| age(it.timestamp(), now) + " ago");
    let verified = status.verification.unwrap_or_default();
    let result = verified.result.unwrap_or_default().to_lowercase();
    let word = reachable(target);
    let damage = verified.message.filter(|_| result == "damaged").unwrap_or_default();
    let told: Vec<_> = [why(target), damage].into_iter().filter(|it| !it.is_empty()).collect();
    let look = Form {
        id: format!("look-{name}"),
        label: "Check",
        told: format!("Checks target {name} now instead of at the next poll."),
        action: path("/targets", &name) + "/look",
        button: "Check now",
        tone: Tone::Plain,
        fields: Vec::new(),
    };
    vec![
        Cell::text(name),
        Cell::text(
            target.spec.backup_target_url.as_deref().map(people::redact::url).unwrap_or_default(),
        ),
        Cell::badge(tone(word), word),
        Cell::text(looked.unwrap_or_else(|| "never".to_owned())),
        match result.as_str() {
            "" => Cell::text("never verified"),
            "damaged" => Cell::badge(Tone::Bad, result),
            other => Cell::badge(tone(other), other),
        },
        Cell::text(told.join("; ")),
        Cell::Forms(if has_url(target) { vec![look] } else { Vec::new() }),
    ]
}
