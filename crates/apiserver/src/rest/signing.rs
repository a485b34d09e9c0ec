//! Certificate signing requests: who asked is what the server knows, not what the body says, and
//! deciding about them or signing them takes a right at the signer.

use base64::Engine as _;
use objects::cause::Cause;
use serde_json::{Value, json};
use x509_parser::prelude::{FromDer, X509CertificationRequest};

use super::Call;
use super::admit::{self, Endpoint};
use crate::auth::User;
use crate::auth::rbac::Attributes;
use crate::auth::user::MASTERS;
use crate::failure::Failure;
use crate::registry::Resource;
use crate::server::Server;

const GROUP: &str = "certificates.k8s.io";
/// Certificates of these signers may be signed by the authority that the API server believes: a
/// cluster's controllers sign for all of them with one key.
const CLUSTER_SIGNERS: &str = "kubernetes.io/";

fn is_request(resource: &Resource) -> bool {
    resource.group == GROUP && resource.built_in().is_some()
}

/// Writes down who asks, over whatever the body claims.
pub(crate) fn stamp(resource: &Resource, user: &User, object: &mut Value) -> Result<(), Failure> {
    if !is_request(resource) {
        return Ok(());
    }
    let spec = admit::object_mut(object).entry("spec").or_insert_with(|| json!({}));
    let spec = admit::object_mut(spec);
    spec.insert("username".to_owned(), user.name.as_str().into());
    for member in ["uid", "groups", "extra"] {
        spec.remove(member);
    }
    if !user.uid.is_empty() {
        spec.insert("uid".to_owned(), user.uid.as_str().into());
    }
    if !user.groups.is_empty() {
        spec.insert("groups".to_owned(), json!(user.groups));
    }
    if !user.extra.is_empty() {
        spec.insert("extra".to_owned(), json!(user.extra));
    }
    let text = |member: &str| spec.get(member).and_then(Value::as_str).unwrap_or_default();
    if !text("signerName").starts_with(CLUSTER_SIGNERS) {
        return Ok(());
    }
    let signer = text("signerName").to_owned();
    let named = organisations(text("request"));
    let name = admit::metadata_text(object, "name");
    match named {
        None => {
            let why = "must be one CERTIFICATE REQUEST in PEM, with nothing around it, whose \
                       organizations are plain text";
            let cause = Cause::invalid("spec.request", &"".into(), why);
            Err(admit::invalid(resource, name, &[cause]))
        }
        Some(all) if all.iter().any(|one| one == MASTERS) => {
            let why = format!("use of {signer} signer with {MASTERS} group is not allowed");
            Err(Failure::forbidden(why).about(admit::subject(resource, name)))
        }
        Some(_) => Ok(()),
    }
}

/// The organisations that a request names. None of what cannot be read: whoever signs it may read
/// more in it than we do, so it is not believed to name nobody.
fn organisations(request: &str) -> Option<Vec<String>> {
    let engine = base64::engine::general_purpose::STANDARD;
    let pem = String::from_utf8(engine.decode(request).ok()?).ok()?;
    let body = pem
        .trim()
        .strip_prefix("-----BEGIN CERTIFICATE REQUEST-----")?
        .strip_suffix("-----END CERTIFICATE REQUEST-----")?;
    let body: String = body.split_ascii_whitespace().collect();
    let der = engine.decode(body).ok()?;
    let (rest, read) = X509CertificationRequest::from_der(&der).ok()?;
    if !rest.is_empty() {
        return None;
    }
    let subject = &read.certification_request_info.subject;
    subject.iter_organization().map(|one| one.as_str().ok().map(str::to_owned)).collect()
}

/// Changes of a signing request's decisions or certificate need the right at its signer, by its name
/// or its domain. Asked of the state that is replaced: another request may have the name by then.
pub(crate) fn may(
    server: &Server,
    call: &Call,
    endpoint: Endpoint,
    old: &Value,
) -> Result<(), Failure> {
    let resource = &*call.resource;
    let verb = match endpoint {
        Endpoint::Approval => "approve",
        Endpoint::Status => "sign",
        Endpoint::Main | Endpoint::Scale | Endpoint::Finalize => return Ok(()),
    };
    if !is_request(resource) {
        return Ok(());
    }
    let signer = old.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let allowed = [signer, &domain].into_iter().any(|name| {
        let at = Attributes::of(&call.user);
        let wanted = Attributes { verb, group: GROUP, resource: "signers", name, ..at };
        server.authorize(&wanted).is_ok()
    });
    if allowed {
        return Ok(());
    }
    let name = admit::metadata_text(old, "name");
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(Failure::forbidden(why).about(admit::subject(resource, name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pem(subject: rcgen::DistinguishedName) -> String {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = subject;
        let key = rcgen::KeyPair::generate().unwrap();
        parameters.serialize_request(&key).unwrap().pem().unwrap()
    }

    fn named(pem: &str) -> Option<Vec<String>> {
        organisations(&base64::engine::general_purpose::STANDARD.encode(pem))
    }

    fn subject(organisation: rcgen::DnValue) -> rcgen::DistinguishedName {
        let mut subject = rcgen::DistinguishedName::new();
        subject.push(rcgen::DnType::CommonName, "ada");
        subject.push(rcgen::DnType::OrganizationName, organisation);
        subject
    }

    #[test]
    fn organisations_are_read_and_what_cannot_be_read_names_somebody() {
        let nodes = pem(subject(rcgen::DnValue::Utf8String("system:nodes".to_owned())));
        assert_eq!(named(&nodes), Some(vec!["system:nodes".to_owned()]));
        let masters = pem(subject(rcgen::DnValue::Utf8String(MASTERS.to_owned())));
        assert_eq!(named(&masters), Some(vec![MASTERS.to_owned()]));
        // Other readers of PEM pass over what stands before, and read letters of two bytes.
        let wide = rcgen::string::BmpString::try_from(MASTERS).unwrap();
        let wide = pem(subject(rcgen::DnValue::BmpString(wide)));
        for odd in [
            format!("Certificate Request:\n{masters}"),
            masters.replacen('\n', "\nProc-Type: 4\n\n", 1),
            format!("{nodes}{masters}"),
            wide,
        ] {
            assert_eq!(named(&odd), None, "{odd}");
        }
        for noise in ["", "x", "-----BEGIN CERTIFICATE REQUEST-----"] {
            assert_eq!(named(noise), None);
        }
        assert_eq!(organisations("no base64"), None);
    }
}
