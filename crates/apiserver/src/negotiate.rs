//! Content negotiation: which form of an answer a client asked for, which form a body has.

use http::{HeaderMap, header};

use crate::failure::Failure;

/// Serialisation of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    Json,
    Yaml,
}

/// What the answer shows of the objects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Shape {
    Whole,
    /// `meta.k8s.io/v1` or `v1beta1`.
    Table(&'static str),
    Partial,
    PartialList,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Answer {
    pub syntax: Syntax,
    pub shape: Shape,
    pub pretty: bool,
}

/// Which discovery document a client can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DiscoveryForm {
    Plain,
    Aggregated,
}

/// One clause of an Accept header.
struct Clause<'a> {
    media: &'a str,
    parameters: Vec<(&'a str, &'a str)>,
}

impl<'a> Clause<'a> {
    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }
}

fn clauses(headers: &HeaderMap) -> Vec<Clause<'_>> {
    headers
        .get_all(header::ACCEPT)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters = parts.filter_map(|part| part.split_once('=')).collect();
            Clause { media, parameters }
        })
        .filter(|clause| !clause.media.is_empty())
        .collect()
}

const OFFERED: &str = "application/json, application/yaml";

/// The first clause the server can satisfy wins.
pub(crate) fn answer(headers: &HeaderMap, pretty: bool) -> Result<Answer, Failure> {
    let clauses = clauses(headers);
    let pretty = pretty || is_browser(headers);
    if clauses.is_empty() {
        return Ok(Answer { syntax: Syntax::Json, shape: Shape::Whole, pretty });
    }
    clauses
        .iter()
        .find_map(|clause| {
            let syntax = match clause.media {
                "application/json" | "*/*" | "application/*" => Syntax::Json,
                "application/yaml" => Syntax::Yaml,
                _ => return None,
            };
            let shape = match (clause.parameter("as"), clause.parameter("v")) {
                (None, _) => Shape::Whole,
                (Some("Table"), Some("v1")) => Shape::Table("meta.k8s.io/v1"),
                (Some("Table"), Some("v1beta1")) => Shape::Table("meta.k8s.io/v1beta1"),
                (Some("PartialObjectMetadata"), Some("v1" | "v1beta1")) => Shape::Partial,
                (Some("PartialObjectMetadataList"), Some("v1" | "v1beta1")) => Shape::PartialList,
                (Some(_), _) => return None,
            };
            Some(Answer { syntax, shape, pretty })
        })
        .ok_or_else(|| Failure::not_acceptable(OFFERED))
}

/// Aggregated discovery only when a clause asks for exactly the version we speak.
pub(crate) fn discovery(headers: &HeaderMap) -> Result<DiscoveryForm, Failure> {
    let clauses = clauses(headers);
    if clauses.is_empty() {
        return Ok(DiscoveryForm::Plain);
    }
    clauses
        .iter()
        .find_map(|clause| match (clause.media, clause.parameter("as"), clause.parameter("v")) {
            ("application/json", Some("APIGroupDiscoveryList"), Some("v2")) => {
                Some(DiscoveryForm::Aggregated)
            }
            ("application/json" | "*/*" | "application/*" | "application/yaml", None, _) => {
                Some(DiscoveryForm::Plain)
            }
            _ => None,
        })
        .ok_or_else(|| Failure::not_acceptable(OFFERED))
}

/// Does any clause take plain JSON?
pub(crate) fn accepts_json(headers: &HeaderMap) -> bool {
    answer(headers, false).is_ok()
}

/// People look at answers with these; they get indented text.
fn is_browser(headers: &HeaderMap) -> bool {
    headers
        .get(header::USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .is_some_and(|agent| ["curl", "Wget", "Mozilla"].iter().any(|one| agent.starts_with(one)))
}

/// Form of a request body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BodyForm {
    Json,
    Yaml,
    Protobuf,
}

/// Kind of a PATCH.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum PatchForm {
    Json,
    Merge,
    Strategic,
    Apply,
}

fn media(headers: &HeaderMap) -> &str {
    headers
        .get(header::CONTENT_TYPE)
        .and_then(|value| value.to_str().ok())
        .map_or("", |value| value.split(';').next().unwrap_or_default().trim())
}

/// A missing Content-Type means JSON: some clients send none.
pub(crate) fn body_form(headers: &HeaderMap, protobuf: bool) -> Result<BodyForm, Failure> {
    match media(headers) {
        "" | "application/json" => Ok(BodyForm::Json),
        "application/yaml" => Ok(BodyForm::Yaml),
        "application/vnd.kubernetes.protobuf" if protobuf => Ok(BodyForm::Protobuf),
        _ if protobuf => Err(Failure::unsupported_media_type(
            "application/json, application/yaml, application/vnd.kubernetes.protobuf",
        )),
        _ => Err(Failure::unsupported_media_type("application/json, application/yaml")),
    }
}

/// `strategic`: does the type know strategic merge patches (built-in types do)?
pub(crate) fn patch_form(headers: &HeaderMap, strategic: bool) -> Result<PatchForm, Failure> {
    let accepted = if strategic {
        "application/json-patch+json, application/merge-patch+json, \
         application/strategic-merge-patch+json, application/apply-patch+yaml"
    } else {
        "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml"
    };
    match media(headers) {
        "application/json-patch+json" => Ok(PatchForm::Json),
        "application/merge-patch+json" => Ok(PatchForm::Merge),
        "application/strategic-merge-patch+json" if strategic => Ok(PatchForm::Strategic),
        "application/apply-patch+yaml" => Ok(PatchForm::Apply),
        _ => Err(Failure::unsupported_media_type(accepted)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn accept(value: &str) -> HeaderMap {
        let mut headers = HeaderMap::new();
        headers.insert(header::ACCEPT, value.parse().unwrap());
        headers
    }

    #[test]
    fn the_first_clause_we_can_serve_wins() {
        let table =
            answer(&accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"), false);
        assert_eq!(table.unwrap().shape, Shape::Table("meta.k8s.io/v1"));
        let go = answer(&accept("application/vnd.kubernetes.protobuf,application/json"), false);
        assert_eq!(go.unwrap().shape, Shape::Whole);
        assert!(answer(&accept("text/html"), false).is_err());
        assert!(answer(&accept("application/json;as=Table;v=v9;g=meta.k8s.io"), false).is_err());
    }

    #[test]
    fn old_aggregated_discovery_falls_back_to_the_plain_form() {
        let old = "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList";
        assert_eq!(
            discovery(&accept(&format!("{old},application/json"))).unwrap(),
            DiscoveryForm::Plain
        );
        let new = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList";
        assert_eq!(discovery(&accept(new)).unwrap(), DiscoveryForm::Aggregated);
    }
}
