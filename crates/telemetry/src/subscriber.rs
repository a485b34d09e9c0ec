//! Log lines on standard error, and spans to a collector where one is configured.

use std::fmt;
use std::io::IsTerminal;
use std::time::Duration;

use opentelemetry::trace::TracerProvider;
use opentelemetry_otlp::{ExporterBuildError, SpanExporter, WithExportConfig};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::trace::{SdkTracerProvider, Tracer};
use tracing::level_filters::LevelFilter;
use tracing::subscriber::SetGlobalDefaultError;
use tracing_opentelemetry::OpenTelemetryLayer;
use tracing_subscriber::filter::{EnvFilter, ParseError, Targets};
use tracing_subscriber::fmt::MakeWriter;
use tracing_subscriber::layer::{Layer, SubscriberExt};
use tracing_subscriber::registry::{LookupSpan, Registry};

use crate::chain::Chain;

/// How long a collector may take: for one batch, and for the last one at the end.
const EXPORT_TIMEOUT: Duration = Duration::from_secs(5);
/// What the exporter itself runs on: tracing it would make every batch cause another.
const EXPORTER_TARGETS: [&str; 6] =
    ["h2", "hyper", "hyper_util", "tonic", "tower", "opentelemetry"];

#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Format {
    /// A line for people.
    #[default]
    Text,
    /// An object a line, for machines.
    Json,
}

#[derive(Debug, Clone)]
pub struct Config {
    /// Directives as in `info,volumes=debug`.
    pub filter: String,
    pub format: Format,
    /// Where spans go, as in `http://collector:4317` (OTLP over gRPC). Nothing is sent without it.
    pub otlp_endpoint: Option<String>,
    pub service_name: String,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            filter: "info".to_owned(),
            format: Format::Text,
            otlp_endpoint: None,
            service_name: "holdfast".to_owned(),
        }
    }
}

#[derive(Debug, thiserror::Error)]
pub enum InitError {
    #[error("the log filter {filter:?} is not understood; write it as in info,volumes=debug")]
    Filter { filter: String, source: ParseError },
    #[error("cannot send traces to {endpoint:?}; write it as in http://collector:4317")]
    Endpoint { endpoint: String, source: ExporterBuildError },
    #[error("cannot send traces: there is no runtime to send them on")]
    NoRuntime,
    #[error("logs were set up already")]
    Twice { source: SetGlobalDefaultError },
}

/// Sends what is waiting when dropped, for at most five seconds. Drop it at the end of `main`,
/// before the runtime.
#[must_use = "traces stop when this is dropped"]
pub struct Guard {
    traces: Option<SdkTracerProvider>,
}

impl fmt::Debug for Guard {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("Guard").field("traces", &self.traces.is_some()).finish()
    }
}

impl Guard {
    /// Sends what is waiting from a runtime that has to go on meanwhile, as one of a single thread has.
    pub async fn end(self) {
        // A panic in there leaves spans unsent, and nothing else.
        let _ = tokio::task::spawn_blocking(move || drop(self)).await;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if let Some(traces) = self.traces.take()
            && let Err(error) = traces.shutdown_with_timeout(EXPORT_TIMEOUT)
        {
            tracing::warn!("the last traces were not sent: {}", Chain(&error));
        }
    }
}

/// Sets up logs and traces for the whole process, once. With an endpoint, call it on the runtime.
pub fn init(config: &Config) -> Result<Guard, InitError> {
    let filter = parse_filter(&config.filter)?;
    let colours = std::io::stderr().is_terminal();
    let lines = lines(config.format, colours, std::io::stderr).with_filter(filter);
    init_with(lines, config.otlp_endpoint.as_deref(), &config.service_name)
}

/// [`init`] for a process whose log has a form of its own.
pub fn init_with(
    lines: impl Layer<Registry> + Send + Sync,
    otlp_endpoint: Option<&str>,
    service_name: &str,
) -> Result<Guard, InitError> {
    let traces = otlp_endpoint.map(|endpoint| exporter(endpoint, service_name)).transpose()?;
    let subscriber = tracing_subscriber::registry()
        .with(lines)
        .with(traces.as_ref().map(|traces| spans(traces.tracer("holdfast"))));
    tracing::subscriber::set_global_default(subscriber)
        .map_err(|source| InitError::Twice { source })?;
    Ok(Guard { traces })
}

fn parse_filter(filter: &str) -> Result<EnvFilter, InitError> {
    // The parser counts bytes in the trimmed directive and cuts the untrimmed one, which panics
    // in the middle of a character: give it nothing to trim.
    let trimmed: Vec<&str> = filter.split(',').map(str::trim).collect();
    EnvFilter::builder()
        .with_default_directive(LevelFilter::INFO.into())
        .parse(trimmed.join(","))
        .map_err(|source| InitError::Filter { filter: filter.to_owned(), source })
}

fn lines<S, W>(format: Format, colours: bool, writer: W) -> Box<dyn Layer<S> + Send + Sync>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
    W: for<'writer> MakeWriter<'writer> + Send + Sync + 'static,
{
    let layer = tracing_subscriber::fmt::layer().with_writer(writer);
    match format {
        Format::Text => layer.with_ansi(colours).boxed(),
        Format::Json => layer.json().flatten_event(true).with_span_list(false).boxed(),
    }
}

/// Where requests are spans of a level that logs do not show: a line of a log is not to begin with each.
const REQUEST_TARGETS: [&str; 1] = ["apiserver::dispatch"];

fn spans<S>(tracer: Tracer) -> impl Layer<S>
where
    S: tracing::Subscriber + for<'span> LookupSpan<'span>,
{
    let silent = EXPORTER_TARGETS.map(|target| (target, LevelFilter::OFF));
    let requests = REQUEST_TARGETS.map(|target| (target, LevelFilter::DEBUG));
    let filter = Targets::new().with_default(LevelFilter::INFO);
    let filter = filter.with_targets(silent).with_targets(requests);
    OpenTelemetryLayer::new(tracer).with_filter(filter)
}

fn exporter(endpoint: &str, service_name: &str) -> Result<SdkTracerProvider, InitError> {
    // The library panics without one.
    tokio::runtime::Handle::try_current().map_err(|_| InitError::NoRuntime)?;
    let exporter = SpanExporter::builder()
        .with_tonic()
        .with_endpoint(endpoint)
        .with_timeout(EXPORT_TIMEOUT)
        .build()
        .map_err(|source| InitError::Endpoint { endpoint: endpoint.to_owned(), source })?;
    let resource = Resource::builder().with_service_name(service_name.to_owned()).build();
    Ok(SdkTracerProvider::builder().with_batch_exporter(exporter).with_resource(resource).build())
}

#[cfg(test)]
mod tests {
    use std::io;
    use std::sync::{Arc, Mutex};

    use proptest::prelude::*;

    use super::*;

    #[derive(Clone, Default)]
    struct Written(Arc<Mutex<Vec<u8>>>);

    impl io::Write for Written {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().unwrap().extend_from_slice(bytes);
            Ok(bytes.len())
        }

        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn logged(format: Format, filter: &str, work: impl FnOnce()) -> String {
        let written = Written::default();
        let writer = written.clone();
        let layer = lines(format, false, move || writer.clone());
        let subscriber =
            tracing_subscriber::registry().with(layer.with_filter(parse_filter(filter).unwrap()));
        tracing::subscriber::with_default(subscriber, work);
        let bytes = written.0.lock().unwrap().clone();
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn requests_and_passes_are_traced_and_what_the_exporter_does_is_not() {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let subscriber = tracing_subscriber::registry().with(spans(tracer));
        tracing::subscriber::with_default(subscriber, || {
            let is_traced = |span: tracing::Span| span.in_scope(crate::traceparent).is_some();
            assert!(is_traced(tracing::debug_span!(target: "apiserver::dispatch", "request")));
            assert!(is_traced(tracing::info_span!(target: "reconcile::run", "reconcile")));
            assert!(!is_traced(tracing::debug_span!(target: "reconcile::run", "detail")));
            assert!(!is_traced(tracing::info_span!(target: "h2::client", "frame")));
        });
    }

    #[test]
    fn the_filter_decides_what_is_written() {
        let work = || {
            tracing::info!(target: "volumes", "quiet");
            tracing::warn!(target: "volumes", { volume.id = "v1" }, "loud");
        };
        let text = logged(Format::Text, "warn", work);
        assert!(text.contains("WARN volumes: loud volume.id=\"v1\""), "{text}");
        assert!(!text.contains("quiet"));
        assert_eq!(logged(Format::Text, "", work).lines().count(), 2, "info without a filter");
        assert_eq!(logged(Format::Text, "off,volumes=info", work).lines().count(), 2);
    }

    #[test]
    fn json_is_an_object_a_line() {
        let text = logged(Format::Json, "info", || {
            let _span = tracing::info_span!("task", name = "a").entered();
            tracing::info!(volume.id = "v1", "line\nend");
        });
        assert_eq!(text.lines().count(), 1);
        for part in ["\"message\":\"line\\nend\"", "\"volume.id\":\"v1\"", "\"name\":\"a\""] {
            assert!(text.contains(part), "{part} in {text}");
        }
    }

    #[test]
    fn a_bad_filter_is_named() {
        let error = parse_filter("volumes=loud").unwrap_err();
        assert!(error.to_string().starts_with("the log filter \"volumes=loud\""), "{error}");
    }

    #[test]
    fn traces_need_a_runtime_and_a_readable_endpoint() {
        assert!(matches!(exporter("http://127.0.0.1:1", "x"), Err(InitError::NoRuntime)));
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let _entered = runtime.enter();
        assert!(matches!(exporter("no url at all", "x"), Err(InitError::Endpoint { .. })));
    }

    #[test]
    fn it_is_set_up_once_and_a_silent_collector_does_not_hold_the_end() {
        let runtime =
            tokio::runtime::Builder::new_multi_thread().worker_threads(1).enable_all().build();
        let runtime = runtime.unwrap();
        let _entered = runtime.enter();
        let config = Config {
            filter: "off".to_owned(),
            otlp_endpoint: Some("http://127.0.0.1:1".to_owned()),
            ..Config::default()
        };
        let guard = init(&config).unwrap();
        tracing::info_span!("work").in_scope(|| ());
        assert!(matches!(init(&Config::default()), Err(InitError::Twice { .. })));
        drop(guard);
    }

    #[test]
    fn blanks_before_a_directive_do_not_matter() {
        assert!(parse_filter(" info, apiserver=debug").is_ok());
        // Accepted or refused, but not with a panic.
        let _ = parse_filter("\u{b}\u{363}=");
    }

    proptest! {
        #[test]
        fn noise_in_the_filter_never_panics(noise in ".{0,60}") {
            let _ = parse_filter(&noise);
        }
    }
}
