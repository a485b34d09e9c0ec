//! Content negotiation: which form of an answer a client asked for, which form a body has.

use http::{HeaderMap, header};

use crate::failure::Failure;

/// Serialisation of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Syntax {
    Json,
    Yaml,
    /// For clients that read nothing else.
    Protobuf,
}

/// What there is as protobuf: a custom resource has no such form, but its metadata has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Packed {
    Nothing,
    Metadata,
    Everything,
}

impl Packed {
    pub(crate) fn of(built_in: bool) -> Self {
        if built_in { Self::Everything } else { Self::Metadata }
    }

    /// A table has no such form on any server.
    fn has(self, shape: Shape) -> bool {
        match shape {
            Shape::Whole => self == Self::Everything,
            Shape::Partial | Shape::PartialList => self != Self::Nothing,
            Shape::Table(_) => false,
        }
    }
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
    /// How much the client likes it, in thousandths.
    weight: u16,
}

impl<'a> Clause<'a> {
    fn parameter(&self, name: &str) -> Option<&'a str> {
        self.parameters.iter().find(|(key, _)| *key == name).map(|(_, value)| *value)
    }

    fn syntax(&self) -> Option<Syntax> {
        match self.media {
            "application/json" | "*/*" | "application/*" => Some(Syntax::Json),
            "application/yaml" => Some(Syntax::Yaml),
            PROTOBUF => Some(Syntax::Protobuf),
            _ => None,
        }
    }

    fn shape(&self) -> Option<Shape> {
        let form = self.parameter("as");
        if form.is_some() && self.parameter("g") != Some("meta.k8s.io") {
            return None;
        }
        match (form, self.parameter("v")) {
            (None, _) => Some(Shape::Whole),
            (Some("Table"), Some("v1")) => Some(Shape::Table("meta.k8s.io/v1")),
            (Some("Table"), Some("v1beta1")) => Some(Shape::Table("meta.k8s.io/v1beta1")),
            (Some("PartialObjectMetadata"), Some("v1" | "v1beta1")) => Some(Shape::Partial),
            (Some("PartialObjectMetadataList"), Some("v1" | "v1beta1")) => Some(Shape::PartialList),
            (Some(_), _) => None,
        }
    }
}

/// The clauses of a header, the most wanted first, else in the order they were written.
fn clauses(headers: &HeaderMap, name: header::HeaderName) -> Vec<Clause<'_>> {
    let mut all: Vec<Clause<'_>> = headers
        .get_all(name)
        .iter()
        .filter_map(|value| value.to_str().ok())
        .flat_map(|value| value.split(','))
        .map(|clause| {
            let mut parts = clause.split(';').map(str::trim);
            let media = parts.next().unwrap_or_default();
            let parameters: Vec<(&str, &str)> =
                parts.filter_map(|part| part.split_once('=')).collect();
            let weight = parameters.iter().find(|(key, _)| *key == "q");
            let weight = weight.map_or(1000, |(_, value)| thousandths(value));
            Clause { media, parameters, weight }
        })
        .filter(|clause| !clause.media.is_empty() && clause.weight > 0)
        .collect();
    all.sort_by_key(|clause| std::cmp::Reverse(clause.weight));
    all
}

/// `0.5` is 500; what is no weight counts as the highest, as if it were not there.
fn thousandths(text: &str) -> u16 {
    let (whole, fraction) = text.split_once('.').unwrap_or((text, ""));
    match whole.parse::<u16>() {
        Ok(0) => {
            format!("{fraction:0<3}").get(..3).and_then(|one| one.parse().ok()).unwrap_or(1000)
        }
        _ => 1000,
    }
}

pub(crate) const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
const OFFERED: &str = "application/json, application/yaml";

/// No Accept header, or one that says nothing: anything will do.
fn is_silent(headers: &HeaderMap) -> bool {
    headers.get_all(header::ACCEPT).iter().all(|value| value.as_bytes().trim_ascii().is_empty())
}

/// Does the client take compressed answers?
pub(crate) fn accepts_gzip(headers: &HeaderMap) -> bool {
    clauses(headers, header::ACCEPT_ENCODING).iter().any(|clause| clause.media == "gzip")
}

/// The first clause the server can satisfy wins. `pretty` is what the query says about it.
pub(crate) fn answer(headers: &HeaderMap, pretty: Option<bool>) -> Result<Answer, Failure> {
    answer_packed(headers, pretty, Packed::Nothing)
}

/// [`answer`] where `packed` can be had as protobuf. Those who take the same as JSON too get JSON: it
/// is what is stored, so that nothing has to be written anew for them.
pub(crate) fn answer_packed(
    headers: &HeaderMap,
    pretty: Option<bool>,
    packed: Packed,
) -> Result<Answer, Failure> {
    let pretty = pretty.unwrap_or_else(|| is_browser(headers));
    if is_silent(headers) {
        return Ok(Answer { syntax: Syntax::Json, shape: Shape::Whole, pretty });
    }
    let wanted: Vec<(Syntax, Shape)> = clauses(headers, header::ACCEPT)
        .iter()
        .filter_map(|clause| Some((clause.syntax()?, clause.shape()?)))
        .filter(|(syntax, shape)| *syntax != Syntax::Protobuf || packed.has(*shape))
        .collect();
    let Some((_, shape)) = wanted.first().copied() else {
        return Err(Failure::not_acceptable(OFFERED));
    };
    let text = wanted.iter().find(|one| one.0 != Syntax::Protobuf && one.1 == shape);
    let syntax = text.map_or(Syntax::Protobuf, |one| one.0);
    Ok(Answer { syntax, shape, pretty: pretty && syntax != Syntax::Protobuf })
}

/// Does the client read the protobuf form of OpenAPI version 2 before any other?
pub(crate) fn wants_openapi_protobuf(headers: &HeaderMap) -> bool {
    let first = clauses(headers, header::ACCEPT).into_iter().next();
    // Older clients write an `@` where a media type can have none.
    first.is_some_and(|clause| clause.media.replace('@', ".") == crate::openapi::VERSION_2_PROTOBUF)
}

/// The form of an error: always a plain Status, in a syntax the client reads if there is one.
pub(crate) fn failure(headers: &HeaderMap, pretty: Option<bool>) -> Answer {
    let pretty = pretty.unwrap_or_else(|| is_browser(headers));
    let wanted = clauses(headers, header::ACCEPT);
    let syntax = wanted.iter().filter_map(Clause::syntax).find(|one| *one != Syntax::Protobuf);
    let packed = wanted.iter().any(|clause| clause.media == PROTOBUF);
    let other = if packed { Syntax::Protobuf } else { Syntax::Json };
    Answer { syntax: syntax.unwrap_or(other), shape: Shape::Whole, pretty }
}

/// Watches are lines of JSON or frames of protobuf; there is no such form of YAML.
pub(crate) fn stream(headers: &HeaderMap, packed: Packed) -> Result<Answer, Failure> {
    let answer = answer_packed(headers, Some(false), packed)?;
    if answer.syntax != Syntax::Yaml {
        return Ok(answer);
    }
    let has_json = clauses(headers, header::ACCEPT)
        .iter()
        .any(|clause| clause.media != "application/yaml" && clause.parameter("as").is_none());
    if has_json {
        return Ok(Answer { syntax: Syntax::Json, shape: Shape::Whole, pretty: false });
    }
    Err(Failure::not_acceptable("application/json"))
}

/// Aggregated discovery only when a clause asks for exactly the version we speak.
pub(crate) fn discovery(headers: &HeaderMap) -> Result<DiscoveryForm, Failure> {
    let clauses = clauses(headers, header::ACCEPT);
    if is_silent(headers) {
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
    answer(headers, None).is_ok()
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
        PROTOBUF if protobuf => Ok(BodyForm::Protobuf),
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
            answer(&accept("application/json;as=Table;v=v1;g=meta.k8s.io,application/json"), None);
        assert_eq!(table.unwrap().shape, Shape::Table("meta.k8s.io/v1"));
        let go = answer(&accept("application/vnd.kubernetes.protobuf,application/json"), None);
        assert_eq!(go.unwrap().shape, Shape::Whole);
        assert!(answer(&accept("text/html"), None).is_err());
        assert!(answer(&accept("application/json;as=Table;v=v9;g=meta.k8s.io"), None).is_err());
    }

    #[test]
    fn protobuf_alone_is_answered_where_there_is_such_a_form() {
        let only = accept("application/vnd.kubernetes.protobuf");
        let of = |headers: &HeaderMap, packed| answer_packed(headers, None, packed);
        assert!(answer(&only, None).is_err());
        assert_eq!(of(&only, Packed::Everything).unwrap().syntax, Syntax::Protobuf);
        assert!(of(&only, Packed::Metadata).is_err());
        assert_eq!(stream(&only, Packed::Everything).unwrap().syntax, Syntax::Protobuf);
        assert!(stream(&only, Packed::Metadata).is_err());
        assert_eq!(failure(&only, None).syntax, Syntax::Protobuf);
        let both = accept("application/vnd.kubernetes.protobuf,application/json");
        assert_eq!(of(&both, Packed::Everything).unwrap().syntax, Syntax::Json);
        let table = accept("application/vnd.kubernetes.protobuf;as=Table;v=v1;g=meta.k8s.io");
        assert!(of(&table, Packed::Everything).is_err());
    }

    #[test]
    fn metadata_alone_is_answered_as_protobuf_and_never_as_something_else() {
        let packed =
            "application/vnd.kubernetes.protobuf;as=PartialObjectMetadata;g=meta.k8s.io;v=v1";
        let text = packed.replace("vnd.kubernetes.protobuf", "json");
        let of = |value: &str, packed| answer_packed(&accept(value), None, packed);
        let shaped = |syntax| Answer { syntax, shape: Shape::Partial, pretty: false };
        for known in [Packed::Metadata, Packed::Everything] {
            assert_eq!(of(packed, known).unwrap(), shaped(Syntax::Protobuf));
            // What metadata clients of Go send.
            let all = format!("{packed},{text},application/json");
            assert_eq!(of(&all, known).unwrap(), shaped(Syntax::Json));
            // Whole objects are not what was asked for first.
            let first = format!("{packed},application/json");
            assert_eq!(of(&first, known).unwrap(), shaped(Syntax::Protobuf));
        }
        assert!(answer(&accept(packed), None).is_err());
        assert_eq!(failure(&accept(packed), None).syntax, Syntax::Protobuf);
    }

    #[test]
    fn weights_decide_before_the_order_does() {
        let yaml = answer(&accept("application/json;q=0.5, application/yaml"), None).unwrap();
        assert_eq!(yaml.syntax, Syntax::Yaml);
        let json = answer(&accept("text/html,*/*;q=0.1"), None).unwrap();
        assert_eq!(json.syntax, Syntax::Json);
        assert!(answer(&accept("application/json;q=0"), None).is_err());
        for (text, weight) in [("1", 1000), ("0.5", 500), ("0.123", 123), ("0", 0), ("x", 1000)] {
            assert_eq!(thousandths(text), weight, "{text}");
        }
    }

    #[test]
    fn views_of_other_groups_are_unknown() {
        assert!(answer(&accept("application/json;as=Table;v=v1;g=other.io"), None).is_err());
        assert!(answer(&accept("application/json;as=Table;v=v1"), None).is_err());
    }

    #[test]
    fn watches_are_never_yaml() {
        assert!(stream(&accept("application/yaml"), Packed::Everything).is_err());
        let both = stream(&accept("application/yaml,application/json"), Packed::Metadata).unwrap();
        assert_eq!(both.syntax, Syntax::Json);
    }

    #[test]
    fn compression_needs_consent() {
        let encoding = |value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(header::ACCEPT_ENCODING, http::HeaderValue::from_static(value));
            accepts_gzip(&headers)
        };
        assert!(encoding("deflate, gzip;q=0.8"));
        assert!(!encoding("gzip;q=0"));
        assert!(!encoding("identity"));
        assert!(!accepts_gzip(&HeaderMap::new()));
    }

    proptest::proptest! {
        #[test]
        fn noise_never_panics(text in "[ -~é]{0,60}") {
            if let Ok(value) = http::HeaderValue::from_str(&text) {
                let mut headers = HeaderMap::new();
                headers.insert(header::ACCEPT, value.clone());
                headers.insert(header::ACCEPT_ENCODING, value);
                let _ = (answer(&headers, None), accepts_gzip(&headers));
                let _ = stream(&headers, Packed::Everything);
                let _ = (failure(&headers, None), discovery(&headers));
            }
        }
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
