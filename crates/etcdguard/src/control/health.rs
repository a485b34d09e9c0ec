//! Whether clients may be sent to the etcd beside this sidecar: it leads, and it answers.

use tasks::Stop;
use tokio::sync::watch;

use crate::etcd::Subscription;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Health {
    Serving,
    NotServing,
}

/// Without a store nothing but leadership counts.
pub(super) async fn follow(
    mut member: Subscription,
    health: watch::Sender<Health>,
    settled: watch::Receiver<bool>,
    stop: Stop,
) {
    if settle(settled, &stop).await {
        let mut seen = Some(Some(member.latest()));
        while let Some(Some(now)) = seen {
            let leads = now.is_leading();
            health.send_replace(if leads { Health::Serving } else { Health::NotServing });
            seen = stop.or_stop(member.next()).await;
        }
    }
    health.send_replace(Health::NotServing);
}

/// Waits until what comes before serving has been done once; false if the end came first.
pub(super) async fn settle(mut settled: watch::Receiver<bool>, stop: &Stop) -> bool {
    matches!(stop.or_stop(settled.wait_for(|settled| *settled)).await, Some(Ok(_)))
}
