//! Backups and restores of namespaces, with their places in the queue.

use api::nonadmin::{NonAdminBackup, NonAdminRestore};
use jiff::Timestamp;
use kube::ResourceExt as _;
use people::snapshot::named;
use people::tenant::{self, Told};

use super::volumes::word;
use super::{Content, tone};
use crate::view::{Cell, Field, Form, Input, Section, Table, Tone, path};
use crate::visit::Visit;
use crate::web::Oops;

const BACKUPS: &[&str] =
    &["Namespace", "Name", "Request", "Executor", "Queue", "Age", "Why", "Actions"];
/// With a restore that was asked for there is nothing to do.
const RESTORES: &[&str] = &["Namespace", "Name", "Request", "Executor", "Queue", "Age", "Why"];

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let reader = visit.reader();
    let (backups, restores) = futures::try_join!(
        reader.everywhere::<NonAdminBackup>(),
        reader.everywhere::<NonAdminRestore>(),
    )?;
    let mut content = Content::titled("Namespaces");
    let standing = &visit.session.standing;
    content.forms = vec![back_up(&standing.namespaces, visit.now)];
    if backups.is_hidden && standing.namespaces.is_empty() {
        let told = "You are not allowed to list all namespaces: sign in again and enter yours.";
        content.sections.push(Section::Hint(told.to_owned()));
    }
    let mut queue: Vec<_> = backups.items.iter().collect();
    queue.sort_by_key(|it| (place(it), std::cmp::Reverse(people::made(*it))));
    let rows = queue.into_iter().map(|it| {
        let told = tenant::backup(it);
        cells(it, &told, forms(it, &told, visit.now), visit.now)
    });
    content.sections.push(Section::Table(Table {
        title: "Backups".to_owned(),
        head: BACKUPS,
        rows: rows.collect(),
        none: "No namespace backups have been requested.",
        foot: backups.foot(),
    }));
    let rows = restores.items.iter().map(|it| {
        let told = tenant::restore(it);
        cells(it, &told, Vec::new(), visit.now)
    });
    content.sections.push(Section::Table(Table {
        title: "Restores".to_owned(),
        head: RESTORES,
        rows: rows.collect(),
        none: "No namespace restores have been requested.",
        foot: restores.foot(),
    }));
    Ok(content)
}

/// Those that wait come first, by their places.
fn place(backup: &NonAdminBackup) -> i64 {
    tenant::backup(backup).place.filter(|it| *it > 0).unwrap_or(i64::MAX)
}

fn back_up(namespaces: &[String], now: Timestamp) -> Form {
    let input = if namespaces.is_empty() {
        Input::Text { pattern: "[a-z0-9]([a-z0-9\\-]*[a-z0-9])?", title: "Name of a namespace" }
    } else {
        Input::Choice(namespaces.to_vec())
    };
    let namespace = Field {
        name: "namespace",
        label: "Namespace",
        value: namespaces.first().cloned().unwrap_or_default(),
        input,
        is_required: true,
    };
    Form {
        id: "back-up-namespace".to_owned(),
        label: "Back up a namespace",
        told: "Backs up everything in a namespace.".to_owned(),
        action: "/tenants".to_owned(),
        button: "Back up now",
        tone: Tone::Good,
        fields: vec![namespace, Field::name("Name of the backup", named("backup", now))],
    }
}

fn cells<K: kube::Resource>(
    object: &K,
    told: &Told,
    forms: Vec<Form>,
    now: Timestamp,
) -> Vec<Cell> {
    let place = told.place.filter(|it| *it > 0);
    vec![
        Cell::text(object.namespace().unwrap_or_default()),
        Cell::text(object.name_any()),
        word(told.phase()),
        word(&told.executor),
        place.map_or_else(
            || Cell::text(""),
            |it| Cell::badge(tone("Queued"), format!("place {it}")),
        ),
        Cell::text(people::age(object, now)),
        Cell::text(told.why.clone()),
        Cell::Forms(forms),
    ]
}

fn forms(backup: &NonAdminBackup, told: &Told, now: Timestamp) -> Vec<Form> {
    let (namespace, name) = (backup.namespace().unwrap_or_default(), backup.name_any());
    let folder = path(&path("/tenants", &namespace), &name);
    let mut forms = Vec::new();
    if told.executor == "Completed" {
        forms.push(Form {
            id: format!("restore-{namespace}-{name}"),
            label: "Restore",
            told: format!("Restores objects missing from {namespace} from backup {name}."),
            action: format!("{folder}/restore"),
            button: "Restore",
            tone: Tone::Plain,
            fields: vec![Field::name("Name of the restore", named(&name, now))],
        });
    }
    if backup.spec.delete_backup != Some(true) {
        forms.push(Form {
            id: format!("delete-{namespace}-{name}"),
            label: "Delete",
            told: format!("Deletes backup {name} of {namespace} with its data."),
            action: format!("{folder}/delete"),
            button: "Delete permanently",
            tone: Tone::Bad,
            fields: Vec::new(),
        });
    }
    forms
}
