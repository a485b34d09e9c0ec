//! What was seen to happen, newest first.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Event;
use kube::ResourceExt as _;
use people::units::age;

use super::{Content, tone};
use crate::view::{Cell, Section, Table};
use crate::visit::Visit;
use crate::web::Oops;

const MAX_SHOWN: usize = 200;

pub(super) async fn content(visit: &Visit) -> Result<Content, Oops> {
    let mut events = visit.reader().deep().everywhere::<Event>().await?;
    events.items.sort_by_key(|it| std::cmp::Reverse(time(it)));
    let all = events.items.len();
    let rows = events.items.iter().take(MAX_SHOWN).map(|it| row(it, visit.now)).collect();
    let left = all.saturating_sub(MAX_SHOWN);
    let foot = (left > 0).then(|| format!("{left} older ones are not shown."));
    let mut content = Content::titled("Events");
    content.sections.push(Section::Table(Table {
        title: "Newest first".to_owned(),
        head: &["Age", "Type", "Reason", "Object", "Namespace", "Count", "Message"],
        rows,
        none: "Nothing has happened yet.",
        foot: events.foot().or(foot),
    }));
    Ok(content)
}

fn time(event: &Event) -> Option<Timestamp> {
    let last = event.last_timestamp.as_ref().map(|it| it.0);
    let series = event.series.as_ref().and_then(|it| Some(it.last_observed_time.as_ref()?.0));
    series.or(last).or(event.event_time.as_ref().map(|it| it.0)).or_else(|| people::made(event))
}

fn row(event: &Event, now: Timestamp) -> Vec<Cell> {
    let of = &event.involved_object;
    let kind = event.type_.clone().unwrap_or_default();
    vec![
        Cell::text(time(event).map(|at| age(at, now)).unwrap_or_default()),
        Cell::badge(tone(&kind), kind),
        Cell::text(event.reason.clone().unwrap_or_default()),
        Cell::text(format!(
            "{} {}",
            of.kind.as_deref().unwrap_or_default(),
            of.name.as_deref().unwrap_or_default()
        )),
        Cell::text(event.namespace().unwrap_or_default()),
        Cell::text(event.count.map(|it| it.to_string()).unwrap_or_default()),
        Cell::text(event.message.clone().unwrap_or_default()),
    ]
}
