//! `profiler show`, `enable`, `disable`.

use rpc::profilerrpc::profiler_client::ProfilerClient;
use rpc::profilerrpc::{Op, ProfilerOpRequest};

use super::console::Console;
use super::error::{Answer as _, Error};
use super::parse::Line;
use super::session::Session;
use super::table::flags as f;

/// The lowest port somebody may choose.
const PORT_MIN: i64 = 30_000;
/// From the port of the server to that of its profiler.
const PORT_STEP: i32 = 20_001;

pub(crate) async fn show(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    let address = asked(session, Op::Show, 0).await?;
    if address.is_empty() {
        return console.say("Profiler is not enabled");
    }
    console.say(&format!("Profiler is enabled at {address}"))
}

pub(crate) async fn enable(
    session: &Session,
    line: &Line,
    console: &mut Console<'_>,
) -> Result<(), Error> {
    let port = match line.flags.integer(&f::PORT) {
        0 => i32::from(session.controller_port()) + PORT_STEP,
        port => i32::try_from(port)
            .ok()
            .filter(|_| (PORT_MIN..=i64::from(u16::MAX)).contains(&port))
            .ok_or_else(|| Error::Refused(format!("invalid port {port}: from {PORT_MIN} on")))?,
    };
    let address = asked(session, Op::Enable, port).await?;
    console.say(&format!("Profiler is enabled at {address}"))
}

pub(crate) async fn disable(session: &Session, console: &mut Console<'_>) -> Result<(), Error> {
    asked(session, Op::Disable, 0).await?;
    console.say("Profiler is disabled")
}

async fn asked(session: &Session, op: Op, port_number: i32) -> Result<String, Error> {
    let mut client = ProfilerClient::new(session.controller_peer()?);
    let mut request = ProfilerOpRequest { request_op: 0, port_number };
    request.set_request_op(op);
    let reply = client.profiler_op(request).await;
    Ok(reply.or_failed("failed to ask the profiler")?.profiler_addr)
}
