use std::fs::File;
use std::io::Write;

use super::*;

fn write(path: &Path, text: &str) {
    File::create(path).unwrap().write_all(text.as_bytes()).unwrap();
}

#[test]
fn a_file_wins_over_a_directory_and_a_file_inside_over_single_values() {
    let dir = tempfile::tempdir().unwrap();
    let (inside, outside) = (dir.path().join("credentials.json"), dir.path().join("other"));
    let path = dir.path().to_str().unwrap();
    let read = |variables: &[(&str, &str)]| {
        let environment: Environment = variables.iter().copied().collect();
        let fields = Fields::read(Provider::S3, "SOURCE_", &environment).unwrap();
        fields.map(|fields| fields.get("region").unwrap_or_default().to_owned())
    };
    let by_directory = [("SOURCE_AWS_APPLICATION_CREDENTIALS", path)];
    write(&dir.path().join("region"), "single\n");
    assert_eq!(read(&[]), None);
    assert_eq!(read(&[("AWS_APPLICATION_CREDENTIALS", path)]), None, "that of another store");
    assert_eq!(read(&by_directory).unwrap(), "single");
    write(&inside, r#"{"region":"inside","s3ForcePathStyle":true}"#);
    assert_eq!(read(&by_directory).unwrap(), "inside");
    write(&outside, r#"{"region":"outside"}"#);
    let by_file = ("SOURCE_AWS_APPLICATION_CREDENTIALS_JSON", outside.to_str().unwrap());
    assert_eq!(read(&[by_directory[0], by_file]).unwrap(), "outside");
}

#[test]
fn what_cannot_be_used_says_where_and_why_and_no_secret() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("c.json");
    let environment: Environment =
        [("AZURE_APPLICATION_CREDENTIALS_JSON", path.to_str().unwrap())].into_iter().collect();
    let read = || Fields::read(Provider::Abs, "", &environment);
    assert!(matches!(read(), Err(StoreError::Credentials { .. })));
    for text in ["", "[]", "{\"a\":{}}", "hidden"] {
        write(&path, text);
        let error = read().unwrap_err().chain();
        assert!(error.contains("c.json") && !error.contains("hidden"), "{error}");
    }
    write(&path, r#"{"storageKey":"hidden","flag":"maybe"}"#);
    let fields = read().unwrap().unwrap();
    assert!(!format!("{fields:?}").contains("hidden"));
    assert!(fields.need("storageAccount").unwrap_err().to_string().contains("storageAccount"));
    assert!(fields.switch("flag").is_err());
    assert_eq!(fields.switch("none").unwrap(), None);
}

#[test]
fn a_change_of_a_file_is_seen() {
    let dir = tempfile::tempdir().unwrap();
    let environment: Environment =
        [("AWS_APPLICATION_CREDENTIALS", dir.path().to_str().unwrap())].into_iter().collect();
    let print = || Print::of(Provider::S3, "", &environment);
    let empty = print();
    write(&dir.path().join("region"), "a");
    let one = print();
    assert_ne!(empty, one);
    assert_eq!(one, print());
    write(&dir.path().join("region"), "ab");
    assert_ne!(one, print());
}
