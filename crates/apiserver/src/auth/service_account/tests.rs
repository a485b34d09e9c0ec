use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;

pub(crate) const ISSUER: &str = "https://kubernetes.default.svc";

/// Accounts by (namespace, name); one pod `p` with uid `pu` in each namespace.
#[derive(Debug, Default, Clone)]
pub(crate) struct Known(pub(crate) BTreeMap<(String, String), String>);

impl Known {
    pub(crate) fn with(namespace: &str, name: &str, uid: &str) -> Self {
        Self([((namespace.to_owned(), name.to_owned()), uid.to_owned())].into())
    }
}

impl Accounts for Known {
    fn account_uid(&self, namespace: &str, name: &str) -> Option<String> {
        self.0.get(&(namespace.to_owned(), name.to_owned())).cloned()
    }

    fn bound_object_exists(&self, kind: BoundKind, _: &str, object: &ObjectRef) -> bool {
        kind == BoundKind::Pod && object.name == "p" && object.uid == "pu"
    }
}

pub(crate) fn signer() -> Signer {
    let key = rcgen::KeyPair::generate().unwrap();
    Signer::new(&key.serialize_pem(), ISSUER).unwrap()
}

pub(crate) fn spec() -> TokenSpec<'static> {
    TokenSpec {
        namespace: "ns",
        name: "bot",
        uid: "u1",
        audiences: &[],
        lifetime_s: 600,
        bound: None,
    }
}

pub(crate) fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

#[test]
fn a_token_lives_from_its_issue_to_its_expiry() {
    let signer = signer();
    let issued = signer.issue(&spec(), at(10_000)).unwrap();
    assert_eq!(issued.expires_at, at(10_600));
    let verify = |second| signer.verify(&issued.token, signer.audiences(), at(second));
    let claims = verify(10_000).unwrap();
    assert_eq!(claims, issued.claims);
    assert_eq!(
        (claims.exp - claims.iat, claims.sub.as_str()),
        (600, "system:serviceaccount:ns:bot")
    );
    assert!(verify(10_599).is_ok());
    assert!(verify(9_940).is_ok());
    assert_eq!(verify(10_600), Err(TokenError::Expired));
    assert_eq!(verify(9_939), Err(TokenError::NotYet));
}

#[test]
fn a_token_counts_only_for_its_audience() {
    let signer = signer();
    let elsewhere = ["elsewhere".to_owned()];
    let issued = signer.issue(&TokenSpec { audiences: &elsewhere, ..spec() }, at(0)).unwrap();
    let verify = |audiences: &[String]| signer.verify(&issued.token, audiences, at(1));
    assert_eq!(verify(signer.audiences()), Err(TokenError::Audience));
    assert_eq!(verify(&[]), Err(TokenError::Audience));
    assert!(verify(&elsewhere).is_ok());
}

#[test]
fn a_token_of_another_key_or_issuer_is_refused() {
    let (ours, other) = (signer(), signer());
    let token = other.issue(&spec(), at(0)).unwrap().token;
    assert_eq!(ours.verify(&token, ours.audiences(), at(1)), Err(TokenError::Signature));

    let key = rcgen::KeyPair::generate().unwrap().serialize_pem();
    let (here, there) = (Signer::new(&key, ISSUER).unwrap(), Signer::new(&key, "x").unwrap());
    let token = there.issue(&spec(), at(0)).unwrap().token;
    assert_eq!(here.verify(&token, here.audiences(), at(1)), Err(TokenError::Issuer));
}

#[test]
fn the_token_cannot_choose_its_algorithm() {
    let signer = signer();
    let token = signer.issue(&spec(), at(0)).unwrap().token;
    let rest = token.split_once('.').unwrap().1;
    for alg in ["none", "HS256", "RS256"] {
        let header = serde_json::json!({"alg": alg, "kid": signer.kid});
        let forged = format!("{}.{rest}", URL_SAFE_NO_PAD.encode(header.to_string()));
        assert!(signer.verify(&forged, signer.audiences(), at(1)).is_err(), "{alg}");
    }
}

#[test]
fn the_identity_dies_with_the_account_and_the_bound_object() {
    let signer = signer();
    let claims = signer.issue(&spec(), at(0)).unwrap().claims;
    let user = claims.user(&Known::with("ns", "bot", "u1")).unwrap();
    assert_eq!((user.name.as_str(), user.uid.as_str()), ("system:serviceaccount:ns:bot", "u1"));
    assert_eq!(
        user.groups,
        ["system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated"]
    );
    assert_eq!(user.extra[CREDENTIAL_ID], [format!("JTI={}", claims.jti)]);
    assert_eq!(claims.user(&Known::default()), Err(TokenError::NoAccount));
    // Same name, made again: another uid.
    assert_eq!(claims.user(&Known::with("ns", "bot", "u2")), Err(TokenError::NoAccount));

    let pod = |uid: &str| Some((BoundKind::Pod, ObjectRef { name: "p".into(), uid: uid.into() }));
    let known = Known::with("ns", "bot", "u1");
    let bound = |uid| signer.issue(&TokenSpec { bound: pod(uid), ..spec() }, at(0)).unwrap().claims;
    assert_eq!(bound("pu").user(&known).unwrap().extra[POD_UID], ["pu"]);
    assert_eq!(bound("gone").user(&known), Err(TokenError::NoBoundObject));
}

#[test]
fn debug_never_shows_token_or_key() {
    let signer = signer();
    let issued = signer.issue(&spec(), at(0)).unwrap();
    assert!(!format!("{issued:?}").contains(&issued.token));
    assert!(!format!("{signer:?}").contains("EcdsaKeyPair"));
}

proptest! {
    #[test]
    fn noise_never_panics(token in "[-_A-Za-z0-9.{}\":]{0,200}") {
        let signer = signer();
        prop_assert!(signer.verify(&token, signer.audiences(), at(1)).is_err());
    }

    /// Whatever single character is changed, the token is refused.
    #[test]
    fn a_changed_token_is_refused(position in 0usize..400, with in "[-_A-Za-z0-9.]") {
        let signer = signer();
        let token = signer.issue(&spec(), at(0)).unwrap().token;
        let position = position % token.len();
        let mut changed = token.clone();
        changed.replace_range(position..=position, &with);
        prop_assume!(changed != token);
        prop_assert!(signer.verify(&changed, signer.audiences(), at(1)).is_err());
    }
}
