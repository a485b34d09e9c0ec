//! Logs, traces and metrics: the one door to the libraries behind them.
//!
//! Owns: where log lines go and how they look ([`init`]), the register of metrics
//! ([`Registry`]), passing a trace on between processes ([`traceparent`], [`continue_trace`]) and
//! writing an error with its causes ([`Chain`]), and the log lines of the dialects ([`logfmt`]). Never: a global metric, a metric of its own, or
//! anything sent anywhere that was not configured.

#![forbid(unsafe_code)]

mod chain;
pub mod logfmt;
mod metrics;
mod seldom;
mod subscriber;
mod suggest;
mod trace;

pub use chain::Chain;
pub use metrics::{
    Buckets, Counter, CounterFamily, Gauge, GaugeFamily, Histogram, HistogramFamily, Labels,
    OPENMETRICS_CONTENT_TYPE, Registry,
};
pub use seldom::Seldom;
pub use subscriber::{Config, Format, Guard, InitError, init, init_with};
pub use suggest::nearest;
pub use trace::{TRACEPARENT_VARIABLE, continue_trace, traceparent};
pub use tracing_subscriber::layer::{Context as LayerContext, Filter, Layer};
