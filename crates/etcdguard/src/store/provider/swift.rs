//! Swift of an `OpenStack`.

use blobs::{Credentials, Network, SwiftIdentity};

use super::credentials::Fields;
use super::s3::REQUEST_TIMEOUT;
use super::{Address, Named};
use crate::store::error::StoreError;

/// Plain variables, where there is no file; by the names of the fields they stand for.
const VARIABLES: [(&str, &[&str]); 9] = [
    ("authURL", &["OS_AUTH_URL"]),
    ("tenantName", &["OS_PROJECT_NAME", "OS_TENANT_NAME"]),
    ("domainName", &["OS_DOMAIN_NAME", "OS_USER_DOMAIN_NAME", "OS_PROJECT_DOMAIN_NAME"]),
    ("username", &["OS_USERNAME"]),
    ("password", &["OS_PASSWORD"]),
    ("applicationCredentialID", &["OS_APPLICATION_CREDENTIAL_ID"]),
    ("applicationCredentialName", &["OS_APPLICATION_CREDENTIAL_NAME"]),
    ("applicationCredentialSecret", &["OS_APPLICATION_CREDENTIAL_SECRET"]),
    ("region", &["OS_REGION_NAME"]),
];

pub(super) fn address(named: &Named<'_>) -> Result<Address, StoreError> {
    let fields = match named.fields()? {
        Some(fields) => fields,
        None => of_variables(named)?,
    };
    let mut settings = url::form_urlencoded::Serializer::new(String::new());
    settings.append_pair("auth_url", fields.need("authURL")?);
    if let Some(region) = fields.get("region") {
        settings.append_pair("region", region);
    }
    Ok(Address {
        url: format!("swift://{}?{}", named.container, settings.finish()),
        credentials: Credentials::Swift(identity(&fields)?),
        network: Network { request_timeout: Some(REQUEST_TIMEOUT), ..Network::default() },
    })
}

fn of_variables(named: &Named<'_>) -> Result<Fields, StoreError> {
    let get = |name: &&str| named.environment.get(&format!("{}{name}", named.prefix));
    let found = VARIABLES
        .iter()
        .filter_map(|(field, names)| Some(((*field).to_owned(), names.iter().find_map(get)?)));
    let fields = Fields::of_variables("OS_*", found.collect());
    match fields.get("authURL") {
        Some(_) => Ok(fields),
        None => named.need_fields(),
    }
}

fn identity(fields: &Fields) -> Result<SwiftIdentity, StoreError> {
    let Some(secret) = fields.get("applicationCredentialSecret") else {
        return Ok(SwiftIdentity::Password {
            username: fields.need("username")?.to_owned(),
            password: fields.need("password")?.into(),
            project: fields.need("tenantName")?.to_owned(),
            domain: fields.need("domainName")?.to_owned(),
        });
    };
    if let Some(id) = fields.get("applicationCredentialID") {
        let id = id.to_owned();
        return Ok(SwiftIdentity::ApplicationCredential { id, secret: secret.into() });
    }
    // A name alone is not one of anybody.
    Ok(SwiftIdentity::NamedApplicationCredential {
        name: fields.need("applicationCredentialName")?.to_owned(),
        secret: secret.into(),
        username: fields.need("username")?.to_owned(),
        domain: fields.need("domainName")?.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::config::{Environment, Provider};

    fn address_of(variables: &[(&str, &str)]) -> Result<Address, StoreError> {
        let environment: Environment = variables.iter().copied().collect();
        address(&Named {
            provider: Provider::Swift,
            container: "bkt",
            endpoint_override: None,
            prefix: "SOURCE_",
            environment: &environment,
        })
    }

    const PLACE: (&str, &str) = ("SOURCE_OS_AUTH_URL", "https://k:5000/v3");

    #[test]
    fn plain_variables_serve_where_there_is_no_file() {
        let password = [
            PLACE,
            ("SOURCE_OS_TENANT_NAME", "t"),
            ("SOURCE_OS_DOMAIN_NAME", "d"),
            ("SOURCE_OS_USERNAME", "u"),
            ("SOURCE_OS_PASSWORD", "hidden"),
            ("SOURCE_OS_REGION_NAME", "r"),
        ];
        let found = address_of(&password).unwrap();
        assert_eq!(found.url, "swift://bkt?auth_url=https%3A%2F%2Fk%3A5000%2Fv3&region=r");
        assert!(!format!("{found:?}").contains("hidden"));
        let error = address_of(&password[1..]).unwrap_err().to_string();
        assert!(error.contains("SOURCE_OPENSTACK_APPLICATION_CREDENTIALS"), "{error}");
        assert!(address_of(&password[..4]).unwrap_err().to_string().contains("password"));
    }

    #[test]
    fn credentials_of_applications_are_by_id_or_by_name_and_user() {
        let secret = ("SOURCE_OS_APPLICATION_CREDENTIAL_SECRET", "hidden");
        let id = [PLACE, secret, ("SOURCE_OS_APPLICATION_CREDENTIAL_ID", "i")];
        let found = address_of(&id).unwrap().credentials;
        let Credentials::Swift(SwiftIdentity::ApplicationCredential { id, .. }) = found else {
            panic!("{found:?}")
        };
        assert_eq!(id, "i");
        let name = [PLACE, secret, ("SOURCE_OS_APPLICATION_CREDENTIAL_NAME", "n")];
        let error = address_of(&name).unwrap_err().to_string();
        assert!(error.contains("username") && !error.contains("hidden"), "{error}");
    }
}
