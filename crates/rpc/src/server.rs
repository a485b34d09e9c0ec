//! What the servers of controller, replica and sync agent share.

use tonic::service::Routes;
use tonic::{Code, Status};

use crate::{DESCRIPTORS, Profiler};

/// Routes every server has: reflection in both versions, and the profiler switch.
///
/// # Errors
/// If the descriptors compiled into this binary cannot be read.
pub fn common() -> Result<Routes, tonic_reflection::server::Error> {
    let builder = || {
        tonic_reflection::server::Builder::configure()
            .register_encoded_file_descriptor_set(DESCRIPTORS)
            .include_reflection_service(true)
    };
    Ok(Routes::new(builder().build_v1()?)
        .add_service(builder().build_v1alpha()?)
        .add_service(Profiler::service()))
}

/// An error as the dialect sends it unless it says otherwise: code UNKNOWN and the text callers
/// match on.
pub fn text(message: impl Into<String>) -> Status {
    Status::new(Code::Unknown, message.into())
}
