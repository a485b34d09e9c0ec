//! Acting as somebody else: the `Impersonate-*` headers.
//!
//! Reads the headers, says which rights the caller needs, and makes the resulting user. Asking
//! whether the caller has those rights is the pipeline's part; it must ask for every one of them.

use std::collections::BTreeMap;

use http::HeaderMap;
use percent_encoding::percent_decode_str;

use super::rbac::Attributes;
use super::user::{
    AUTHENTICATED, UNAUTHENTICATED, User, service_account_groups, split_service_account,
};

/// Most groups and extra values together in one request: each costs an authorization check.
pub const MAX_VALUES: usize = 128;

const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";
const USER: &str = "impersonate-user";
const GROUP: &str = "impersonate-group";
const UID: &str = "impersonate-uid";
const EXTRA: &str = "impersonate-extra-";

/// Whom the caller wants to be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Impersonation {
    user: String,
    uid: Option<String>,
    groups: Vec<String>,
    extra: BTreeMap<String, Vec<String>>,
}

/// Why the headers are refused (400).
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ImpersonationError {
    #[error("impersonation of groups, uid or extra needs the header Impersonate-User as well")]
    NoUser,
    #[error("the header {0} is not UTF-8 text")]
    NotText(String),
    #[error("the header {0} may be given only once")]
    Repeated(&'static str),
    #[error("more than {MAX_VALUES} impersonation headers")]
    TooMany,
}

/// Reads the headers; `None` if there are none.
pub fn parse(headers: &HeaderMap) -> Result<Option<Impersonation>, ImpersonationError> {
    let user = single(headers, USER)?.filter(|user| !user.is_empty());
    let uid = single(headers, UID)?.filter(|uid| !uid.is_empty());
    let mut groups = Vec::new();
    for value in headers.get_all(GROUP) {
        groups.push(text(GROUP, value)?);
    }
    groups.retain(|group| !group.is_empty());
    let mut extra: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (name, value) in headers {
        // Header names are in lower case already.
        let Some(key) = name.as_str().strip_prefix(EXTRA) else { continue };
        let key = percent_decode_str(key).decode_utf8_lossy().to_lowercase();
        extra.entry(key).or_default().push(text(name.as_str(), value)?);
    }
    let count = groups.len() + extra.values().map(Vec::len).sum::<usize>();
    if count > MAX_VALUES {
        return Err(ImpersonationError::TooMany);
    }
    match user {
        Some(user) => Ok(Some(Impersonation { user, uid, groups, extra })),
        None if uid.is_some() || count > 0 => Err(ImpersonationError::NoUser),
        None => Ok(None),
    }
}

impl Impersonation {
    /// The rights the caller needs: every one, each with the verb `impersonate`.
    pub fn required<'a>(&'a self, caller: &'a User) -> Vec<Attributes<'a>> {
        let base = Attributes { verb: "impersonate", ..Attributes::of(caller) };
        let mut all = vec![match split_service_account(&self.user) {
            Some((namespace, name)) => {
                Attributes { resource: "serviceaccounts", namespace, name, ..base }
            }
            None => Attributes { resource: "users", name: &self.user, ..base },
        }];
        all.extend(self.groups.iter().map(|name| Attributes { resource: "groups", name, ..base }));
        let base = Attributes { group: AUTHENTICATION_GROUP, ..base };
        all.extend(self.uid.iter().map(|name| Attributes { resource: "uids", name, ..base }));
        for (key, values) in &self.extra {
            let base = Attributes { resource: "userextras", subresource: key, ..base };
            all.extend(values.iter().map(|name| Attributes { name, ..base }));
        }
        all
    }

    /// The identity the request goes on with.
    pub fn into_user(self) -> User {
        let mut user =
            User { name: self.user, uid: self.uid.unwrap_or_default(), ..User::default() };
        if self.groups.is_empty()
            && let Some((namespace, _)) = split_service_account(&user.name)
        {
            user.groups.extend(service_account_groups(namespace));
        }
        for group in &self.groups {
            user.join(group);
        }
        let says_already = user.in_group(AUTHENTICATED) || user.in_group(UNAUTHENTICATED);
        if !says_already {
            let group = if user.is_anonymous() { UNAUTHENTICATED } else { AUTHENTICATED };
            user.join(group);
        }
        user.extra = self.extra;
        user
    }
}

fn single(headers: &HeaderMap, name: &'static str) -> Result<Option<String>, ImpersonationError> {
    let mut values = headers.get_all(name).iter();
    let first = values.next().map(|value| text(name, value)).transpose()?;
    // Two answers to "who" are a smuggling attempt or a broken proxy, never a wish.
    if values.next().is_some() { Err(ImpersonationError::Repeated(name)) } else { Ok(first) }
}

fn text(name: &str, value: &http::HeaderValue) -> Result<String, ImpersonationError> {
    let text = std::str::from_utf8(value.as_bytes());
    text.map(str::to_owned).map_err(|_| ImpersonationError::NotText(name.to_owned()))
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> HeaderMap {
        let mut map = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            map.append(name, HeaderValue::from_str(value).unwrap());
        }
        map
    }

    fn parsed(pairs: &[(&str, &str)]) -> Impersonation {
        parse(&headers(pairs)).unwrap().unwrap()
    }

    #[test]
    fn no_headers_is_no_impersonation() {
        assert_eq!(parse(&headers(&[("accept", "x"), ("impersonate-user", "")])), Ok(None));
    }

    #[test]
    fn everything_else_needs_a_user() {
        for pair in
            [("Impersonate-Group", "g"), ("Impersonate-Uid", "u"), ("Impersonate-Extra-a", "b")]
        {
            assert_eq!(parse(&headers(&[pair])), Err(ImpersonationError::NoUser), "{pair:?}");
        }
    }

    #[test]
    fn each_part_needs_its_own_right() {
        let it = parsed(&[
            ("Impersonate-User", "zed"),
            ("Impersonate-Group", "g1"),
            ("Impersonate-Uid", "u9"),
            ("Impersonate-Extra-Acme.com%2Fscope", "view"),
        ]);
        let caller = User::authenticated("ada", "", []);
        let wanted: Vec<_> = it
            .required(&caller)
            .iter()
            .map(|at| format!("{}/{}/{}/{}", at.group, at.resource, at.subresource, at.name))
            .collect();
        assert_eq!(
            wanted,
            [
                "/users//zed",
                "/groups//g1",
                "authentication.k8s.io/uids//u9",
                "authentication.k8s.io/userextras/acme.com/scope/view",
            ]
        );
        let user = it.into_user();
        assert_eq!((user.name.as_str(), user.uid.as_str()), ("zed", "u9"));
        assert_eq!(user.groups, ["g1", AUTHENTICATED]);
        assert_eq!(user.extra["acme.com/scope"], ["view"]);
    }

    #[test]
    fn a_service_account_gets_its_groups_unless_groups_are_given() {
        let name = "system:serviceaccount:ns:bot";
        let it = parsed(&[("Impersonate-User", name)]);
        let caller = User::anonymous();
        let at = it.required(&caller)[0];
        assert_eq!((at.resource, at.namespace, at.name), ("serviceaccounts", "ns", "bot"));
        assert_eq!(
            it.into_user().groups,
            ["system:serviceaccounts", "system:serviceaccounts:ns", AUTHENTICATED]
        );
        let it = parsed(&[("Impersonate-User", name), ("Impersonate-Group", "g")]);
        assert_eq!(it.into_user().groups, ["g", AUTHENTICATED]);
    }

    #[test]
    fn the_anonymous_user_stays_unauthenticated() {
        let user = parsed(&[("Impersonate-User", "system:anonymous")]).into_user();
        assert_eq!(user, User::anonymous());
    }

    #[test]
    fn two_users_are_refused() {
        let two = headers(&[("Impersonate-User", "a"), ("Impersonate-User", "b")]);
        assert_eq!(parse(&two), Err(ImpersonationError::Repeated(USER)));
    }

    proptest! {
        #[test]
        fn noise_never_panics(
            keys in prop::collection::vec("(user|uid|group|extra-[a-z%0-9]{0,9})", 0..6),
            value in prop::collection::vec(32u8..=255, 0..20),
        ) {
            let mut map = HeaderMap::new();
            for key in keys {
                let name = HeaderName::from_bytes(format!("impersonate-{key}").as_bytes()).unwrap();
                if let Ok(value) = HeaderValue::from_bytes(&value) {
                    map.append(name, value);
                }
            }
            if let Ok(Some(it)) = parse(&map) {
                let caller = User::anonymous();
                prop_assert!(!it.required(&caller).is_empty());
                prop_assert!(!it.into_user().name.is_empty());
            }
        }
    }
}
