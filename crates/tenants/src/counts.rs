//! How many moves of volume data belong to a backup or restore, by how far they are.

use std::sync::Arc;

use api::nonadmin::{DataMoverCounts, FileSystemCounts};

use crate::loose::Loose;

/// Counts moves of snapshot data; nothing if there are none.
pub(crate) fn movers<K>(all: &[Arc<Loose<K>>]) -> Option<DataMoverCounts> {
    let mut counts = DataMoverCounts { total: total(all)?, ..DataMoverCounts::default() };
    for phase in phases(all) {
        let place = match phase {
            "" | "New" => &mut counts.new,
            "Accepted" => &mut counts.accepted,
            "Prepared" => &mut counts.prepared,
            "InProgress" => &mut counts.in_progress,
            "Canceling" => &mut counts.canceling,
            "Canceled" => &mut counts.canceled,
            "Failed" => &mut counts.failed,
            "Completed" => &mut counts.completed,
            _ => continue,
        };
        *place = Some(place.unwrap_or_default() + 1);
    }
    Some(counts)
}

/// Counts copies of pod volumes; nothing if there are none.
pub(crate) fn pod_volumes<K>(all: &[Arc<Loose<K>>]) -> Option<FileSystemCounts> {
    let uploader = all.iter().find_map(|it| Loose::<K>::text(&it.spec, "/uploaderType"));
    let mut counts = FileSystemCounts {
        total: total(all)?,
        uploader_type: uploader.map(str::to_owned),
        ..FileSystemCounts::default()
    };
    for phase in phases(all) {
        let place = match phase {
            "" | "New" => &mut counts.new,
            "Accepted" => &mut counts.accepted,
            "Prepared" => &mut counts.prepared,
            "InProgress" => &mut counts.in_progress,
            "Canceling" => &mut counts.canceling,
            "Canceled" => &mut counts.canceled,
            "Failed" => &mut counts.failed,
            "Completed" => &mut counts.completed,
            _ => continue,
        };
        *place = Some(place.unwrap_or_default() + 1);
    }
    Some(counts)
}

/// `None` if there is nothing to count.
#[expect(clippy::option_option, reason = "the inner one is the type of the field")]
fn total<K>(all: &[Arc<Loose<K>>]) -> Option<Option<i64>> {
    (!all.is_empty()).then(|| i64::try_from(all.len()).ok())
}

fn phases<K>(all: &[Arc<Loose<K>>]) -> impl Iterator<Item = &str> {
    all.iter().map(|it| Loose::<K>::text(&it.status, "/phase").unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use api::velero::PodVolumeBackup;
    use serde_json::json;

    use super::*;

    #[test]
    fn every_phase_is_counted_and_the_sum_is_the_total() {
        let phases = [
            "",
            "New",
            "Accepted",
            "Prepared",
            "InProgress",
            "Canceling",
            "Canceled",
            "Failed",
            "Completed",
        ];
        let all: Vec<Arc<Loose<PodVolumeBackup>>> = phases
            .iter()
            .map(|phase| {
                let object = json!({"metadata": {}, "spec": {"uploaderType": "kopia"}, "status": {"phase": phase}});
                Arc::new(serde_json::from_value(object).unwrap())
            })
            .collect();
        let counts = pod_volumes(&all).unwrap();
        assert_eq!((counts.total, counts.new, counts.canceled), (Some(9), Some(2), Some(1)));
        assert_eq!(counts.uploader_type.as_deref(), Some("kopia"));
        let counts = movers(&all).unwrap();
        let sum = [
            counts.new,
            counts.accepted,
            counts.prepared,
            counts.in_progress,
            counts.canceling,
            counts.canceled,
            counts.failed,
            counts.completed,
        ]
        .into_iter()
        .flatten()
        .sum::<i64>();
        assert_eq!(Some(sum), counts.total);
        assert_eq!(movers::<PodVolumeBackup>(&[]), None);
    }
}
