//! The identity in a client certificate.
//!
//! The signature and the purpose have been checked ([`crate::pki::Clients`]); this module reads the names and
//! checks the dates once more, because a connection may outlive the certificate it began with.

use jiff::Timestamp;
use sha2::{Digest, Sha256};
use x509_parser::prelude::{FromDer, X509Certificate};

use super::user::{CREDENTIAL_ID, User};

/// Longest certificate that is looked at.
const MAX_DER_BYTES: usize = 64 * 1024;

/// Why a certificate names nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CertificateError {
    #[error("the client certificate is not one of this server's clients")]
    Stranger,
    #[error("the client certificate cannot be read")]
    Malformed,
    #[error("the client certificate has no common name")]
    NoName,
    #[error("the client certificate is not valid now")]
    NotValidNow,
}

/// User is the common name, groups are the organizations.
pub fn user(der: &[u8], now: Timestamp) -> Result<User, CertificateError> {
    if der.len() > MAX_DER_BYTES {
        return Err(CertificateError::Malformed);
    }
    let (_, certificate) =
        X509Certificate::from_der(der).map_err(|_| CertificateError::Malformed)?;
    let validity = certificate.validity();
    let (from, to) = (validity.not_before.timestamp(), validity.not_after.timestamp());
    if now.as_second() < from || now.as_second() > to {
        return Err(CertificateError::NotValidNow);
    }
    let subject = certificate.subject();
    // The last common name counts: it is the most specific one.
    let name = subject.iter_common_name().filter_map(|name| name.as_str().ok()).last();
    let name = name.filter(|name| !name.is_empty()).ok_or(CertificateError::NoName)?;
    let groups = subject.iter_organization().filter_map(|group| group.as_str().ok());
    let groups = groups.filter(|group| !group.is_empty()).map(str::to_owned);
    let fingerprint = hex(&Sha256::digest(der));
    Ok(User::authenticated(name, "", groups)
        .with_extra(CREDENTIAL_ID, format!("X509SHA256={fingerprint}")))
}

fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes.iter().fold(String::with_capacity(bytes.len() * 2), |mut out, byte| {
        // Writing to a string cannot fail.
        let _ = write!(out, "{byte:02x}");
        out
    })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn noise_never_panics(der in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(user(&der, Timestamp::UNIX_EPOCH).is_err());
        }
    }
}
