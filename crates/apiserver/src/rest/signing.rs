//! Certificate signing requests: who asked is what the server knows, not what the body says, and
//! deciding about them or signing them takes a right at the signer.

use serde_json::{Value, json};

use super::Call;
use super::admit;
use crate::auth::User;
use crate::auth::rbac::Attributes;
use crate::failure::Failure;
use crate::registry::Resource;
use crate::server::Server;

const GROUP: &str = "certificates.k8s.io";
/// Certificates of this signer are believed by the API server itself.
const CLIENT_SIGNER: &str = "kubernetes.io/kube-apiserver-client";

/// What a caller wants to do as a signer.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Right {
    Approve,
    Sign,
}

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
    if text("signerName") == CLIENT_SIGNER && asks_for_masters(text("request")) {
        let subject = admit::subject(resource, admit::metadata_text(object, "name"));
        let why = "use of kubernetes.io/kube-apiserver-client signer with system:masters group is \
                   not allowed";
        return Err(Failure::forbidden(why).about(subject));
    }
    Ok(())
}

/// Does the request name the organisation whose members may do everything? The attribute is looked
/// for in the whole of it: a request that hides it elsewhere is no better.
fn asks_for_masters(request: &str) -> bool {
    use base64::Engine as _;
    const ORGANISATION: [u8; 5] = [0x06, 0x03, 0x55, 0x04, 0x0a];
    const MASTERS: &[u8] = b"system:masters";
    let engine = base64::engine::general_purpose::STANDARD;
    let Ok(pem) = engine.decode(request) else { return false };
    let Ok(pem) = std::str::from_utf8(&pem) else { return false };
    let body: String =
        pem.lines().filter(|line| !line.starts_with("-----")).map(str::trim).collect();
    let Ok(der) = engine.decode(body) else { return false };
    der.windows(ORGANISATION.len()).enumerate().any(|(at, window)| {
        // The identifier, then the type and length of a string, then the string.
        let value = der.get(at + ORGANISATION.len() + 2..).unwrap_or_default();
        window == ORGANISATION && value.starts_with(MASTERS)
    })
}

/// Changes of a signing request's decisions or certificate need the right at its signer, by its name
/// or its domain.
pub(crate) fn may(server: &Server, call: &Call, name: &str, right: Right) -> Result<(), Failure> {
    let resource = &*call.resource;
    if !is_request(resource) {
        return Ok(());
    }
    // What is not there is found missing later.
    let Some(stored) = server.store.get(&resource.id, "", name) else { return Ok(()) };
    let object = stored.value().unwrap_or_default();
    let signer = object.pointer("/spec/signerName").and_then(Value::as_str).unwrap_or_default();
    let domain = format!("{}/*", signer.split('/').next().unwrap_or_default());
    let verb = match right {
        Right::Approve => "approve",
        Right::Sign => "sign",
    };
    let allowed = [signer, &domain].into_iter().any(|name| {
        let at = Attributes::of(&call.user);
        let wanted = Attributes { verb, group: GROUP, resource: "signers", name, ..at };
        server.authorize(&wanted).is_ok()
    });
    if allowed {
        return Ok(());
    }
    let why = format!("user not permitted to {verb} requests with signerName {signer:?}");
    Err(Failure::forbidden(why).about(admit::subject(resource, name)))
}

#[cfg(test)]
mod tests {
    use base64::Engine as _;

    use super::*;

    fn request(subject: rcgen::DistinguishedName) -> String {
        let mut parameters = rcgen::CertificateParams::default();
        parameters.distinguished_name = subject;
        let key = rcgen::KeyPair::generate().unwrap();
        let pem = parameters.serialize_request(&key).unwrap().pem().unwrap();
        base64::engine::general_purpose::STANDARD.encode(pem)
    }

    #[test]
    fn nobody_asks_for_the_group_that_may_do_everything() {
        let mut subject = rcgen::DistinguishedName::new();
        subject.push(rcgen::DnType::CommonName, "ada");
        subject.push(rcgen::DnType::OrganizationName, "system:nodes");
        assert!(!asks_for_masters(&request(subject.clone())));
        subject.push(rcgen::DnType::OrganizationName, "system:masters");
        assert!(asks_for_masters(&request(subject)));
        for noise in ["", "x", "QUJD"] {
            assert!(!asks_for_masters(noise));
        }
    }
}
