//! What volumes can be and what may be done to them, as pure values: the two status fields
//! ([`status`]), one as seen by clients that know only one ([`translate`]), and which operation is
//! allowed when ([`operation`]).

pub(crate) mod capabilities;
pub(crate) mod operation;
pub(crate) mod reset;
pub(crate) mod status;
pub(crate) mod translate;
