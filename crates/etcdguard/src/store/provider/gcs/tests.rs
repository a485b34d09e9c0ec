use std::io::Write;

use super::*;

fn credentials(text: &str) -> Result<Credentials, StoreError> {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(text.as_bytes()).unwrap();
    account(file.path())
}

#[test]
fn only_keys_of_service_accounts_and_external_accounts_are_taken() {
    let external = r#"{"type":"external_account","credential_source":{"file":"/t"}}"#;
    assert!(matches!(credentials(external), Ok(Credentials::GoogleExternal { .. })));
    let good = r#"{"type":"service_account","project_id":"a-1","private_key":"hidden"}"#;
    assert!(matches!(credentials(good), Ok(Credentials::Google { .. })));
    for (text, part) in [
        ("x", "no JSON"),
        (r#"{"type":"authorized_user"}"#, "neither the key of a service account"),
        (r#"{"type":"service_account","project_id":"a/b"}"#, "project_id"),
        (r#"{"type":"service_account"}"#, "project_id"),
        (
            r#"{"type":"service_account","project_id":"a","credential_source":{}}"#,
            "credential_source has no place",
        ),
    ] {
        let error = credentials(text).unwrap_err().to_string();
        assert!(error.contains(part), "{text}: {error}");
    }
}

#[test]
fn an_endpoint_without_tls_is_an_emulator() {
    let environment = Environment::default();
    let named = Named {
        provider: crate::store::config::Provider::Gcs,
        container: "bkt",
        endpoint_override: Some("http://127.0.0.1:4443/storage/v1/"),
        prefix: "",
        environment: &environment,
    };
    let address = address(&named).unwrap();
    assert_eq!(address.url, "gs://bkt?endpoint=http%3A%2F%2F127.0.0.1%3A4443");
    assert!(matches!(address.credentials, Credentials::Anonymous));
    let refused = super::address(&Named { endpoint_override: None, ..named });
    assert!(refused.unwrap_err().to_string().contains("GOOGLE_APPLICATION_CREDENTIALS"));
}
