//! What a controller is to the process that runs it: a value that says who it is, what it may do and
//! what it does. Crates export theirs, and the binary lists them.

use std::fmt;

use futures::future::BoxFuture;
use kube::Client;
use tasks::Tasks;

use crate::events::Events;
use crate::metrics::Metrics;
use api::access::Grant;

/// A controller. Beside the embedded API server it acts under its own name with its own rights; in a
/// cluster, with those of the kubeconfig.
#[derive(Debug, Clone, Copy)]
pub struct Controller {
    pub name: &'static str,
    /// Everything it may do; what it tries beyond is refused.
    pub grants: &'static [Grant],
    /// The definitions, as `plural.group`, of the kinds whose objects it acts on.
    pub acts_on: &'static [&'static str],
    /// Runs until it is dropped, and everything it starts is in the tasks of its context.
    pub run: fn(Context) -> BoxFuture<'static, ()>,
}

/// What a controller is given.
#[derive(Clone)]
pub struct Context {
    pub client: Client,
    /// Its own scope of the task tree.
    pub tasks: Tasks,
    pub metrics: Metrics,
    pub events: Events,
}

impl fmt::Debug for Context {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Context").field("tasks", &self.tasks).finish_non_exhaustive()
    }
}

impl Context {
    pub fn new(name: &'static str, client: Client, tasks: &Tasks, metrics: Metrics) -> Self {
        let tasks = tasks.child(name);
        let events = Events::start(name, client.clone(), &tasks, metrics.clone());
        Self { client, tasks, metrics, events }
    }
}

impl Controller {
    /// Starts it in a scope of its own.
    pub fn spawn(&self, client: Client, tasks: &Tasks, metrics: Metrics) {
        let context = Context::new(self.name, client, tasks, metrics);
        let scope = context.tasks.clone();
        scope.spawn("run", (self.run)(context));
    }
}
