//! Tokens of service accounts: JSON web tokens signed with ES256 by the server's own key.
//!
//! Owns the format and its checks. Whether the account still exists is not in the token: a
//! signature that verifies is only half an identity, and `Authenticator` asks [`Accounts`] for the
//! other half.

use std::fmt;

use aws_lc_rs::encoding::AsDer;
use aws_lc_rs::rand::SystemRandom;
use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair,
    UnparsedPublicKey,
};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jiff::{SignedDuration, Timestamp};
use rustls::pki_types::PrivatePkcs8KeyDer;
use rustls::pki_types::pem::PemObject;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::user::{CREDENTIAL_ID, User, service_account_user, split_service_account};

/// Longest token that is looked at.
const MAX_TOKEN_BYTES: usize = 16 * 1024;
/// How far `nbf` may lie in the future: clocks that were set back must not lock everyone out.
const CLOCK_LEEWAY_S: i64 = 60;
/// Longest life of a token, whatever was asked for.
pub const MAX_LIFETIME_S: i64 = 365 * 24 * 3600;

const POD_NAME: &str = "authentication.kubernetes.io/pod-name";
const POD_UID: &str = "authentication.kubernetes.io/pod-uid";

/// What the server knows about accounts and the objects tokens are bound to.
pub trait Accounts: Send + Sync {
    /// The uid of the account that exists now, if one does.
    fn account_uid(&self, namespace: &str, name: &str) -> Option<String>;
    /// Whether the object exists now, with exactly this uid.
    fn bound_object_exists(&self, kind: BoundKind, namespace: &str, object: &ObjectRef) -> bool;
}

/// Kinds a token can be bound to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BoundKind {
    Pod,
    Secret,
    Node,
}

impl BoundKind {
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pod => "Pod",
            Self::Secret => "Secret",
            Self::Node => "Node",
        }
    }

    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Pod" => Some(Self::Pod),
            "Secret" => Some(Self::Secret),
            "Node" => Some(Self::Node),
            _ => None,
        }
    }
}

/// An object by name and uid.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObjectRef {
    pub name: String,
    #[serde(default)]
    pub uid: String,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    pub aud: Vec<String>,
    pub exp: i64,
    pub iat: i64,
    pub iss: String,
    pub jti: String,
    #[serde(rename = "kubernetes.io")]
    pub kubernetes: KubernetesClaims,
    pub nbf: i64,
    pub sub: String,
}

/// The part of the claims that is Kubernetes' own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KubernetesClaims {
    pub namespace: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub node: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pod: Option<ObjectRef>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret: Option<ObjectRef>,
    pub serviceaccount: ObjectRef,
}

impl Claims {
    pub fn bound(&self) -> Option<(BoundKind, &ObjectRef)> {
        let KubernetesClaims { pod, secret, node, .. } = &self.kubernetes;
        let kinds = [(BoundKind::Pod, pod), (BoundKind::Secret, secret), (BoundKind::Node, node)];
        kinds.into_iter().find_map(|(kind, object)| Some((kind, object.as_ref()?)))
    }

    /// The identity behind the claims, if the account and the bound object still exist.
    pub fn user(&self, accounts: &dyn Accounts) -> Result<User, TokenError> {
        let namespace = self.kubernetes.namespace.as_str();
        let account = &self.kubernetes.serviceaccount;
        let now = accounts.account_uid(namespace, &account.name);
        if now.is_none_or(|uid| uid != account.uid) {
            return Err(TokenError::NoAccount);
        }
        if let Some((kind, object)) = self.bound()
            && !accounts.bound_object_exists(kind, namespace, object)
        {
            return Err(TokenError::NoBoundObject);
        }
        let mut user = User::service_account(namespace, &account.name, account.uid.clone())
            .with_extra(CREDENTIAL_ID, format!("JTI={}", self.jti));
        if let Some(pod) = &self.kubernetes.pod {
            user = user.with_extra(POD_NAME, &pod.name).with_extra(POD_UID, &pod.uid);
        }
        Ok(user)
    }
}

/// Why a token is not accepted. The caller sees "Unauthorized"; this is for the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum TokenError {
    #[error("the token is not a JSON web token of this server")]
    Malformed,
    #[error("the token was not signed by this server's key")]
    Signature,
    #[error("the token was issued by another server")]
    Issuer,
    #[error("the token is for another audience")]
    Audience,
    #[error("the token has expired")]
    Expired,
    #[error("the token is not valid yet")]
    NotYet,
    #[error("the service account of the token does not exist any more")]
    NoAccount,
    #[error("the object the token is bound to does not exist any more")]
    NoBoundObject,
}

/// Why the signing key cannot be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the service account key is not an ECDSA P-256 key in PKCS#8 PEM form")]
pub struct BadKey;

/// A token could not be signed: the random source of the system failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the token could not be signed")]
pub struct SignError;

/// What a token is asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenSpec<'a> {
    pub namespace: &'a str,
    pub name: &'a str,
    /// The account's uid: the token dies with this very account, not with its name.
    pub uid: &'a str,
    /// Empty: the server's own audiences.
    pub audiences: &'a [String],
    pub lifetime_s: i64,
    pub bound: Option<(BoundKind, ObjectRef)>,
}

/// A fresh token.
#[derive(Clone, PartialEq, Eq)]
pub struct Issued {
    pub token: String,
    pub claims: Claims,
    pub expires_at: Timestamp,
}

impl fmt::Debug for Issued {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Issued").field("claims", &self.claims).finish_non_exhaustive()
    }
}

#[derive(Serialize, Deserialize)]
struct Header {
    alg: String,
    kid: String,
    /// Extensions the sender insists on; this server knows none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    crit: Option<serde_json::Value>,
}

/// Signs and verifies the tokens of service accounts.
pub struct Signer {
    key: EcdsaKeyPair,
    kid: String,
    issuer: String,
    audiences: Vec<String>,
}

impl fmt::Debug for Signer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Signer")
            .field("kid", &self.kid)
            .field("issuer", &self.issuer)
            .field("audiences", &self.audiences)
            .finish_non_exhaustive()
    }
}

impl Signer {
    /// The issuer is also the server's audience.
    pub fn new(key_pem: &str, issuer: &str) -> Result<Self, BadKey> {
        let der = PrivatePkcs8KeyDer::from_pem_slice(key_pem.as_bytes()).map_err(|_| BadKey)?;
        let key =
            EcdsaKeyPair::from_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, der.secret_pkcs8_der())
                .map_err(|_| BadKey)?;
        let public = key.public_key().as_der().map_err(|_| BadKey)?;
        let kid = URL_SAFE_NO_PAD.encode(Sha256::digest(public.as_ref()));
        Ok(Self { key, kid, issuer: issuer.to_owned(), audiences: vec![issuer.to_owned()] })
    }

    /// The audiences a token must name to be accepted by this server.
    pub fn audiences(&self) -> &[String] {
        &self.audiences
    }

    pub fn issuer(&self) -> &str {
        &self.issuer
    }

    /// `/.well-known/openid-configuration`: where others find out how to check our tokens.
    pub fn discovery(&self, address: &str) -> serde_json::Value {
        serde_json::json!({
            "issuer": self.issuer,
            "jwks_uri": format!("https://{address}/openid/v1/jwks"),
            "response_types_supported": ["id_token"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["ES256"],
        })
    }

    /// `/openid/v1/jwks`: the public half of the key, as a point on its curve.
    pub fn public_keys(&self) -> serde_json::Value {
        // Uncompressed: one byte that says so, then both coordinates.
        let point = self.key.public_key().as_ref().get(1..).unwrap_or_default();
        let (x, y) = point.split_at(point.len() / 2);
        serde_json::json!({"keys": [{
            "use": "sig",
            "kty": "EC",
            "kid": self.kid,
            "crv": "P-256",
            "alg": "ES256",
            "x": URL_SAFE_NO_PAD.encode(x),
            "y": URL_SAFE_NO_PAD.encode(y),
        }]})
    }

    /// Makes a token.
    pub fn issue(&self, spec: &TokenSpec<'_>, now: Timestamp) -> Result<Issued, SignError> {
        let claims = self.claims(spec, now);
        let expires_at = Timestamp::from_second(claims.exp).map_err(|_| SignError)?;
        let header = Header { alg: "ES256".to_owned(), kid: self.kid.clone(), crit: None };
        let mut token = encode_part(&header)?;
        token.push('.');
        token.push_str(&encode_part(&claims)?);
        let signature =
            self.key.sign(&SystemRandom::new(), token.as_bytes()).map_err(|_| SignError)?;
        token.push('.');
        URL_SAFE_NO_PAD.encode_string(signature.as_ref(), &mut token);
        Ok(Issued { token, claims, expires_at })
    }

    fn claims(&self, spec: &TokenSpec<'_>, now: Timestamp) -> Claims {
        let bound_as = |wanted: BoundKind| match &spec.bound {
            Some((kind, object)) if *kind == wanted => Some(object.clone()),
            _ => None,
        };
        let audiences =
            if spec.audiences.is_empty() { &self.audiences[..] } else { spec.audiences };
        let lifetime = SignedDuration::from_secs(spec.lifetime_s.clamp(1, MAX_LIFETIME_S));
        Claims {
            aud: audiences.to_vec(),
            exp: now.saturating_add(lifetime).map_or(i64::MAX, Timestamp::as_second),
            iat: now.as_second(),
            iss: self.issuer.clone(),
            jti: uuid::Uuid::new_v4().to_string(),
            kubernetes: KubernetesClaims {
                namespace: spec.namespace.to_owned(),
                node: bound_as(BoundKind::Node),
                pod: bound_as(BoundKind::Pod),
                secret: bound_as(BoundKind::Secret),
                serviceaccount: ObjectRef { name: spec.name.to_owned(), uid: spec.uid.to_owned() },
            },
            nbf: now.as_second(),
            sub: service_account_user(spec.namespace, spec.name),
        }
    }

    /// Checks signature, issuer, dates and that the token is for one of `audiences`.
    pub fn verify(
        &self,
        token: &str,
        audiences: &[String],
        now: Timestamp,
    ) -> Result<Claims, TokenError> {
        let claims = self.open(token)?;
        if claims.iss != self.issuer {
            return Err(TokenError::Issuer);
        }
        let now = now.as_second();
        if now >= claims.exp {
            return Err(TokenError::Expired);
        }
        if claims.nbf > now.saturating_add(CLOCK_LEEWAY_S) {
            return Err(TokenError::NotYet);
        }
        if !claims.aud.iter().any(|audience| audiences.contains(audience)) {
            return Err(TokenError::Audience);
        }
        let account = &claims.kubernetes;
        let named = (account.namespace.as_str(), account.serviceaccount.name.as_str());
        if split_service_account(&claims.sub) != Some(named) {
            return Err(TokenError::Malformed);
        }
        Ok(claims)
    }

    /// Reads the claims, but only behind a good signature.
    fn open(&self, token: &str) -> Result<Claims, TokenError> {
        if token.len() > MAX_TOKEN_BYTES {
            return Err(TokenError::Malformed);
        }
        let (signed, signature) = token.rsplit_once('.').ok_or(TokenError::Malformed)?;
        let (header, claims) = signed.split_once('.').ok_or(TokenError::Malformed)?;
        let header: Header = decode_part(header)?;
        // The algorithm is ours to choose, never the token's.
        if header.alg != "ES256" || header.crit.is_some() {
            return Err(TokenError::Malformed);
        }
        if header.kid != self.kid {
            return Err(TokenError::Signature);
        }
        let signature = URL_SAFE_NO_PAD.decode(signature).map_err(|_| TokenError::Malformed)?;
        UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, self.key.public_key().as_ref())
            .verify(signed.as_bytes(), &signature)
            .map_err(|_| TokenError::Signature)?;
        decode_part(claims)
    }
}

fn encode_part(part: &impl Serialize) -> Result<String, SignError> {
    serde_json::to_vec(part).map(|bytes| URL_SAFE_NO_PAD.encode(bytes)).map_err(|_| SignError)
}

fn decode_part<T: for<'de> Deserialize<'de>>(part: &str) -> Result<T, TokenError> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| TokenError::Malformed)?;
    serde_json::from_slice(&bytes).map_err(|_| TokenError::Malformed)
}

#[cfg(test)]
pub(crate) mod tests;
