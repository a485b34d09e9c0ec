use std::time::Duration;

use proptest::prelude::*;
use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject;

use super::super::service_account::TokenSpec;
use super::super::service_account::tests::{Known, at, signer, spec};
use super::super::user::{ANONYMOUS, CREDENTIAL_ID};
use super::*;
use crate::pki::Pki;

fn authenticator() -> Authenticator {
    let tokens = StaticTokens::parse("s3cret,ada,u-ada,dev\n").unwrap();
    Authenticator::new(tokens, Arc::new(signer()), Arc::new(Known::with("ns", "bot", "u1")))
}

fn certificate(name: &str, groups: &[&str]) -> (CertificateDer<'static>, Timestamp) {
    let dir = tempfile::tempdir().unwrap();
    let pki = Pki::open(dir.path(), &[]).unwrap();
    let issued = pki.issue_client(name, groups, Duration::from_hours(1)).unwrap();
    (CertificateDer::from_pem_slice(issued.cert_pem.as_bytes()).unwrap(), Timestamp::now())
}

#[test]
fn nothing_presented_is_anonymous() {
    for header in [None, Some(""), Some("  ")] {
        let user = authenticator().authenticate(None, header, at(1)).unwrap();
        assert_eq!((user.name.as_str(), user.groups.len()), (ANONYMOUS, 1));
    }
}

#[test]
fn a_bad_header_is_refused_and_never_anonymous() {
    for header in ["Bearer", "Bearer  ", "Bearer nope", "Basic czNjcmV0", "s3cret", "Bearer a.b.c"]
    {
        assert!(authenticator().authenticate(None, Some(header), at(1)).is_err(), "{header}");
    }
}

#[test]
fn static_and_account_tokens_name_their_users() {
    let it = authenticator();
    let ada = it.authenticate(None, Some("bearer s3cret"), at(1)).unwrap();
    assert_eq!((ada.name.as_str(), ada.uid.as_str()), ("ada", "u-ada"));
    let token = it.signer().issue(&spec(), at(1)).unwrap().token;
    let bot = it.authenticate(None, Some(&format!("Bearer {token}")), at(2)).unwrap();
    assert_eq!(bot.name, "system:serviceaccount:ns:bot");
    let ghost = TokenSpec { name: "ghost", ..spec() };
    let token = it.signer().issue(&ghost, at(1)).unwrap().token;
    let refused = it.authenticate(None, Some(&format!("Bearer {token}")), at(2)).unwrap_err();
    assert_eq!(refused.cause, TokenError::NoAccount.into());
    assert_eq!(refused.to_string(), "Unauthorized");
}

#[test]
fn a_certificate_gives_name_and_all_organizations_and_beats_a_bad_token() {
    let (der, now) = certificate("grace", &["ops", "dev", "qa"]);
    for header in [None, Some("Bearer nope")] {
        let user = authenticator().authenticate(Some(Ok(&der)), header, now).unwrap();
        assert_eq!(user.name, "grace");
        assert_eq!(user.groups, ["ops", "dev", "qa", "system:authenticated"]);
        assert!(user.extra[CREDENTIAL_ID][0].starts_with("X509SHA256="));
    }
}

#[test]
fn an_expired_certificate_on_an_old_connection_is_refused_but_a_good_token_counts() {
    let (der, now) = certificate("grace", &[]);
    let later = now + jiff::SignedDuration::from_hours(2);
    assert!(authenticator().authenticate(Some(Ok(&der)), None, later).is_err());
    let user = authenticator().authenticate(Some(Ok(&der)), Some("Bearer s3cret"), later).unwrap();
    assert_eq!(user.name, "ada");
}

#[test]
fn a_token_review_answers_the_audiences_both_sides_know() {
    let it = authenticator();
    let ours = it.signer().audiences().to_vec();
    let asked = [ours[0].clone(), "other".to_owned()];
    assert_eq!(it.authenticate_token("s3cret", &asked, at(1)).unwrap().audiences, ours);
    assert!(it.authenticate_token("s3cret", &["other".to_owned()], at(1)).is_err());
}

proptest! {
    #[test]
    fn noise_never_panics(der in prop::collection::vec(any::<u8>(), 0..64), header in "\\PC{0,40}") {
        let _ = authenticator().authenticate(Some(Ok(&der)), Some(&header), at(1));
        prop_assert!(authenticator().authenticate(Some(Ok(&der)), None, at(1)).is_err());
    }
}
