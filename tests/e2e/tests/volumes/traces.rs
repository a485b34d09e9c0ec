//! One trace from a controller to the engine and its replicas, as a collector receives it.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use opentelemetry_proto::tonic::collector::trace::v1::trace_service_server::{
    TraceService, TraceServiceServer,
};
use opentelemetry_proto::tonic::collector::trace::v1::{
    ExportTraceServiceRequest, ExportTraceServiceResponse,
};
use opentelemetry_proto::tonic::common::v1::any_value::Value;
use opentelemetry_proto::tonic::trace::v1::ResourceSpans;
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{Request, Response, Status};

use e2e::volumes::{Content, Rig};

/// Which services took part in each trace, and what they called it.
type Traces = BTreeMap<Vec<u8>, BTreeSet<(String, String)>>;

#[derive(Clone, Default)]
struct Collector(Arc<Mutex<Traces>>);

#[tonic::async_trait]
impl TraceService for Collector {
    async fn export(
        &self,
        request: Request<ExportTraceServiceRequest>,
    ) -> Result<Response<ExportTraceServiceResponse>, Status> {
        let mut traces = self.0.lock().unwrap();
        for sent in request.into_inner().resource_spans {
            let service = service(&sent);
            for span in sent.scope_spans.into_iter().flat_map(|it| it.spans) {
                traces.entry(span.trace_id).or_default().insert((service.clone(), span.name));
            }
        }
        Ok(Response::new(ExportTraceServiceResponse::default()))
    }
}

fn service(sent: &ResourceSpans) -> String {
    let attributes = sent.resource.iter().flat_map(|it| &it.attributes);
    let name = attributes.into_iter().find(|it| it.key == "service.name");
    match name.and_then(|it| it.value.as_ref()?.value.as_ref()) {
        Some(Value::StringValue(name)) => name.clone(),
        _ => String::new(),
    }
}

impl Collector {
    /// Serves on a free port until the test is over.
    fn start() -> (Self, SocketAddr) {
        let collector = Self::default();
        let service = TraceServiceServer::new(collector.clone());
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.unwrap().block_on(async {
                let listener = tokio::net::TcpListener::from_std(listener).unwrap();
                let incoming = TcpListenerStream::new(listener);
                let serving = tonic::transport::Server::builder().add_service(service);
                serving.serve_with_incoming(incoming).await.unwrap();
            });
        });
        (collector, address)
    }

    /// Whether one trace has a span of each of these services.
    fn has_trace_of(&self, services: &[&str], method: &str) -> bool {
        let traces = self.0.lock().unwrap();
        traces.values().any(|spans| {
            let of = |service: &str| spans.iter().any(|(by, _)| by == service);
            services.iter().all(|it| of(it)) && spans.iter().any(|(_, name)| name.contains(method))
        })
    }
}

#[test]
fn a_trace_goes_from_the_controller_through_the_engine_to_its_replicas() {
    let (collector, address) = Collector::start();
    let rig = Rig::start_with(&["--otlp-endpoint", &format!("http://{address}")]);
    rig.volume("traced", 16, 2);
    rig.attach("traced");
    let mut content = Content::new();
    rig.write("traced", &mut content, 0, 2, 1);
    rig.snapshot("traced", "first");
    rig.until("the snapshot is one trace in three kinds of processes", || {
        let services = ["holdfast", "holdfast-engine", "holdfast-replica"];
        collector.has_trace_of(&services, "VolumeSnapshot")
    });
}
