use std::fs::File;
use std::io::Write;

use super::*;
use crate::store::config::Environment;

fn address_of(
    provider: Provider,
    files: &[(&str, &str)],
    variables: &[(&str, &str)],
    endpoint_override: Option<&str>,
) -> Result<Address, StoreError> {
    let dir = tempfile::tempdir().unwrap();
    for (name, value) in files {
        File::create(dir.path().join(name)).unwrap().write_all(value.as_bytes()).unwrap();
    }
    let path = dir.path().to_str().unwrap();
    let directory = super::super::credentials::variables(provider).map(|(_, name)| (name, path));
    let environment: Environment = variables.iter().copied().chain(directory).collect();
    address(&Named {
        provider,
        container: "bkt",
        endpoint_override,
        prefix: "",
        environment: &environment,
    })
}

const KEYS: [(&str, &str); 3] =
    [("accessKeyID", "ak"), ("secretAccessKey", "sk\n"), ("region", "eu-west-1")];

fn with<'a>(more: &[(&'a str, &'a str)]) -> Vec<(&'a str, &'a str)> {
    KEYS.iter().chain(more).copied().collect()
}

#[test]
fn each_service_has_its_address() {
    let plain = address_of(Provider::S3, &KEYS, &[], None).unwrap();
    assert_eq!(plain.url, "s3://bkt?region=eu-west-1&checksum=true&conditional_put=false");
    let old = with(&[("requestChecksumCalculation", "when_required")]);
    assert!(!address_of(Provider::S3, &old, &[], None).unwrap().url.contains("checksum"));
    assert!(
        address_of(Provider::S3, &with(&[("requestChecksumCalculation", "x")]), &[], None).is_err()
    );
    let files = with(&[("endpoint", "old.example.org")]);
    let hosted = address_of(Provider::S3, &files, &[], Some("https://s3.example.org")).unwrap();
    assert!(hosted.url.contains("endpoint=https%3A%2F%2Fbkt.s3.example.org&path_style=false"));
    let numbers = address_of(Provider::S3, &KEYS, &[], Some("http://127.0.0.1:9000")).unwrap();
    assert!(numbers.url.contains("endpoint=http%3A%2F%2F127.0.0.1%3A9000&path_style=true"));
    let ocs = with(&[("endpoint", "s3.apps.example.org"), ("disableSSL", "true")]);
    let ocs = address_of(Provider::Ocs, &ocs, &[], None).unwrap();
    assert!(ocs.url.contains("endpoint=http%3A%2F%2Fs3.apps.example.org&path_style=true"));
    let oss = [
        ("storageEndpoint", "oss-eu-central-1.aliyuncs.com"),
        ("accessKeyID", "ak"),
        ("accessKeySecret", "sk"),
    ];
    let oss = address_of(Provider::Oss, &oss, &[], None).unwrap();
    assert!(oss.url.contains("region=eu-central-1&endpoint=https%3A%2F%2Fbkt.oss-eu-central-1"));
    let ecs = [
        ("ECS_ENDPOINT", "ecs.example.org"),
        ("ECS_ACCESS_KEY_ID", "ak"),
        ("ECS_SECRET_ACCESS_KEY", "sk"),
        ("ECS_INSECURE_SKIP_VERIFY", "true"),
    ];
    let named = address_of(Provider::Ecs, &[], &ecs, None).unwrap();
    assert!(named.url.contains("region=US-Standard&endpoint=https%3A%2F%2Fecs.example.org"));
    assert!(named.network.accept_any_certificate);
    assert!(address_of(Provider::Ecs, &[], &ecs[..2], None).is_err());
}

#[test]
fn roles_and_customer_keys_are_taken() {
    let role = [("roleARN", "arn:aws:iam::1:role/x"), ("region", "r"), ("tokenPath", "/token")];
    let role = address_of(Provider::S3, &role, &[], None).unwrap();
    assert!(matches!(role.credentials, Credentials::S3WebIdentity { .. }));
    let key = "0123456789abcdef0123456789abcdef";
    let sealed = with(&[("sseCustomerKey", key), ("sseCustomerAlgorithm", "AES256")]);
    let sealed = address_of(Provider::S3, &sealed, &[], None).unwrap();
    assert!(matches!(sealed.credentials, Credentials::S3CustomerKey { .. }));
    assert!(!format!("{sealed:?}").contains("sk"));
    assert!(address_of(Provider::S3, &with(&[("sseCustomerKey", "short")]), &[], None).is_err());
    assert!(address_of(Provider::S3, &KEYS[..1], &[], None).is_err());
}
