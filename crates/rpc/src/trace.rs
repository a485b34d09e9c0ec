//! Calls as parts of a trace: what a controller began goes on in engines and replicas.

use tonic::metadata::MetadataMap;
use tracing::Span;

const HEADER: &str = "traceparent";

/// The span of a call that is being served; hand it to `trace_fn` of a server.
///
/// Only for callers that are part of a trace: those who look every few seconds whether all is well are
/// not, and would fill a collector with nothing.
pub fn call_span(request: &http::Request<()>) -> Span {
    let parent = request.headers().get(HEADER).and_then(|value| value.to_str().ok());
    let Some(parent) = parent else { return Span::none() };
    let method = request.uri().path().trim_start_matches('/');
    let span = tracing::info_span!("call", otel.name = method, otel.kind = "server");
    telemetry::continue_trace(&span, parent);
    span
}

/// Tells the one who is called which trace the call is part of.
pub(crate) fn attach(metadata: &mut MetadataMap) {
    if let Some(parent) = telemetry::traceparent().and_then(|it| it.parse().ok()) {
        metadata.insert(HEADER, parent);
    }
}
