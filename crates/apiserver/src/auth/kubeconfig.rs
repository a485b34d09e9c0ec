//! The file that lets `kubectl` and every Kubernetes library reach this server.
//!
//! It holds a credential: whoever writes it to disk must make it readable by its owner only.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

/// Name of cluster and context.
pub const CONTEXT: &str = "holdfast";

/// How the user of the file proves who they are.
#[derive(Clone, Copy)]
pub enum Credential<'a> {
    Certificate { cert_pem: &'a str, key_pem: &'a str },
    Token(&'a str),
}

impl std::fmt::Debug for Credential<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Certificate { .. } => "Certificate",
            Self::Token(_) => "Token",
        })
    }
}

/// What goes into the file.
#[derive(Debug, Clone, Copy)]
pub struct Kubeconfig<'a> {
    /// `https://127.0.0.1:6443`
    pub server: &'a str,
    pub ca_pem: &'a str,
    /// Local name of the credential, for example the user it stands for.
    pub user: &'a str,
    pub credential: Credential<'a>,
    pub namespace: &'a str,
    /// Where else this server can be met: names of extensions of the cluster, and addresses.
    pub places: &'a [(&'static str, &'a str)],
}

/// The extension of the cluster that says where its dashboard is, for commands that tell it.
pub const DASHBOARD: &str = "holdfast.io/dashboard";
/// The one that says where its Block Storage API is, if that asks nobody who they are.
pub const BLOCK_STORAGE: &str = "holdfast.io/block-storage";

/// The file as YAML. Every text is written as a JSON string, which YAML reads the same, so nothing
/// in a name can change the structure.
pub fn render(config: &Kubeconfig<'_>) -> String {
    let quote = |text: &str| serde_json::Value::from(text).to_string();
    let credential = match config.credential {
        Credential::Certificate { cert_pem, key_pem } => format!(
            "    client-certificate-data: {}\n    client-key-data: {}\n",
            STANDARD.encode(cert_pem),
            STANDARD.encode(key_pem)
        ),
        Credential::Token(token) => format!("    token: {}\n", quote(token)),
    };
    let places = config.places.iter().map(|(name, url)| {
        format!("    - name: {name}\n      extension: {{url: {}}}\n", quote(url))
    });
    let places: String = places.collect();
    let head = if places.is_empty() { "" } else { "    extensions:\n" };
    format!(
        "apiVersion: v1\n\
         kind: Config\n\
         clusters:\n\
         - name: {CONTEXT}\n\
         \x20 cluster:\n\
         \x20   server: {server}\n\
         \x20   certificate-authority-data: {ca}\n\
         {head}{places}\
         users:\n\
         - name: {user}\n\
         \x20 user:\n\
         {credential}\
         contexts:\n\
         - name: {CONTEXT}\n\
         \x20 context:\n\
         \x20   cluster: {CONTEXT}\n\
         \x20   user: {user}\n\
         \x20   namespace: {namespace}\n\
         current-context: {CONTEXT}\n",
        server = quote(config.server),
        ca = STANDARD.encode(config.ca_pem),
        user = quote(config.user),
        namespace = quote(config.namespace),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(credential: Credential<'_>) -> Kubeconfig<'_> {
        Kubeconfig {
            server: "https://[::1]:6443",
            ca_pem: "CA",
            user: "a: \"b\"\n",
            credential,
            namespace: "default",
            places: &[
                (DASHBOARD, "http://127.0.0.1:7480"),
                (BLOCK_STORAGE, "http://[::1]:8776/v3"),
            ],
        }
    }

    #[test]
    fn kube_reads_what_we_write() {
        let text = render(&config(Credential::Certificate { cert_pem: "C", key_pem: "K" }));
        let read = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        assert_eq!(read.current_context.as_deref(), Some(CONTEXT));
        let cluster = read.clusters[0].cluster.as_ref().unwrap();
        assert_eq!(cluster.server.as_deref(), Some("https://[::1]:6443"));
        assert_eq!(cluster.certificate_authority_data.as_deref(), Some("Q0E="));
        let extension = &cluster.extensions.as_ref().unwrap()[0];
        assert_eq!(extension.name, DASHBOARD);
        assert_eq!(extension.extension["url"], "http://127.0.0.1:7480");
        let extension = &cluster.extensions.as_ref().unwrap()[1];
        assert_eq!(extension.name, BLOCK_STORAGE);
        assert_eq!(extension.extension["url"], "http://[::1]:8776/v3");
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        assert_eq!(read.auth_infos[0].name, "a: \"b\"\n");
        assert_eq!(user.client_certificate_data.as_deref(), Some("Qw=="));
        let context = read.contexts[0].context.as_ref().unwrap();
        assert_eq!(context.namespace.as_deref(), Some("default"));
        assert_eq!(context.user.as_deref(), Some("a: \"b\"\n"));
    }

    #[test]
    fn a_token_takes_the_place_of_the_certificate() {
        let text = render(&config(Credential::Token("t: #1")));
        let read = kube::config::Kubeconfig::from_yaml(&text).unwrap();
        let user = read.auth_infos[0].auth_info.as_ref().unwrap();
        assert!(user.token.is_some() && user.client_key_data.is_none());
        assert!(!format!("{:?}", config(Credential::Token("t: #1"))).contains("t: #1"));
    }
}
