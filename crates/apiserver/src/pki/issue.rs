//! Making and inspecting certificates.

use std::collections::BTreeSet;
use std::time::Duration;

use jiff::Timestamp;
use rcgen::{
    BasicConstraints, CertificateParams, DistinguishedName, DnType, ExtendedKeyUsagePurpose, IsCa,
    Issuer, KeyPair, KeyUsagePurpose, PublicKeyData, SanType, SigningKey, date_time_ymd,
};
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::{FromDer, X509Certificate};

use super::names::Name;
use super::{PkiError, der};

/// Clocks of clients may be behind ours.
const BACKDATE_S: i64 = 300;
const CA_NAME: &str = "holdfast-ca";

/// What a certificate is good for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Purpose {
    Server,
    Client,
}

/// Whom a certificate is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Subject<'a> {
    pub(super) name: &'a str,
    pub(super) groups: &'a [&'a str],
    pub(super) sans: &'a [Name],
}

/// What is to be done with a stored certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum State {
    Good { expires_at: Timestamp },
    Renew,
}

/// The certificate authority.
pub(super) struct Authority {
    der: CertificateDer<'static>,
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    expires_at: Timestamp,
}

pub(super) fn generate_key(name: &str) -> Result<KeyPair, PkiError> {
    KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).map_err(|error| failed(name, &error))
}

fn failed(name: &str, error: &rcgen::Error) -> PkiError {
    PkiError::Issue { name: name.to_owned(), problem: error.to_string() }
}

impl Authority {
    pub(super) fn create(
        key: KeyPair,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<Self, PkiError> {
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(CA_NAME);
        params.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        params.key_usages = vec![KeyUsagePurpose::KeyCertSign, KeyUsagePurpose::CrlSign];
        let expires_at = add(now, lifetime);
        set_validity(&mut params, now, expires_at);
        let certificate = params.self_signed(&key).map_err(|error| failed(CA_NAME, &error))?;
        Ok(Self {
            pem: der::pem("CERTIFICATE", certificate.der()),
            der: certificate.der().clone(),
            issuer: Issuer::new(params, key),
            expires_at,
        })
    }

    /// Checks a stored authority; the error says what is wrong with the certificate.
    pub(super) fn load(pem: &str, key: KeyPair, now: Timestamp) -> Result<Self, String> {
        let der = CertificateDer::from_pem_slice(pem.as_bytes())
            .map_err(|_| "it is not a certificate in PEM form".to_owned())?
            .into_owned();
        let expires_at = {
            let (_, certificate) = X509Certificate::from_der(&der)
                .map_err(|_| "the certificate in it cannot be read".to_owned())?;
            if !certificate.is_ca() {
                return Err("it is not the certificate of an authority".to_owned());
            }
            if certificate.public_key().raw != key.subject_public_key_info() {
                return Err("it does not belong to the key in ca.key".to_owned());
            }
            if certificate.verify_signature(None).is_err() {
                return Err("its signature is wrong".to_owned());
            }
            expiry(&certificate)
        };
        if expires_at <= now {
            return Err(format!("it expired at {expires_at}"));
        }
        let issuer = Issuer::from_ca_cert_der(&der, key).map_err(|error| error.to_string())?;
        Ok(Self { pem: pem.to_owned(), der, issuer, expires_at })
    }

    pub(super) fn der(&self) -> &CertificateDer<'static> {
        &self.der
    }

    pub(super) fn pem(&self) -> &str {
        &self.pem
    }

    /// The end of something issued now: nothing outlives the authority.
    pub(super) fn limit(&self, now: Timestamp, lifetime: Duration) -> Timestamp {
        add(now, lifetime).min(self.expires_at)
    }

    pub(super) fn issue(
        &self,
        purpose: Purpose,
        subject: &Subject<'_>,
        key: &KeyPair,
        now: Timestamp,
        lifetime: Duration,
    ) -> Result<CertificateDer<'static>, PkiError> {
        let fault = |error: rcgen::Error| failed(subject.name, &error);
        let mut params = CertificateParams::default();
        params.distinguished_name = common_name(subject.name);
        params.subject_alt_names = sans(subject)?;
        params.key_usages = vec![KeyUsagePurpose::DigitalSignature];
        params.extended_key_usages = vec![match purpose {
            Purpose::Server => ExtendedKeyUsagePurpose::ServerAuth,
            Purpose::Client => ExtendedKeyUsagePurpose::ClientAuth,
        }];
        params.use_authority_key_identifier_extension = true;
        set_validity(&mut params, now, self.limit(now, lifetime));
        let certificate = params.signed_by(key, &self.issuer).map_err(fault)?;
        let full = der::subject(subject.name, subject.groups);
        let unsigned = der::Unsigned::with_subject(certificate.der(), &full)
            .ok_or_else(|| fault(rcgen::Error::CouldNotParseCertificate))?;
        let signature = self.issuer.key().sign(&unsigned.to_be_signed).map_err(fault)?;
        Ok(unsigned.finish(&signature).into())
    }

    /// Whether a stored certificate still serves until `until`; the error says how it is damaged.
    pub(super) fn inspect(
        &self,
        der: &CertificateDer<'_>,
        subject: &Subject<'_>,
        key: &KeyPair,
        until: Timestamp,
    ) -> Result<State, &'static str> {
        let (_, certificate) =
            X509Certificate::from_der(der).map_err(|_| "the certificate in it cannot be read")?;
        if certificate.public_key().raw != key.subject_public_key_info() {
            return Err("it does not belong to the key beside it");
        }
        let (_, authority) =
            X509Certificate::from_der(&self.der).map_err(|_| "the authority cannot be read")?;
        let expires_at = expiry(&certificate);
        let is_ours = certificate.verify_signature(Some(authority.public_key())).is_ok();
        // Renewing cannot help when the authority itself ends first.
        let lasts = expires_at >= until.min(self.expires_at);
        let is_good = is_ours && lasts && holds_names(&certificate, subject);
        Ok(if is_good { State::Good { expires_at } } else { State::Renew })
    }
}

fn holds_names(certificate: &X509Certificate<'_>, subject: &Subject<'_>) -> bool {
    let alternative = certificate.subject_alternative_name().ok().flatten();
    let general = alternative.iter().flat_map(|it| &it.value.general_names);
    let held: BTreeSet<Name> = general.filter_map(stored_name).collect();
    let common_name =
        certificate.subject().iter_common_name().next().and_then(|name| name.as_str().ok());
    subject.sans.iter().all(|name| held.contains(name)) && common_name == Some(subject.name)
}

fn stored_name(name: &GeneralName<'_>) -> Option<Name> {
    match name {
        GeneralName::DNSName(host) => Some(Name::Host((*host).to_owned())),
        GeneralName::IPAddress(bytes) => {
            let four = <[u8; 4]>::try_from(*bytes).map(Into::into);
            let address = four.or_else(|_| <[u8; 16]>::try_from(*bytes).map(Into::into));
            address.ok().map(Name::Address)
        }
        _ => None,
    }
}

fn sans(subject: &Subject<'_>) -> Result<Vec<SanType>, PkiError> {
    let one = |name: &Name| match name {
        Name::Address(address) => Ok(SanType::IpAddress(*address)),
        Name::Host(host) => host
            .as_str()
            .try_into()
            .map(SanType::DnsName)
            .map_err(|error| failed(subject.name, &error)),
    };
    subject.sans.iter().map(one).collect()
}

fn common_name(name: &str) -> DistinguishedName {
    let mut full = DistinguishedName::new();
    full.push(DnType::CommonName, name);
    full
}

fn set_validity(params: &mut CertificateParams, now: Timestamp, until: Timestamp) {
    let epoch = date_time_ymd(1970, 1, 1);
    let seconds = |second: i64| Duration::from_secs(u64::try_from(second).unwrap_or(0));
    params.not_before = epoch + seconds(now.as_second() - BACKDATE_S);
    params.not_after = epoch + seconds(until.as_second());
}

fn add(now: Timestamp, lifetime: Duration) -> Timestamp {
    now.saturating_add(lifetime).unwrap_or(Timestamp::MAX)
}

fn expiry(certificate: &X509Certificate<'_>) -> Timestamp {
    let second = certificate.validity().not_after.timestamp();
    Timestamp::from_second(second).unwrap_or(Timestamp::MAX)
}
