//! The thread itself: its runtime, the control side's messages, and the passing of time.

use std::future::Future;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use tokio::runtime;
use tokio::sync::{mpsc, oneshot};
use tokio::task::LocalSet;
use tokio::time::{MissedTickBehavior, interval};

use super::hub::{Hub, Seen};
use crate::core::{Member, Mode, Settings};
use crate::frontend::{Frontends, Host};

/// Messages that may wait; the control side waits beyond that.
const MESSAGES: usize = 64;

/// How often the core is told the time.
const TICK: Duration = Duration::from_millis(250);

const SECOND: Duration = Duration::from_secs(1);

/// What the data thread works with.
pub(crate) struct Desk {
    pub(crate) hub: Rc<Hub>,
    pub(crate) frontends: Frontends,
}

type Work = Pin<Box<dyn Future<Output = ()>>>;

/// Something to be done on the data thread.
pub(crate) type Message = Box<dyn FnOnce(Rc<Desk>) -> Work + Send>;

/// The sending side, and what tells the end of the thread.
pub(crate) struct Started {
    pub(crate) messages: mpsc::Sender<Message>,
    pub(crate) ended: oneshot::Receiver<()>,
}

pub(crate) fn start(
    name: &str,
    settings: Settings,
    host: Host,
    seen: Arc<Seen>,
) -> io::Result<Started> {
    let runtime = runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(8)
        .thread_name("engine-blocking")
        .build()?;
    let (messages, inbox) = mpsc::channel(MESSAGES);
    let (tell_end, ended) = oneshot::channel();
    let volume = name.to_owned();
    std::thread::Builder::new().name("engine-data".to_owned()).spawn(move || {
        let set = LocalSet::new();
        let hub = Hub::new(settings, Arc::clone(&seen));
        let serve = AssertUnwindSafe(|| set.block_on(&runtime, run(&volume, &hub, host, inbox)));
        let broke_down = catch_unwind(serve).is_err() || hub.broke_down();
        drop(set);
        // A sync of a broken disk may hang; the volume's end does not wait for it.
        runtime.shutdown_background();
        forget_members(&seen, broke_down);
        let _ = tell_end.send(());
    })?;
    Ok(Started { messages, ended })
}

async fn run(volume: &str, hub: &Rc<Hub>, host: Host, mut inbox: mpsc::Receiver<Message>) {
    let end = hub.end.clone();
    let desk = Rc::new(Desk { hub: Rc::clone(hub), frontends: Frontends::new(hub, host) });
    tracing::debug!(volume, "data thread started");
    start_clocks(hub);
    let serving = async {
        while let Some(message) = inbox.recv().await {
            hub.spawn(message(Rc::clone(&desk)));
        }
    };
    end.run_until_cancelled(serving).await;
    if let Err(error) = desk.frontends.stop().await {
        tracing::warn!(%error, "frontend not stopped cleanly");
    }
    hub.clear();
    end.cancel();
    tracing::debug!(volume, "data thread ends");
}

fn start_clocks(hub: &Rc<Hub>) {
    let flushing = Rc::clone(hub);
    hub.spawn(async move { flushing.outbox.flush_for_ever().await });
    let ticking = Rc::clone(hub);
    hub.spawn(async move {
        let mut ticks = every(TICK);
        loop {
            ticks.tick().await;
            ticking.tick();
        }
    });
    let measured = Rc::clone(hub);
    hub.spawn(async move {
        let mut seconds = every(SECOND);
        loop {
            seconds.tick().await;
            measured.roll_meter();
        }
    });
}

fn every(period: Duration) -> tokio::time::Interval {
    let mut interval = interval(period);
    interval.set_missed_tick_behavior(MissedTickBehavior::Skip);
    interval
}

/// Whoever still watches must not take the replicas for served.
fn forget_members(seen: &Seen, broke_down: bool) {
    let dead = |member: &Member| Member {
        mode: Mode::Err,
        reason: Some("the data thread broke down".to_owned()),
        ..member.clone()
    };
    seen.members.send_modify(|members| {
        *members = members.iter().filter(|_| broke_down).map(dead).collect();
    });
}
