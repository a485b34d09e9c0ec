//! One machine that uses the store: its clock, its link, and what befalls it.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use backupstore::{CancellationToken, Clock, Holder, Processes};
use blobs::{
    Blob, Body, Capabilities, Error, Key, Level, Meta, Page, Parts, Permit, Prefix, Store, Times,
    Version,
};
use bytes::Bytes;
use futures::FutureExt;
use futures::future::BoxFuture;
use jiff::SignedDuration;
use rand::rngs::StdRng;
use rand::{Rng as _, SeedableRng as _};
use tokio::time::Instant;

use super::world::{Condition, Conditions, Stamps, World};

/// How long a caller waits for an answer that does not come.
const CALL_TIMEOUT: Duration = Duration::from_secs(10);

/// Which call something befalls.
#[derive(Debug, Clone)]
pub(super) enum When {
    /// The n-th of all, from 1.
    Call(u64),
    /// The n-th whose method and key begin so, as in `delete` and `/blocks/`.
    Named(&'static str, &'static str, u64),
}

#[derive(Debug, Clone, Copy)]
pub(super) enum What {
    /// Before it is sent, by a signal; clocks go on.
    Stop(Duration),
    /// Before it is sent, with the whole machine: a monotonic clock stands still.
    Suspend(Duration),
    /// After it was done, before the answer is seen.
    StopAfter(Duration),
    Lost,
    AnswerLost,
    /// It is done so much later, and the answer is lost.
    Late(Duration),
    /// Nothing gets through; what is being sent waits.
    Down(Duration),
    Die,
    /// What it has just sent is done so much later.
    DieLate(Duration),
}

#[derive(Debug)]
struct Plan {
    when: When,
    what: What,
    met: u64,
}

#[derive(Debug)]
struct Fate {
    random: StdRng,
    calls: u64,
    plans: Vec<Plan>,
    stopped_until: Option<Instant>,
    down_until: Option<Instant>,
    /// Since when and for how long its monotonic clock stood still.
    suspended: Vec<(Instant, Duration)>,
}

#[derive(Debug)]
pub(super) struct Actor {
    pub(super) name: String,
    pub(super) world: Arc<World>,
    skew: SignedDuration,
    counts_suspended: bool,
    /// Where it runs, and as what: others there see when it has ended.
    host: String,
    process: i32,
    fate: Mutex<Fate>,
    pub(super) killed: CancellationToken,
}

impl Actor {
    pub(super) fn build(world: &Arc<World>, name: &str, seed: u64) -> ActorBuilder {
        ActorBuilder {
            name: name.to_owned(),
            world: Arc::clone(world),
            seed,
            skew: SignedDuration::ZERO,
            counts_suspended: true,
            host: name.to_owned(),
            plans: Vec::new(),
        }
    }

    fn begin(&self, method: &str, key: &str) -> Option<What> {
        let mut fate = self.fate.lock().unwrap();
        fate.calls += 1;
        let call = fate.calls;
        let mut found = None;
        for plan in &mut fate.plans {
            let is_met = match &plan.when {
                When::Call(nth) => *nth == call,
                When::Named(name, part, nth) => {
                    let is_one = method.starts_with(name) && key.contains(part);
                    plan.met += u64::from(is_one);
                    is_one && plan.met == *nth
                }
            };
            if is_met {
                found = Some(plan.what);
            }
        }
        let now = Instant::now();
        match found {
            Some(What::Stop(time)) => fate.stopped_until = Some(now + time),
            Some(What::Suspend(time)) => {
                fate.stopped_until = Some(now + time);
                fate.suspended.push((now, time));
            }
            Some(What::Down(time)) => fate.down_until = Some(now + time),
            _ => {}
        }
        if let Some(what) = found {
            self.world.log(format_args!("{}: {what:?} at {method} {key}", self.name));
        }
        found
    }

    fn latency(&self) -> Duration {
        Duration::from_millis(self.fate.lock().unwrap().random.random_range(1..40))
    }

    /// While it does not run, nothing of it does.
    async fn runs(&self) {
        while let Some(until) = self.waits(|fate| fate.stopped_until) {
            tokio::time::sleep_until(until).await;
        }
    }

    async fn is_linked(&self) {
        while let Some(until) = self.waits(|fate| fate.down_until) {
            tokio::time::sleep_until(until).await;
        }
    }

    fn waits(&self, which: impl Fn(&Fate) -> Option<Instant>) -> Option<Instant> {
        which(&self.fate.lock().unwrap()).filter(|until| *until > Instant::now())
    }

    fn lag(&self) -> Duration {
        let lag = self.world.kind.lag;
        lag.mul_f64(self.fate.lock().unwrap().random.random::<f64>())
    }

    async fn die(&self) {
        self.world.process_ended(self.process);
        self.killed.cancel();
        futures::future::pending::<()>().await;
    }

    async fn call<T: Send + std::fmt::Debug + 'static>(
        self: &Arc<Self>,
        method: &'static str,
        key: String,
        apply: impl FnOnce(&Self) -> Result<T, Error> + Send + 'static,
    ) -> Result<T, Error> {
        let fate = self.begin(method, &key);
        self.runs().await;
        let lost = || Error::Unavailable { what: key.clone(), source: "no answer".into() };
        match fate {
            Some(What::Die) => self.die().await,
            Some(What::Lost) => {
                tokio::time::sleep(CALL_TIMEOUT).await;
                return Err(lost());
            }
            Some(what @ (What::Late(time) | What::DieLate(time))) => {
                let own = Arc::clone(self);
                let line = format!("{}: late {method} {key}", self.name);
                on_its_own(async move {
                    tokio::time::sleep(time).await;
                    own.world.log(line);
                    let _ = apply(&own);
                });
                if let What::DieLate(_) = what {
                    self.die().await;
                }
                tokio::time::sleep(CALL_TIMEOUT).await;
                self.runs().await;
                return Err(lost());
            }
            _ => {}
        }
        self.is_linked().await;
        self.runs().await;
        tokio::time::sleep(self.latency()).await;
        let done = apply(self);
        let said = match &done {
            Ok(_) => "ok".to_owned(),
            Err(error) => error.to_string(),
        };
        self.world.log(format_args!("{}: {method} {key}: {said}", self.name));
        tokio::time::sleep(self.latency()).await;
        match fate {
            Some(What::AnswerLost) => {
                tokio::time::sleep(CALL_TIMEOUT).await;
                return Err(lost());
            }
            Some(What::StopAfter(time)) => {
                self.fate.lock().unwrap().stopped_until = Some(Instant::now() + time);
            }
            _ => {}
        }
        self.runs().await;
        done
    }
}

/// A call that was sent is nobody's task.
#[expect(clippy::disallowed_methods, reason = "it goes on, whoever waits for it")]
fn on_its_own<T: Send + 'static>(
    call: impl Future<Output = T> + Send + 'static,
) -> tokio::task::JoinHandle<T> {
    tokio::spawn(call)
}

pub(super) struct ActorBuilder {
    name: String,
    world: Arc<World>,
    seed: u64,
    skew: SignedDuration,
    counts_suspended: bool,
    host: String,
    plans: Vec<Plan>,
}

impl ActorBuilder {
    pub(super) fn skewed(mut self, seconds: i64) -> Self {
        self.skew = SignedDuration::from_secs(seconds);
        self
    }

    /// Beside others.
    pub(super) fn on(mut self, host: &str) -> Self {
        host.clone_into(&mut self.host);
        self
    }

    pub(super) fn befalls(mut self, when: When, what: What) -> Self {
        self.plans.push(Plan { when, what, met: 0 });
        self
    }

    pub(super) fn start(self) -> Arc<Actor> {
        let fate = Fate {
            random: StdRng::seed_from_u64(self.seed),
            calls: 0,
            plans: self.plans,
            stopped_until: None,
            down_until: None,
            suspended: Vec::new(),
        };
        Arc::new(Actor {
            name: self.name,
            process: self.world.new_process(),
            host: self.host,
            world: self.world,
            skew: self.skew,
            counts_suspended: self.counts_suspended,
            fate: Mutex::new(fate),
            killed: CancellationToken::new(),
        })
    }
}

/// The clock of a machine.
#[derive(Debug)]
pub(super) struct ActorClock(pub(super) Arc<Actor>);

impl Clock for ActorClock {
    fn now(&self) -> Duration {
        let stood = |(since, time): &(Instant, Duration)| since.elapsed().min(*time);
        let stood: Duration = self.0.fate.lock().unwrap().suspended.iter().map(stood).sum();
        let all = self.0.world.elapsed();
        if self.0.counts_suspended { all } else { all.saturating_sub(stood) }
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let own = Arc::clone(&self.0);
        async move {
            tokio::time::sleep(time).await;
            own.runs().await;
        }
        .boxed()
    }
}

/// The processes that it can see.
#[derive(Debug)]
pub(super) struct ActorProcesses(pub(super) Arc<Actor>);

impl Processes for ActorProcesses {
    fn this(&self) -> Option<Holder> {
        let (boot, pid) = (self.0.host.clone(), self.0.process);
        Some(Holder { boot, namespace: 1, pid, started: 1 })
    }

    fn is_gone(&self, holder: &Holder) -> bool {
        holder.boot == self.0.host && self.0.world.is_process_gone(holder.pid)
    }
}

/// The store as that machine reaches it.
#[derive(Debug)]
pub(super) struct View(pub(super) Arc<Actor>);

impl View {
    async fn put_with(
        &self,
        key: &Key,
        bytes: Bytes,
        condition: Condition,
    ) -> Result<Version, Error> {
        let name = match condition {
            Condition::None => "put",
            Condition::Absent => "put_new",
            Condition::Version(_) if self.compares() => {
                let call = Self(Arc::clone(&self.0)).swap(key.clone(), bytes, condition);
                return on_its_own(call).await.unwrap();
            }
            Condition::Version(_) => "put_if_match",
        };
        let (key, text) = (key.clone(), key.to_string());
        let put = move |own: &Actor| own.world.put(&key, &bytes, &condition, own.skew);
        self.0.call(name, text, put).await
    }

    fn compares(&self) -> bool {
        self.0.world.kind.conditions == Conditions::ByTheClient
    }

    /// As a store in a directory does it that others share.
    async fn swap(self, key: Key, bytes: Bytes, condition: Condition) -> Result<Version, Error> {
        let condition = Arc::new(condition);
        for _ in 0..16 {
            let (text, of) = (key.to_string(), key.clone());
            let staged = self.0.call("stage", text.clone(), move |own| Ok(own.world.stage(&of)));
            let staged = staged.await?;
            let (of, expected) = (key.clone(), Arc::clone(&condition));
            let compare = move |own: &Actor| own.world.compare(&of, &expected, staged);
            self.0.call("compare", text.clone(), compare).await?;
            let (of, bytes) = (key.clone(), bytes.clone());
            let name = move |own: &Actor| own.world.name(&of, &bytes, staged, own.skew);
            match self.0.call("put_if_match", text, name).await {
                Err(Error::NotFound { .. }) => {}
                done => return done,
            }
        }
        Err(Error::Changed { key })
    }

    async fn remove(self, key: Key, permit: Permit) -> Result<(), Error> {
        let of = key.clone();
        let aside = move |own: &Actor| {
            own.world.set_aside(&of);
            Ok(())
        };
        self.0.call("delete", key.to_string(), aside).await?;
        let in_time = permit.check();
        self.0.world.end_aside(&key, in_time.is_ok());
        in_time
    }
}

#[async_trait]
impl Store for View {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.put_with(key, bytes, Condition::Absent).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        self.put_with(key, bytes, Condition::Version(version.clone())).await
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.put_with(key, bytes, Condition::None).await
    }

    async fn put_stream(&self, _: &Key, _: Body, _: &Parts) -> Result<Version, Error> {
        panic!("blocks and records are put whole")
    }

    async fn get_range(&self, key: &Key, _: std::ops::Range<u64>) -> Result<Blob, Error> {
        let key = key.clone();
        self.0.call("get", key.to_string(), move |own| own.world.get(&key)).await
    }

    async fn get_stream(&self, _: &Key) -> Result<(Meta, Body), Error> {
        panic!("blocks and records are read whole")
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        let key = key.clone();
        self.0.call("head", key.to_string(), move |own| Ok(own.world.get(&key)?.meta)).await
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let (text, ago) = (prefix.to_string(), self.0.lag());
        let (prefix, after) = (prefix.clone(), after.cloned());
        let list = move |own: &Actor| {
            let mut objects = own.world.listed(&prefix, ago);
            objects.retain(|meta| after.as_ref().is_none_or(|after| meta.key > *after));
            let is_last = objects.len() <= own.world.kind.page_max;
            objects.truncate(own.world.kind.page_max);
            Ok(Page { objects, is_last })
        };
        self.0.call("list", text, list).await
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        let (prefix, ago) = (prefix.clone(), self.0.lag());
        let text = prefix.to_string();
        self.0.call("list_level", text, move |own| Ok(own.world.level(&prefix, ago))).await
    }

    async fn delete_within(&self, key: &Key, permit: &Permit) -> Result<(), Error> {
        permit.check()?;
        if self.compares() {
            let call = Self(Arc::clone(&self.0)).remove(key.clone(), permit.clone());
            return on_its_own(call).await.unwrap();
        }
        self.delete(key).await
    }

    async fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        let mut failed = None;
        for key in keys {
            permit.check()?;
            if let Err(error) = self.delete_within(key, permit).await {
                failed.get_or_insert(error);
            }
        }
        failed.map_or(Ok(()), Err)
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        let (key, text) = (key.clone(), key.to_string());
        let delete = move |own: &Actor| {
            own.world.delete(&key);
            Ok(())
        };
        self.0.call("delete", text, delete).await
    }

    fn capabilities(&self) -> Capabilities {
        let conditional_put = self.0.world.kind.conditions != Conditions::Unsupported;
        let times = match self.0.world.kind.stamps {
            Stamps::ByTheStore => Times::OfStore,
            Stamps::ByTheWriter => Times::OfWriter,
        };
        let listing = self.0.world.kind.listing();
        Capabilities { conditional_put, durable: true, listing, times }
    }
}
