//! What people see in `kubectl describe`: few, counted, and never waited for.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use tokio::sync::mpsc;
use tokio::time::Instant;

use crate::metrics::Metrics;
use api::access::Grant;

/// What a controller that records events must be granted.
pub const EVENT_RIGHTS: Grant =
    Grant { groups: &["events.k8s.io"], resources: &["events"], verbs: &["create", "patch"] };

/// Events that wait to be written; more are dropped and counted.
const WAITING: usize = 256;
/// Per object: so many at once, and one more after each pause.
const BURST: f64 = 25.0;
const PAUSE: Duration = Duration::from_mins(5);
/// Objects whose allowance is remembered.
const REMEMBERED: usize = 4096;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    Normal,
    Warning,
}

/// Records events of one controller. Cheap to clone.
#[derive(Clone)]
pub struct Events {
    controller: &'static str,
    queue: mpsc::Sender<(Event, ObjectReference)>,
    metrics: Metrics,
}

impl fmt::Debug for Events {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Events").field("controller", &self.controller).finish_non_exhaustive()
    }
}

impl Events {
    pub(crate) fn start(
        controller: &'static str,
        client: kube::Client,
        tasks: &tasks::Tasks,
        metrics: Metrics,
    ) -> Self {
        let (queue, waiting) = mpsc::channel(WAITING);
        let reporter = Reporter { controller: controller.to_owned(), instance: None };
        let counted = metrics.clone();
        let recorders = Recorders::new(move || Recorder::new(client.clone(), reporter.clone()));
        tasks.spawn("events", write(controller, recorders, waiting, counted));
        Self { controller, queue, metrics }
    }

    /// Says something about an object. Equal ones are counted together by the server's record.
    pub fn say<K>(&self, object: &K, severity: Severity, reason: &str, message: &str)
    where
        K: kube::Resource<DynamicType = ()>,
    {
        self.send(object.object_ref(&()), severity, reason, message);
    }

    pub(crate) fn warn_about(&self, object: ObjectReference, reason: &str, message: &str) {
        self.send(object, Severity::Warning, reason, message);
    }

    fn send(&self, object: ObjectReference, severity: Severity, reason: &str, message: &str) {
        let event = Event {
            type_: match severity {
                Severity::Normal => EventType::Normal,
                Severity::Warning => EventType::Warning,
            },
            reason: reason.to_owned(),
            note: Some(shorten(message)),
            action: reason.to_owned(),
            secondary: None,
        };
        if self.queue.try_send((event, object)).is_err() {
            self.metrics.event_dropped(self.controller);
        }
    }
}

/// A note may have 1024 bytes.
fn shorten(message: &str) -> String {
    let mut end = message.len().min(1000);
    while !message.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    let kept = message.get(..end).unwrap_or_default();
    if kept.len() == message.len() { kept.to_owned() } else { format!("{kept} …") }
}

async fn write(
    controller: &'static str,
    mut recorders: Recorders<Recorder>,
    mut waiting: mpsc::Receiver<(Event, ObjectReference)>,
    metrics: Metrics,
) {
    let mut allowance = Allowance::default();
    while let Some((event, object)) = waiting.recv().await {
        if !allowance.take(object.uid.as_deref().unwrap_or_default(), Instant::now()) {
            metrics.event_dropped(controller);
            continue;
        }
        if let Err(error) = recorders.of(&event, &object).publish(&event, &object).await {
            metrics.event_dropped(controller);
            tracing::debug!(reason = event.reason, error = %telemetry::Chain(&error),
                "an event was not recorded");
        }
    }
}

/// A record counts what is said again by object and reason, whatever the message: a second backup of a
/// volume would be told with the name of the first. So each message has a record of its own, until the
/// next one for the same reason.
struct Recorders<R> {
    made: Box<dyn Fn() -> R + Send>,
    known: HashMap<(String, String), (String, R)>,
}

impl<R: Clone> Recorders<R> {
    fn new(made: impl Fn() -> R + Send + 'static) -> Self {
        Self { made: Box::new(made), known: HashMap::new() }
    }

    fn of(&mut self, event: &Event, object: &ObjectReference) -> R {
        let key = (object.uid.clone().unwrap_or_default(), event.reason.clone());
        let note = event.note.clone().unwrap_or_default();
        if let Some((said, recorder)) = self.known.get(&key)
            && *said == note
        {
            return recorder.clone();
        }
        if self.known.len() >= REMEMBERED {
            // What is forgotten is at worst told twice.
            self.known.clear();
        }
        let recorder = (self.made)();
        self.known.insert(key, (note, recorder.clone()));
        recorder
    }
}

/// How many more events each object may have.
#[derive(Debug, Default)]
struct Allowance(HashMap<String, (f64, Instant)>);

impl Allowance {
    fn take(&mut self, object: &str, now: Instant) -> bool {
        if self.0.len() >= REMEMBERED && !self.0.contains_key(object) {
            // Whoever said nothing for the longest time has most of its allowance back.
            let oldest = self.0.iter().min_by_key(|(_, (_, at))| *at).map(|(key, _)| key.clone());
            oldest.map(|key| self.0.remove(&key));
        }
        let (left, at) = self.0.entry(object.to_owned()).or_insert((BURST, now));
        let regained = now.duration_since(*at).as_secs_f64() / PAUSE.as_secs_f64();
        *left = (*left + regained).min(BURST);
        *at = now;
        if *left < 1.0 {
            return false;
        }
        *left -= 1.0;
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_object_that_talks_too_much_is_heard_now_and_then() {
        let mut allowance = Allowance::default();
        let now = Instant::now();
        let heard = (0..100).filter(|_| allowance.take("a", now)).count();
        assert_eq!(heard, 25);
        assert!(allowance.take("b", now));
        assert!(!allowance.take("a", now + PAUSE / 2));
        assert!(allowance.take("a", now + PAUSE * 2));
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_remembered_has_a_limit() {
        let mut allowance = Allowance::default();
        let now = Instant::now();
        for number in 0..2 * REMEMBERED {
            assert!(allowance.take(&number.to_string(), now));
        }
        assert!(allowance.0.len() <= REMEMBERED);
    }

    #[test]
    fn what_is_said_again_is_counted_and_another_message_is_not() {
        let count = std::sync::atomic::AtomicUsize::new(0);
        let next = move || count.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let mut recorders = Recorders::new(next);
        let object =
            |uid: &str| ObjectReference { uid: Some(uid.to_owned()), ..Default::default() };
        let mut of = |uid: &str, reason: &str, note: &str| {
            let event = Event {
                type_: EventType::Normal,
                reason: reason.to_owned(),
                note: Some(note.to_owned()),
                action: reason.to_owned(),
                secondary: None,
            };
            recorders.of(&event, &object(uid))
        };
        assert_eq!(of("v", "Completed", "backup first"), 0);
        assert_eq!(of("v", "Completed", "backup first"), 0);
        assert_eq!(of("v", "Completed", "backup second"), 1);
        assert_eq!(of("v", "Pending", "backup second"), 2);
        assert_eq!(of("w", "Completed", "backup second"), 3);
        assert_eq!(of("v", "Completed", "backup second"), 1);
    }

    #[test]
    fn notes_are_short_and_whole_characters() {
        assert_eq!(shorten("short"), "short");
        let long = shorten(&"ä".repeat(2000));
        assert!(long.len() <= 1024 && long.ends_with(" …"));
    }
}
