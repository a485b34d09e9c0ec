//! Reviews and tokens: created, answered, never stored.

use axum::response::Response;
use http::StatusCode;
use serde_json::{Value, json};

use super::options::WriteOptions;
use super::{Call, admit, decode, read, view};
use crate::auth::review::{self, TokenRequest};
use crate::auth::service_account::{BoundKind, ObjectRef, TokenSpec};
use crate::clock;
use crate::failure::Failure;
use crate::negotiate::{Answer, Shape};
use crate::server::Server;

/// `POST` of one of the review kinds: the body comes back with a status.
pub(crate) fn answer(server: &Server, call: &Call) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let options = WriteOptions::parse("CreateOptions", &call.query, &call.headers)?;
    let mut warnings = Vec::new();
    let given = if call.body.is_empty() { b"{}" } else { &call.body[..] };
    let mut body =
        decode::object(resource, &call.headers, given, options.validation, &mut warnings)?;
    let index = server.rbac();
    let status = match resource.kind.as_str() {
        "SelfSubjectAccessReview" => review::self_subject_access(&body, &call.user, &index),
        "SubjectAccessReview" => review::subject_access(&body, &index),
        "LocalSubjectAccessReview" => {
            review::local_subject_access(&body, call.namespace().unwrap_or_default(), &index)
        }
        "SelfSubjectRulesReview" => review::self_subject_rules(&body, &call.user, &index),
        "SelfSubjectReview" => Ok(review::self_subject(&call.user)),
        "TokenReview" => review::token(&body, &server.authenticator, call.now),
        _ => return Err(Failure::no_such_path()),
    };
    drop(index);
    let status = status.map_err(|causes| admit::invalid(resource, "", &causes))?;
    let metadata = admit::metadata_mut(&mut body);
    if resource.kind == "SelfSubjectReview" {
        metadata.insert("creationTimestamp".into(), clock::seconds(call.now).into());
    }
    admit::object_mut(&mut body).insert("status".into(), status);
    Ok(view::with_warnings(respond(call, &body)?, &warnings))
}

fn respond(call: &Call, body: &Value) -> Result<Response, Failure> {
    if call.answer.shape == Shape::PartialList {
        return Err(Failure::not_acceptable("application/json"));
    }
    let whole = Answer { shape: Shape::Whole, ..call.answer };
    Ok(view::respond(StatusCode::CREATED, body, whole))
}

/// `POST …/serviceaccounts/NAME/token`
pub(crate) fn token(server: &Server, call: &Call, name: &str) -> Result<Response, Failure> {
    let resource = &*call.resource;
    let account = read::find(server, resource, call.namespace(), name)?;
    WriteOptions::parse("CreateOptions", &call.query, &call.headers)?;
    let mut body = decode::sent(decode::TOKEN_REQUEST, resource, &call.headers, &call.body)?;
    let subject = |causes: &[objects::cause::Cause]| {
        let subject = crate::failure::Subject::new("authentication.k8s.io", "TokenRequest", "");
        Failure::invalid(subject, causes)
    };
    let asked = TokenRequest::parse(&body).map_err(|causes| subject(&causes))?;
    let namespace = &account.key.namespace;
    let bound = match asked.bound {
        None => None,
        Some((kind, object)) => Some(bind(server, namespace, kind, object)?),
    };
    let spec = TokenSpec {
        namespace,
        name,
        uid: &account.meta.uid,
        audiences: &asked.audiences,
        lifetime_s: asked.lifetime_s,
        bound,
    };
    let signer = server.authenticator.signer();
    let issued = signer
        .issue(&spec, call.now)
        .map_err(|error| Failure::internal(format!("no token was issued: {error}")))?;
    let members = admit::object_mut(&mut body);
    members.insert("kind".into(), "TokenRequest".into());
    members.insert("apiVersion".into(), "authentication.k8s.io/v1".into());
    members.insert(
        "metadata".into(),
        json!({
            "name": name,
            "namespace": **namespace,
            "creationTimestamp": clock::seconds(call.now),
        }),
    );
    let spec = admit::object_mut(members.entry("spec").or_insert_with(|| json!({})));
    spec.insert("expirationSeconds".into(), asked.lifetime_s.into());
    spec.insert("audiences".into(), json!(issued.claims.aud));
    members.insert(
        "status".into(),
        json!({
            "token": issued.token,
            "expirationTimestamp": clock::seconds(issued.expires_at),
        }),
    );
    respond(call, &body)
}

/// The object a token lives and dies with, as it is now.
fn bind(
    server: &Server,
    namespace: &str,
    kind: BoundKind,
    object: ObjectRef,
) -> Result<(BoundKind, ObjectRef), Failure> {
    let (plural, scope) = crate::server::bound_place(kind, namespace);
    let missing = || Failure::not_found(crate::failure::Subject::new("", plural, &object.name));
    let found = server.store.get(&format!("/{plural}"), scope, &object.name).ok_or_else(missing)?;
    if !object.uid.is_empty() && *object.uid != *found.meta.uid {
        let subject = crate::failure::Subject::new("", plural, &object.name);
        return Err(Failure::conflict(subject, "the bound object has another uid"));
    }
    Ok((kind, ObjectRef { uid: found.meta.uid.to_string(), ..object }))
}
