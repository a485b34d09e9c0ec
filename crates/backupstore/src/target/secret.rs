//! Credentials from a Secret: its data, its manifest, or the directory it is mounted at.
//!
//! Never: a value in an error. Whatever cannot be read is named by its key or its place only.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Deserialize;

use super::open::{Environment, KNOWN};
use crate::error::Error;

/// A Secret holds 1 MiB; its manifest is a third longer, and has more in it.
const MANIFEST_MAX_BYTES: u64 = 4 << 20;
const VALUE_MAX_BYTES: u64 = 1 << 20;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Manifest {
    #[serde(default)]
    kind: String,
    #[serde(default)]
    data: Option<BTreeMap<String, String>>,
    #[serde(default)]
    string_data: Option<BTreeMap<String, String>>,
}

impl Environment {
    /// From the data of a Secret, out of its base64. Keys that are not known are not looked at. One
    /// line end behind a value is dropped, which editors leave there; blanks around a value are
    /// refused, since no credential has any.
    pub fn from_secret<K: AsRef<str>>(
        data: impl IntoIterator<Item = (K, Vec<u8>)>,
    ) -> Result<Self, Error> {
        let known = data.into_iter().filter(|(key, _)| KNOWN.contains(&key.as_ref()));
        let mut pairs = BTreeMap::new();
        let mut wrong = Vec::new();
        for (key, value) in known {
            match plain(key.as_ref(), value) {
                Ok(value) => drop(pairs.insert(key.as_ref().to_owned(), value)),
                Err(why) => wrong.push(format!("{why} in {}", key.as_ref())),
            }
        }
        if wrong.is_empty() {
            Ok(Self::from_pairs(pairs))
        } else {
            Err(Error::Credentials { why: wrong.join("; ") })
        }
    }

    /// From the manifest of a Secret, in JSON or YAML.
    pub fn from_manifest(text: &str) -> Result<Self, Error> {
        let refused = |why: &str| Error::Credentials { why: why.to_owned() };
        // What a parser says may quote what it read.
        let manifest: Manifest = serde_saphyr::from_str(text)
            .map_err(|_| refused("it is not the manifest of a Secret in JSON or YAML"))?;
        if manifest.kind != "Secret" {
            return Err(refused("it is not the manifest of a Secret"));
        }
        let mut data = BTreeMap::new();
        for (key, value) in manifest.data.unwrap_or_default() {
            let packed: String = value.split_ascii_whitespace().collect();
            let value = STANDARD.decode(packed);
            let value = value.map_err(|_| refused(&format!("{key:?} is not base64")))?;
            data.insert(key, value);
        }
        let plain = manifest.string_data.unwrap_or_default();
        data.extend(plain.into_iter().map(|(key, value)| (key, value.into_bytes())));
        Self::from_secret(data)
    }

    /// From a directory where a Secret is mounted, one value a file, or from a file with its
    /// manifest. One without any known key is refused: it is not what was meant.
    pub fn from_path(path: &Path) -> Result<Self, Error> {
        let failed = |error: io::Error| Error::CredentialFile {
            path: path.display().to_string(),
            source: error,
        };
        let found = if std::fs::metadata(path).map_err(failed)?.is_dir() {
            Self::from_secret(values_in(path).map_err(failed)?)?
        } else {
            let bytes = read(path, MANIFEST_MAX_BYTES).map_err(failed)?;
            let text = String::from_utf8(bytes)
                .map_err(|_| Error::Credentials { why: "the manifest is not UTF-8".to_owned() })?;
            Self::from_manifest(&text)?
        };
        if found.is_empty() {
            let why = format!("{} holds none of {}", path.display(), KNOWN.join(", "));
            return Err(Error::Credentials { why });
        }
        Ok(found)
    }
}

fn values_in(dir: &Path) -> io::Result<Vec<(&'static str, Vec<u8>)>> {
    let mut values = Vec::new();
    for key in KNOWN {
        match read(&dir.join(key), VALUE_MAX_BYTES) {
            Ok(value) => values.push((*key, value)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
    }
    Ok(values)
}

fn read(path: &Path, max_bytes: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(max_bytes + 1).read_to_end(&mut bytes)?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > max_bytes {
        return Err(io::Error::other(format!("it has more than {max_bytes} bytes")));
    }
    Ok(bytes)
}

/// The value that is meant.
fn plain(key: &str, value: Vec<u8>) -> Result<String, &'static str> {
    let value = String::from_utf8(value).map_err(|_| "invalid UTF-8")?;
    // Texts of many lines, where blanks around mean nothing.
    if key.ends_with("_CERT") || key == "GOOGLE_SERVICE_ACCOUNT_KEY" {
        return Ok(value.trim().to_owned());
    }
    let line = value.strip_suffix('\n').unwrap_or(&value);
    let line = line.strip_suffix('\r').unwrap_or(line);
    if line.trim_start() != line {
        Err("invalid leading whitespace")
    } else if line.trim_end() != line {
        Err("invalid trailing whitespace")
    } else {
        Ok(line.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HIDDEN: &str = "c2VjcmV0LWtleQ=="; // secret-key

    fn pairs(environment: &Environment) -> Vec<(String, String)> {
        environment.to_pairs().into_iter().collect()
    }

    fn wanted() -> Vec<(String, String)> {
        let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        [("AWS_ACCESS_KEY_ID", "id"), ("AWS_SECRET_ACCESS_KEY", "secret-key")].map(pair).to_vec()
    }

    #[test]
    fn a_manifest_is_read_in_yaml_and_json() {
        let yaml = format!(
            "apiVersion: v1\nkind: Secret\nmetadata:\n  name: target\ntype: Opaque\ndata:\n  \
             AWS_SECRET_ACCESS_KEY: {HIDDEN}\n  OTHER: aGk=\nstringData:\n  AWS_ACCESS_KEY_ID: id\n"
        );
        let json = format!(
            r#"{{"kind":"Secret","data":{{"AWS_ACCESS_KEY_ID":"aWQK","AWS_SECRET_ACCESS_KEY":"{HIDDEN}"}}}}"#
        );
        for text in [yaml, json] {
            let environment = Environment::from_manifest(&text).unwrap();
            assert_eq!(pairs(&environment), wanted());
            assert!(!format!("{environment:?}").contains("secret-key"));
        }
    }

    #[test]
    fn what_is_wrong_is_named_and_never_shown() {
        for (text, part) in [
            ("kind: ConfigMap\ndata: {}".to_owned(), "not the manifest of a Secret"),
            (format!("kind: Secret\ndata: [{HIDDEN}"), "in JSON or YAML"),
            ("kind: Secret\ndata: {AWS_CERT: '!!'}".to_owned(), "\"AWS_CERT\" is not base64"),
            (
                "kind: Secret\nstringData: {AWS_ACCESS_KEY_ID: ' c2Vj', AWS_SECRET_ACCESS_KEY: 'c2Vj '}"
                    .to_owned(),
                "credential validation error(s): invalid leading whitespace in AWS_ACCESS_KEY_ID; \
                 invalid trailing whitespace in AWS_SECRET_ACCESS_KEY",
            ),
        ] {
            let error = Environment::from_manifest(&text).unwrap_err();
            assert!(error.to_string().contains(part), "{error}");
            assert!(!format!("{error:?}{error}").contains("c2Vj"), "{error}");
        }
        let binary = [("AWS_ACCESS_KEY_ID", vec![0xff, 0xfe])];
        let error = Environment::from_secret(binary).unwrap_err().to_string();
        assert!(error.contains("invalid UTF-8 in AWS_ACCESS_KEY_ID"), "{error}");
    }

    #[test]
    fn a_mounted_secret_is_one_value_a_file() {
        use std::io::Write as _;
        let dir = tempfile::tempdir().unwrap();
        let write = |name: &str, bytes: &[u8]| {
            File::create(dir.path().join(name)).unwrap().write_all(bytes).unwrap();
        };
        // As the kubelet lays it out: links to files in a hidden directory.
        std::fs::create_dir(dir.path().join("..data")).unwrap();
        write("..data/AWS_ACCESS_KEY_ID", b"id\n");
        std::os::unix::fs::symlink(
            "..data/AWS_ACCESS_KEY_ID",
            dir.path().join("AWS_ACCESS_KEY_ID"),
        )
        .unwrap();
        write("AWS_SECRET_ACCESS_KEY", b"secret-key");
        write("UNKNOWN", b"\xff");
        assert_eq!(pairs(&Environment::from_path(dir.path()).unwrap()), wanted());
        let empty = tempfile::tempdir().unwrap();
        let error = Environment::from_path(empty.path()).unwrap_err().to_string();
        assert!(error.contains("holds none of AWS_ACCESS_KEY_ID"), "{error}");
        assert!(Environment::from_path(&dir.path().join("none")).is_err());
    }
}
