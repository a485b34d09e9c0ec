//! Passing a trace on between processes, as the `traceparent` header of W3C Trace Context.

use std::collections::HashMap;
use std::sync::OnceLock;

use opentelemetry::Context;
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry_sdk::propagation::TraceContextPropagator;
use tracing::Span;
use tracing_opentelemetry::OpenTelemetrySpanExt;

const HEADER: &str = "traceparent";
/// The variable by which a command is told of the trace it is part of.
pub const TRACEPARENT_VARIABLE: &str = "TRACEPARENT";

/// The header to send with a request made in the current span; nothing where traces are off.
///
/// A command sends no spans of its own, as it is over before they could go out: what it asks for is part
/// of the trace that it was told of.
pub fn traceparent() -> Option<String> {
    let mut headers = HashMap::new();
    TraceContextPropagator::new().inject_context(&Span::current().context(), &mut headers);
    headers.remove(HEADER).or_else(|| inherited().map(str::to_owned))
}

fn inherited() -> Option<&'static str> {
    static TOLD: OnceLock<Option<String>> = OnceLock::new();
    TOLD.get_or_init(|| std::env::var(TRACEPARENT_VARIABLE).ok()).as_deref()
}

/// Makes `span` part of the trace of a received header. A header that cannot be read is ignored:
/// it comes from outside, and a trace is no reason to refuse a request.
pub fn continue_trace(span: &Span, traceparent: &str) {
    let headers = HashMap::from([(HEADER.to_owned(), traceparent.to_owned())]);
    let context = TraceContextPropagator::new().extract_with_context(&Context::new(), &headers);
    // It fails where traces are off or the span has begun; both leave a trace of its own.
    let _ = span.set_parent(context);
}

#[cfg(test)]
mod tests {
    use opentelemetry::trace::TracerProvider;
    use opentelemetry_sdk::trace::SdkTracerProvider;
    use proptest::prelude::*;
    use tracing_subscriber::layer::SubscriberExt;

    use super::*;

    const PARENT: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    fn with_traces<T>(work: impl FnOnce() -> T) -> T {
        let tracer = SdkTracerProvider::builder().build().tracer("test");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer);
        tracing::subscriber::with_default(tracing_subscriber::registry().with(layer), work)
    }

    #[test]
    fn a_trace_goes_on_through_the_header() {
        let sent = with_traces(|| {
            let span = tracing::info_span!("request");
            continue_trace(&span, PARENT);
            span.in_scope(traceparent)
        });
        let sent = sent.unwrap();
        assert_eq!(sent[..36], PARENT[..36], "the same trace");
        assert_ne!(sent, PARENT, "in a span of its own");
    }

    #[test]
    fn without_traces_nothing_is_sent() {
        assert_eq!(traceparent(), None);
        continue_trace(&Span::none(), PARENT);
    }

    proptest! {
        #[test]
        fn noise_in_the_header_never_panics(noise in ".{0,80}") {
            with_traces(|| continue_trace(&tracing::info_span!("request"), &noise));
        }
    }
}
