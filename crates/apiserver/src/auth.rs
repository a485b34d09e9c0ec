//! Who is calling, and may they?
//!
//! Authentication (`authenticator`, over `certificate`, `tokens`, `service_account`), impersonation,
//! authorization (`rbac`), the review APIs, the default roles, and the audit log. Everything but
//! `audit` is pure: values in, values out, the clock is a parameter. Nothing here may log, print or
//! store a token, a key or the body of a request.

pub mod audit;
pub mod authenticator;
pub mod bootstrap;
pub mod certificate;
pub mod controller;
mod forbidden;
pub mod impersonate;
pub mod kubeconfig;
pub mod rbac;
pub mod review;
pub mod service_account;
pub mod tokens;
pub mod user;

pub use authenticator::{Accepted, Authenticator, Unauthorized};
pub use forbidden::forbidden_message;
pub use rbac::{Attributes, Decision, RbacIndex};
pub use user::User;
