//! URLs of targets, volumes and backups. The text of a target is kept as it was given: it is shown,
//! compared and given back by others.

use std::collections::BTreeMap;
use std::fmt;

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};

use crate::error::Error;
use crate::name::Name;

/// What is written as it is in a query.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

const VOLUME: &str = "volume";
const BACKUP: &str = "backup";
const BACKING_IMAGE: &str = "backingImage";

/// The URL of a backup target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetUrl {
    /// All before the query.
    place: String,
    query: BTreeMap<String, String>,
}

/// A URL that names something in a target.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BackupUrl {
    pub target: TargetUrl,
    pub volume: Option<Name>,
    pub backup: Option<Name>,
    pub backing_image: Option<Name>,
}

impl BackupUrl {
    pub fn parse(text: &str) -> Result<Self, Error> {
        let mut target = TargetUrl::parse_whole(text)?;
        let mut name = |key| match target.query.remove(key) {
            Some(name) if !name.is_empty() => Name::parse(&name).map(Some),
            Some(_) | None => Ok(None),
        };
        let (volume, backup) = (name(VOLUME)?, name(BACKUP)?);
        let backing_image = name(BACKING_IMAGE)?;
        Ok(Self { target, volume, backup, backing_image })
    }

    /// The volume and the backup, which this must name.
    pub fn require_backup(&self) -> Result<(&Name, &Name), Error> {
        match (&self.volume, &self.backup) {
            (Some(volume), Some(backup)) => Ok((volume, backup)),
            _ => {
                Err(self.target.refuse("it names no backup, as in TARGET?backup=NAME&volume=NAME"))
            }
        }
    }

    pub fn require_volume(&self) -> Result<&Name, Error> {
        self.volume
            .as_ref()
            .ok_or_else(|| self.target.refuse("it names no volume, as in TARGET?volume=NAME"))
    }

    pub fn require_backing_image(&self) -> Result<&Name, Error> {
        self.backing_image.as_ref().ok_or_else(|| {
            self.target.refuse("it names no backing image, as in TARGET?backingImage=NAME")
        })
    }
}

impl TargetUrl {
    /// What names a volume or backup is taken off.
    pub fn parse(text: &str) -> Result<Self, Error> {
        Ok(BackupUrl::parse(text)?.target)
    }

    fn parse_whole(text: &str) -> Result<Self, Error> {
        let (place, query) = text.split_once('?').unwrap_or((text, ""));
        let refuse = |why: &str| Error::Url { url: text.to_owned(), why: why.to_owned() };
        let (scheme, _) = place.split_once("://").ok_or_else(|| {
            refuse("it has no scheme, as in vfs:///directory or s3://bucket@region/path")
        })?;
        if scheme.is_empty() || place.contains(['#', '\\']) || text.chars().any(char::is_control) {
            return Err(refuse("it has characters that no target has"));
        }
        let query = ::url::form_urlencoded::parse(query.as_bytes()).into_owned().collect();
        Ok(Self { place: place.to_owned(), query })
    }

    pub fn scheme(&self) -> &str {
        self.place.split_once("://").map_or("", |(scheme, _)| scheme)
    }

    /// Between the scheme and the first slash.
    pub(super) fn authority(&self) -> &str {
        self.after_scheme().split('/').next().unwrap_or_default()
    }

    /// From the first slash on; empty where there is none.
    pub(super) fn path(&self) -> &str {
        let rest = self.after_scheme();
        rest.find('/').and_then(|at| rest.get(at..)).unwrap_or_default()
    }

    fn after_scheme(&self) -> &str {
        self.place.split_once("://").map_or("", |(_, rest)| rest)
    }

    pub(super) fn option(&self, name: &str) -> Option<&str> {
        self.query.get(name).map(String::as_str)
    }

    pub(super) fn refuse(&self, why: &str) -> Error {
        Error::Url { url: self.to_string(), why: why.to_owned() }
    }

    pub fn volume_url(&self, volume: &Name) -> String {
        self.with(&[(VOLUME, volume)])
    }

    pub fn backup_url(&self, volume: &Name, backup: &Name) -> String {
        self.with(&[(BACKUP, backup), (VOLUME, volume)])
    }

    pub fn backing_image_url(&self, image: &Name) -> String {
        self.with(&[(BACKING_IMAGE, image)])
    }

    /// Keys in order, as others write them.
    fn with(&self, names: &[(&str, &Name)]) -> String {
        let mut query: BTreeMap<&str, &str> =
            self.query.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        query.extend(names.iter().map(|(key, name)| (*key, name.as_str())));
        if query.is_empty() {
            return self.place.clone();
        }
        let escape = |text| utf8_percent_encode(text, ESCAPED).to_string().replace("%20", "+");
        let pairs: Vec<String> =
            query.iter().map(|(key, value)| format!("{}={}", escape(key), escape(value))).collect();
        format!("{}?{}", self.place, pairs.join("&"))
    }
}

impl fmt::Display for TargetUrl {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.with(&[]))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn urls_of_backups_are_the_target_and_sorted_names() {
        let (volume, backup) = (Name::parse("vol-1").unwrap(), Name::parse("backup-1").unwrap());
        for (target, query) in [
            ("s3://bucket@eu-west-1/path/", "backup=backup-1&volume=vol-1"),
            ("vfs:///a/b", "backup=backup-1&volume=vol-1"),
            (
                "nfs://10.0.0.1:/share?nfsOptions=soft%2Ctimeo%3D330",
                "backup=backup-1&nfsOptions=soft%2Ctimeo%3D330&volume=vol-1",
            ),
        ] {
            let parsed = TargetUrl::parse(target).unwrap();
            assert_eq!(parsed.to_string(), target);
            let url = parsed.backup_url(&volume, &backup);
            assert_eq!(url, format!("{}?{query}", target.split('?').next().unwrap()));
            let back = BackupUrl::parse(&url).unwrap();
            assert_eq!(back.target, parsed);
            assert_eq!(back.require_backup().unwrap(), (&volume, &backup));
        }
    }

    #[test]
    fn names_that_climb_are_refused() {
        for bad in ["vfs:///a?volume=../x", "vfs:///a?volume=v1&backup=a/b", "a/b", "://x", ""] {
            assert!(BackupUrl::parse(bad).is_err(), "{bad}");
        }
        let none = BackupUrl::parse("vfs:///a?volume=&backup=").unwrap();
        assert!(none.require_volume().is_err() && none.require_backup().is_err());
    }

    proptest! {
        #[test]
        fn noise_never_panics(noise in "([a-z]{1,5}://)?[\\PC]{0,60}") {
            if let Ok(url) = BackupUrl::parse(&noise) {
                let _ = (url.target.scheme(), url.target.authority(), url.target.path());
                let again = TargetUrl::parse(&url.target.to_string()).unwrap();
                prop_assert_eq!(again, url.target);
            }
        }
    }
}
