//! Who calls: without an identity service, or by its tokens.

mod keystone;
pub(crate) mod policy;

use async_trait::async_trait;

pub use keystone::{Keystone, KeystoneOptions};

/// Who calls, and with which roles in which project.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    pub user_id: String,
    pub project_id: String,
    pub roles: Vec<String>,
    /// The call is made by a service on the user's behalf.
    pub is_service: bool,
}

impl Caller {
    pub(crate) fn has(&self, role: &str) -> bool {
        self.roles.iter().any(|it| it.eq_ignore_ascii_case(role))
    }

    pub(crate) fn is_admin(&self) -> bool {
        self.has("admin")
    }

    /// The project whose rows are seen; none for an administrator, who sees all.
    pub(crate) fn scope(&self) -> Option<&str> {
        (!self.is_admin()).then_some(self.project_id.as_str())
    }
}

/// What a request says of its caller.
#[derive(Debug, Clone, Copy, Default)]
pub struct Tokens<'a> {
    pub user: Option<&'a str>,
    pub service: Option<&'a str>,
}

/// Why a caller is not known.
#[derive(Debug, thiserror::Error)]
pub enum AuthError {
    #[error("no token, or none that is valid")]
    Unauthorized,
    #[error("the identity service cannot be asked: {0}")]
    Unavailable(String),
}

/// Tells who a caller is.
#[async_trait]
pub trait Identity: Send + Sync + std::fmt::Debug {
    async fn caller(&self, tokens: Tokens<'_>) -> Result<Caller, AuthError>;

    /// The token with which this service asks others, another than one that was refused. Nothing
    /// where others ask for none.
    async fn service_token(&self, _refused: Option<&str>) -> Result<Option<String>, AuthError> {
        Ok(None)
    }

    /// Where clients get tokens, for those who come without.
    fn address(&self) -> Option<&str> {
        None
    }

    /// Whether a request without a token is told which one to use.
    fn offers_token(&self) -> bool {
        false
    }
}

/// The longest name of a user or a project.
const NAME_BYTES: usize = 255;

/// No identity service: a token is `user:project` or `user:project:role,role`, and without roles the
/// caller is an administrator. For loopback only.
#[derive(Debug, Clone, Copy, Default)]
pub struct NoAuth;

#[async_trait]
impl Identity for NoAuth {
    async fn caller(&self, tokens: Tokens<'_>) -> Result<Caller, AuthError> {
        let mut parts = tokens.user.ok_or(AuthError::Unauthorized)?.splitn(3, ':');
        let user = parts.next().unwrap_or_default();
        let project = parts.next().unwrap_or(user);
        let is_name = |it: &str| (1..=NAME_BYTES).contains(&it.len());
        if !is_name(user) || !is_name(project) {
            return Err(AuthError::Unauthorized);
        }
        let roles = parts.next().map_or_else(
            || ["admin", "manager", "member", "reader"].map(str::to_owned).to_vec(),
            |roles| expand(roles.split(',').map(str::to_owned).collect()),
        );
        Ok(Caller {
            user_id: user.to_owned(),
            project_id: project.to_owned(),
            roles,
            is_service: tokens.service.is_some(),
        })
    }

    fn offers_token(&self) -> bool {
        true
    }
}

/// Roles with those they imply, as an identity service lists them.
fn expand(mut roles: Vec<String>) -> Vec<String> {
    let implied: &[&str] = if roles.iter().any(|it| it == "admin") {
        &["manager", "member", "reader"]
    } else if roles.iter().any(|it| it == "member") {
        &["reader"]
    } else {
        &[]
    };
    roles.extend(implied.iter().map(|it| (*it).to_owned()));
    roles
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn of(token: Option<&str>) -> Result<Caller, AuthError> {
        NoAuth.caller(Tokens { user: token, service: None }).await
    }

    #[tokio::test]
    async fn tokens_without_an_identity_service() {
        let caller = of(Some("ann:p1")).await.unwrap();
        assert_eq!((caller.user_id.as_str(), caller.project_id.as_str()), ("ann", "p1"));
        assert!(caller.is_admin() && caller.scope().is_none());
        let caller = of(Some("ann:p1:member")).await.unwrap();
        assert!(!caller.is_admin() && caller.has("reader"));
        assert_eq!(caller.scope(), Some("p1"));
        assert_eq!(of(Some("ann")).await.unwrap().project_id, "ann");
        assert!(of(None).await.is_err() && of(Some(":")).await.is_err());
        let long = "p".repeat(3_000);
        assert!(of(Some(&long)).await.is_err() && of(Some(&format!("u:{long}"))).await.is_err());
    }
}
