//! What a URL asks for: path and query parsed into values, nothing looked up yet.
//!
//! Never: touches the store or the registry. Everything here is a function of the request line.

use std::borrow::Cow;

use http::Method;
use percent_encoding::percent_decode_str;

use crate::failure::Failure;

/// The longest path segment worth looking at; names are at most 253 bytes.
const MAX_SEGMENT_BYTES: usize = 1024;

/// What a path names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Target {
    /// Anything that is not below `/api/v1` or `/apis/G/V`.
    Path(String),
    /// `/api/v1` or `/apis/G/V` themselves.
    GroupVersion {
        group: String,
        version: String,
    },
    Resource(ResourcePath),
}

/// `…/namespaces/NS/RESOURCE/NAME/SUBRESOURCE`
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ResourcePath {
    pub group: String,
    pub version: String,
    pub namespace: Option<String>,
    pub resource: String,
    pub name: Option<String>,
    pub subresource: Option<String>,
    /// Asked for below `watch/`, the way before the query parameter.
    pub watch: bool,
}

/// Splits a path. `Err` for segments that cannot be a name (path tricks, bad escapes).
pub(crate) fn parse_path(path: &str) -> Result<Target, Failure> {
    let mut segments = Vec::new();
    for raw in path.split('/').filter(|segment| !segment.is_empty()) {
        segments.push(decode_segment(raw)?);
    }
    let mut rest = segments.iter().map(String::as_str);
    let (group, version) = match (rest.next(), rest.next(), segments.get(2)) {
        (Some("api"), Some(version), _) => (String::new(), version.to_owned()),
        (Some("apis"), Some(group), Some(version)) => {
            rest.next();
            (group.to_owned(), version.clone())
        }
        _ => return Ok(Target::Path(path.to_owned())),
    };
    let rest: Vec<&str> = rest.collect();
    resource_path(group, version, &rest).ok_or_else(Failure::no_such_path)
}

fn resource_path(group: String, version: String, rest: &[&str]) -> Option<Target> {
    let mut path = ResourcePath { group, version, ..ResourcePath::default() };
    let rest = match rest {
        [] => return Some(Target::GroupVersion { group: path.group, version: path.version }),
        ["watch", rest @ ..] if !rest.is_empty() => {
            let Target::Resource(inner) = resource_path(path.group, path.version, rest)? else {
                return None;
            };
            let watched = inner.subresource.is_none() && !inner.watch;
            return watched.then_some(Target::Resource(ResourcePath { watch: true, ..inner }));
        }
        // `namespaces/N`, its subresources, and the collection are about Namespace objects.
        ["namespaces", _, "status" | "finalize"] | ["namespaces"] | ["namespaces", _] => rest,
        ["namespaces", namespace, rest @ ..] => {
            path.namespace = Some((*namespace).to_owned());
            rest
        }
        rest => rest,
    };
    let (resource, name, subresource) = match rest {
        [resource] => (resource, None, None),
        [resource, name] => (resource, Some(name), None),
        [resource, name, subresource] => (resource, Some(name), Some(subresource)),
        _ => return None,
    };
    (*resource).clone_into(&mut path.resource);
    path.name = name.map(|name| (*name).to_owned());
    path.subresource = subresource.map(|one| (*one).to_owned());
    Some(Target::Resource(path))
}

fn decode_segment(raw: &str) -> Result<String, Failure> {
    if raw.len() > MAX_SEGMENT_BYTES {
        return Err(Failure::bad_request("a path segment is too long"));
    }
    let text = percent_decode_str(raw)
        .decode_utf8()
        .map_err(|_| Failure::bad_request("the path is not valid UTF-8"))?;
    let hostile = text == "."
        || text == ".."
        || text.bytes().any(|byte| matches!(byte, b'/' | b'\0' | b'\\'));
    if hostile {
        return Err(Failure::bad_request(format!("{text:?} is not a valid path segment")));
    }
    Ok(text.into_owned())
}

/// The API verb of a request, as RBAC knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verb {
    Get,
    List,
    Watch,
    Create,
    Update,
    Patch,
    Delete,
    DeleteCollection,
}

impl Verb {
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::Get => "get",
            Self::List => "list",
            Self::Watch => "watch",
            Self::Create => "create",
            Self::Update => "update",
            Self::Patch => "patch",
            Self::Delete => "delete",
            Self::DeleteCollection => "deletecollection",
        }
    }

    /// `None`: a method the API does not know.
    pub(crate) fn of(method: &Method, named: bool, query: &Query) -> Option<Self> {
        Some(match (method.as_str(), named) {
            ("GET" | "HEAD", true) => Self::Get,
            // The head of a watch is that of a list: there is no body to wait for.
            ("GET", false) if query.flag("watch") => Self::Watch,
            ("GET" | "HEAD", false) => Self::List,
            ("POST", _) => Self::Create,
            ("PUT", _) => Self::Update,
            ("PATCH", _) => Self::Patch,
            ("DELETE", true) => Self::Delete,
            ("DELETE", false) => Self::DeleteCollection,
            _ => return None,
        })
    }

    pub(crate) const fn is_write(self) -> bool {
        !matches!(self, Self::Get | Self::List | Self::Watch)
    }
}

/// Query parameters in order. Empty pairs (`?&a=b`) are ignored, as some clients send them.
#[derive(Debug, Clone, Default)]
pub struct Query {
    pairs: Vec<(String, String)>,
}

impl Query {
    /// A watch as the query would ask for it, of one object if it has a name.
    pub fn watching(mut self, name: Option<&str>) -> Self {
        self.pairs.insert(0, ("watch".to_owned(), "true".to_owned()));
        if let Some(name) = name {
            let others = self.get("fieldSelector").map(|more| format!(",{more}"));
            let selector = format!("metadata.name={name}{}", others.unwrap_or_default());
            self.pairs.insert(0, ("fieldSelector".to_owned(), selector));
        }
        self
    }

    pub fn parse(text: &str) -> Self {
        let decode = |part: &str| -> String {
            let spaced: Cow<'_, str> =
                if part.contains('+') { part.replace('+', " ").into() } else { part.into() };
            percent_decode_str(&spaced).decode_utf8_lossy().into_owned()
        };
        let pairs = text
            .split('&')
            .filter(|pair| !pair.is_empty())
            .map(|pair| {
                let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                (decode(key), decode(value))
            })
            .collect();
        Self { pairs }
    }

    /// The first non-empty value of a parameter.
    pub fn get(&self, key: &str) -> Option<&str> {
        self.pairs
            .iter()
            .find(|(name, value)| name == key && !value.is_empty())
            .map(|(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, key: &'a str) -> impl Iterator<Item = &'a str> {
        self.pairs.iter().filter(move |(name, _)| name == key).map(|(_, value)| value.as_str())
    }

    /// A parameter that is there means yes, unless it says `false` or `0`.
    pub fn flag(&self, key: &str) -> bool {
        self.choice(key).unwrap_or(false)
    }

    /// [`Self::flag`], telling "no" from "not said".
    pub fn choice(&self, key: &str) -> Option<bool> {
        let first = self.all(key).next()?;
        Some(first != "0" && !first.eq_ignore_ascii_case("false"))
    }

    /// A whole number, or 400.
    pub fn integer(&self, key: &str) -> Result<Option<i64>, Failure> {
        let Some(text) = self.get(key) else { return Ok(None) };
        text.parse().map(Some).map_err(|_| {
            Failure::bad_request(format!("query parameter {key}: {text:?} is not a whole number"))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn resource(path: &str) -> ResourcePath {
        match parse_path(path).unwrap() {
            Target::Resource(path) => path,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn namespaces_are_both_a_scope_and_a_resource() {
        let scope = resource("/api/v1/namespaces/a/configmaps/b");
        assert_eq!(
            (scope.namespace.as_deref(), scope.resource.as_str()),
            (Some("a"), "configmaps")
        );
        let object = resource("/api/v1/namespaces/a");
        assert_eq!((object.resource.as_str(), object.name.as_deref()), ("namespaces", Some("a")));
        let status = resource("/api/v1/namespaces/a/status");
        assert_eq!(status.subresource.as_deref(), Some("status"));
        let collection = resource("/api/v1/namespaces/a/pods");
        assert_eq!((collection.namespace.as_deref(), collection.name), (Some("a"), None));
    }

    #[test]
    fn group_paths_and_other_paths_are_told_apart() {
        let gv = parse_path("/apis/x.io/v1/").unwrap();
        assert_eq!(gv, Target::GroupVersion { group: "x.io".into(), version: "v1".into() });
        assert_eq!(parse_path("/apis").unwrap(), Target::Path("/apis".into()));
        assert_eq!(parse_path("/apis/x.io").unwrap(), Target::Path("/apis/x.io".into()));
        assert_eq!(parse_path("/healthz").unwrap(), Target::Path("/healthz".into()));
    }

    #[test]
    fn path_tricks_are_refused() {
        for path in ["/api/v1/namespaces/a/configmaps/%2e%2e", "/api/v1/configmaps/a%2fb", "/%ff"] {
            assert!(parse_path(path).is_err(), "{path}");
        }
    }

    #[test]
    fn only_collections_are_watched() {
        let query = Query::parse("watch=1");
        assert_eq!(Verb::of(&Method::GET, false, &query), Some(Verb::Watch));
        assert_eq!(Verb::of(&Method::GET, true, &query), Some(Verb::Get));
        assert_eq!(Verb::of(&Method::HEAD, false, &query), Some(Verb::List));
    }

    #[test]
    fn empty_pairs_and_bare_flags_are_understood() {
        let query = Query::parse("&limit=5&watch&labelSelector=a%3Db");
        assert_eq!(query.integer("limit").unwrap(), Some(5));
        assert!(query.flag("watch"));
        assert_eq!(Query::parse("a=False").choice("a"), Some(false));
        assert_eq!(query.choice("a"), None);
        assert_eq!(query.get("labelSelector"), Some("a=b"));
        assert!(Query::parse("limit=x").integer("limit").is_err());
    }

    proptest! {
        #[test]
        fn noise_never_panics(path in ".{0,80}", query in ".{0,80}") {
            let _ = parse_path(&path);
            let _ = Query::parse(&query).integer("limit");
        }
    }
}
