//! From what a caller presents to who the caller is.
//!
//! Order: client certificate, then bearer token; the first that proves an identity wins. Nothing
//! presented is the anonymous user; something presented that proves nothing is refused, never
//! downgraded to anonymous.

use std::fmt;
use std::sync::Arc;

use jiff::Timestamp;

use super::certificate::{self, CertificateError};
use super::service_account::{Accounts, Signer, TokenError};
use super::tokens::StaticTokens;
use super::user::User;

/// The credentials do not prove an identity. The caller is told "Unauthorized" and no more; the
/// cause is for the log.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("Unauthorized")]
pub struct Unauthorized {
    pub cause: UnauthorizedCause,
}

/// Why credentials were refused, for the log. Holds no part of the credential.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum UnauthorizedCause {
    #[error(transparent)]
    Certificate(#[from] CertificateError),
    #[error("the Authorization header is not of the form \"Bearer TOKEN\"")]
    Scheme,
    #[error(transparent)]
    Token(#[from] TokenError),
}

impl<T: Into<UnauthorizedCause>> From<T> for Unauthorized {
    fn from(cause: T) -> Self {
        Self { cause: cause.into() }
    }
}

/// A token that was accepted: whose it is and for which of the asked audiences.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    pub user: User,
    pub audiences: Vec<String>,
}

/// Which of what a caller presented has shown who it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Means {
    Certificate,
    Token,
    /// Nothing was presented.
    Nothing,
}

/// Knows all credentials this server accepts.
#[derive(Clone)]
pub struct Authenticator {
    tokens: Arc<StaticTokens>,
    signer: Arc<Signer>,
    accounts: Arc<dyn Accounts>,
}

impl fmt::Debug for Authenticator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Authenticator")
            .field("tokens", &self.tokens)
            .field("signer", &self.signer)
            .finish_non_exhaustive()
    }
}

impl Authenticator {
    pub fn new(tokens: StaticTokens, signer: Arc<Signer>, accounts: Arc<dyn Accounts>) -> Self {
        Self { tokens: Arc::new(tokens), signer, accounts }
    }

    pub fn signer(&self) -> &Signer {
        &self.signer
    }

    /// Who presented this certificate (DER, verified, or why it is not) and `Authorization` header.
    pub fn authenticate(
        &self,
        certificate: Option<Result<&[u8], CertificateError>>,
        authorization: Option<&str>,
        now: Timestamp,
    ) -> Result<User, Unauthorized> {
        self.identify(certificate, authorization, now).map(|(user, _)| user)
    }

    /// [`Self::authenticate`], and by which of the two that is known.
    pub fn identify(
        &self,
        certificate: Option<Result<&[u8], CertificateError>>,
        authorization: Option<&str>,
        now: Timestamp,
    ) -> Result<(User, Means), Unauthorized> {
        let refused = match certificate.map(|one| one.and_then(|der| certificate::user(der, now))) {
            Some(Ok(user)) => return Ok((user, Means::Certificate)),
            Some(Err(error)) => Some(error),
            None => None,
        };
        match (authorization.map(str::trim).filter(|header| !header.is_empty()), refused) {
            (Some(header), _) => {
                let token = bearer(header).ok_or(UnauthorizedCause::Scheme)?;
                Ok((self.authenticate_token(token, &[], now)?.user, Means::Token))
            }
            (None, Some(error)) => Err(error.into()),
            (None, None) => Ok((User::anonymous(), Means::Nothing)),
        }
    }

    /// Whose token this is. No audiences means those of this server.
    pub fn authenticate_token(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Accepted, Unauthorized> {
        let ours = self.signer.audiences();
        let wanted = if audiences.is_empty() { ours } else { audiences };
        let (user, holds) = if let Some(user) = self.tokens.find(token) {
            // A static token says nothing of audiences: it is for this server alone.
            (user.clone(), ours.to_vec())
        } else {
            let claims = self.signer.verify(token, wanted, now)?;
            (claims.user(self.accounts.as_ref())?, claims.aud)
        };
        let audiences: Vec<_> = holds.into_iter().filter(|one| wanted.contains(one)).collect();
        if audiences.is_empty() {
            return Err(TokenError::Audience.into());
        }
        Ok(Accepted { user, audiences })
    }
}

/// The token of a `Bearer TOKEN` header; the scheme's case does not matter (RFC 9110).
fn bearer(header: &str) -> Option<&str> {
    let (scheme, token) = header.split_once(' ')?;
    let token = token.trim();
    (scheme.eq_ignore_ascii_case("bearer") && !token.is_empty()).then_some(token)
}

#[cfg(test)]
mod tests;
