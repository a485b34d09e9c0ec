//! Objects in segments, as this dialect has them: `<name>/0000000001` and on, and an empty object
//! `<name>` that says where they are (a dynamic large object).
//!
//! The manifest is written last, and is checked to show exactly what was sent. Where there is such
//! an object already, the new segments get numbers that begin with another digit, so that the old
//! one stays whole until the manifest names the new ones. A removal takes the manifest first: what
//! is left by a crash is then nobody's, and is swept by the next write or removal of that name.

use bytes::Bytes;
use futures::stream::{self, FuturesUnordered};
use futures::{StreamExt as _, TryStreamExt as _};
use http::Method;
use md5::{Digest as _, Md5};

use super::store::{Ask, SwiftStore, hex, manifest};
use crate::error::Error;
use crate::key::Key;
use crate::store::Version;
use crate::stream::{self as parts_of, Body, Cutter, First, Parts};
use crate::wire;

/// Of the number of a segment.
const DIGITS: usize = 10;
/// The first digit of a number says which write of the object it belongs to.
const GENERATION: u64 = 1_000_000_000;
const GENERATIONS: u64 = 10;
const REMOVALS_AT_ONCE: usize = 8;

/// One write.
struct Write<'w> {
    key: &'w Key,
    name: &'w str,
    generation: u64,
    parts: &'w Parts,
}

impl Write<'_> {
    fn segment(&self, index: usize) -> String {
        let number = self.generation * GENERATION + index as u64 + 1;
        format!("{}/{number:0width$}", self.name, width = DIGITS)
    }
}

impl SwiftStore {
    pub(super) async fn put_segments(
        &self,
        key: &Key,
        body: Body,
        parts: &Parts,
    ) -> Result<Version, Error> {
        let first = parts_of::first_part(key, body, parts).await?;
        let name = self.whole_name(key);
        let generation = self.free_generation(key, &name).await?;
        let write = Write { key, name: &name, generation, parts };
        let sent = match self.send(&write, first).await {
            Ok(sent) => sent,
            Err(error) => {
                self.sweep(key, &name, |number| number / GENERATION == generation).await;
                return Err(error);
            }
        };
        // From here on an error leaves all segments: the manifest may name them already.
        let version = self.put_manifest(&write, &sent).await?;
        self.sweep(key, &name, |number| number / GENERATION != generation).await;
        Ok(version)
    }

    /// Segments of no manifest are of no use; they do no harm either.
    async fn sweep(&self, key: &Key, name: &str, is_chosen: impl Fn(u64) -> bool) {
        if let Err(error) = self.remove_segments(key, name, is_chosen).await {
            tracing::warn!("segments of {key} may stay in the store: {error}");
        }
    }

    /// One whose numbers are not those of what is there; nothing has them.
    async fn free_generation(&self, key: &Key, name: &str) -> Result<u64, Error> {
        let ask = Ask { method: Method::HEAD, name: Some(name), ..Ask::default() };
        let used = match self.good(key, &ask).await {
            Ok(answer) => manifest(answer.headers()).0,
            Err(Error::NotFound { .. }) => None,
            Err(error) => return Err(error),
        };
        let own = encoded(&format!("{}/{name}", self.container()));
        let below = used.as_deref().and_then(|used| used.strip_prefix(own.as_str()));
        let generation = match below {
            // It names all numbers, and would take ours for its own: theirs begin with 0.
            Some("" | "/") => {
                self.name_generation(key, name, 0).await?;
                1
            }
            Some(below) => match below.trim_start_matches('/').parse::<u64>() {
                Ok(used) => (used + 1) % GENERATIONS,
                Err(_) => 0,
            },
            None => 0,
        };
        // Left by one who was killed: they would become a part of ours.
        self.remove_segments(key, name, |number| number / GENERATION == generation).await?;
        Ok(generation)
    }

    /// Writes the manifest.
    async fn name_generation(&self, key: &Key, name: &str, generation: u64) -> Result<(), Error> {
        let segments = encoded(&format!("{}/{name}/{generation}", self.container()));
        let headers = [("x-object-manifest", segments.as_str())];
        let ask =
            Ask { method: Method::PUT, name: Some(name), headers: &headers, ..Ask::default() };
        self.good(key, &ask).await.map(drop)
    }

    async fn send(&self, write: &Write<'_>, first: First) -> Result<Vec<String>, Error> {
        let (first, rest) = match first {
            First::Whole(bytes) if bytes.is_empty() => return Ok(Vec::new()),
            First::Whole(bytes) => return Ok(vec![self.send_one(write, 0, bytes).await?.1]),
            First::More(first, rest) => (first, rest),
        };
        let mut sent = self.send_all(write, first, rest).await?;
        sent.sort_unstable_by_key(|(index, _)| *index);
        Ok(sent.into_iter().map(|(_, hash)| hash).collect())
    }

    /// Reads the body on while segments are on their way.
    async fn send_all(
        &self,
        write: &Write<'_>,
        first: Bytes,
        mut rest: Cutter,
    ) -> Result<Vec<(usize, String)>, Error> {
        let at_once = write.parts.at_once.max(1);
        let mut running = FuturesUnordered::new();
        running.push(self.send_one(write, 0, first));
        let (mut sent, mut index, mut ended) = (Vec::new(), 1, false);
        while !ended || !running.is_empty() {
            let len_bytes = write.parts.size_of(index);
            tokio::select! {
                part = rest.next(write.key, len_bytes), if !ended && running.len() < at_once => {
                    let part = part?;
                    ended = part.is_empty();
                    if !ended {
                        running.push(self.send_one(write, index, part));
                        index += 1;
                    }
                }
                Some(done) = running.next(), if !running.is_empty() => sent.push(done?),
            }
        }
        Ok(sent)
    }

    async fn send_one(
        &self,
        write: &Write<'_>,
        index: usize,
        bytes: Bytes,
    ) -> Result<(usize, String), Error> {
        let name = write.segment(index);
        let sent =
            parts_of::again(write.parts, || self.put_one(write.key, &name, bytes.clone())).await?;
        Ok((index, sent))
    }

    /// Names the segments, and looks that the service finds them all.
    async fn put_manifest(&self, write: &Write<'_>, hashes: &[String]) -> Result<Version, Error> {
        let Write { key, name, generation, parts } = write;
        parts_of::again(parts, || self.name_generation(key, name, *generation)).await?;
        let whole = hex(&Md5::digest(hashes.concat()));
        parts_of::again(parts, || self.shows(key, name, &whole)).await?;
        Ok(Version { e_tag: Some(whole), number: None })
    }

    /// Listings may come late, and an object in segments is what the listing of them says.
    async fn shows(&self, key: &Key, name: &str, whole: &str) -> Result<(), Error> {
        let ask = Ask { method: Method::HEAD, name: Some(name), ..Ask::default() };
        let shown = wire::e_tag(self.good(key, &ask).await?.headers());
        if shown.as_deref() == Some(whole) {
            return Ok(());
        }
        let source = "it does not show all of its segments yet".into();
        Err(Error::Unavailable { what: key.to_string(), source })
    }

    pub(super) async fn delete_with_segments(&self, key: &Key) -> Result<(), Error> {
        let name = self.whole_name(key);
        let ask = Ask { method: Method::HEAD, name: Some(&name), ..Ask::default() };
        let (dynamic, is_static) = match self.good(key, &ask).await {
            Ok(answer) => manifest(answer.headers()),
            Err(Error::NotFound { .. }) => (Some(String::new()), false),
            Err(error) => return Err(error),
        };
        if is_static {
            return self.delete_static(key, &name).await;
        }
        self.remove(key, &name).await?;
        match dynamic {
            // Only our own kind: a manifest could name anything.
            Some(_) => self.remove_segments(key, &name, |_| true).await,
            None => Ok(()),
        }
    }

    /// One that lists its segments itself; the service removes them with it.
    async fn delete_static(&self, key: &Key, name: &str) -> Result<(), Error> {
        let query = [("multipart-manifest", "delete")];
        let headers = [("accept", "application/json")];
        let ask = Ask {
            method: Method::DELETE,
            name: Some(name),
            query: &query,
            headers: &headers,
            ..Ask::default()
        };
        let failed =
            |why: &'static str| Error::Unavailable { what: key.to_string(), source: why.into() };
        let answer = self.good(key, &ask).await?;
        let body =
            wire::body(answer, 1 << 20).await.map_err(|it| it.into_error(key.to_string()))?;
        let said: serde_json::Value = serde_json::from_slice(&body).unwrap_or_default();
        match said.get("Response Status").and_then(serde_json::Value::as_str) {
            Some(status) if status.starts_with("200") => Ok(()),
            Some(_) => Err(failed("some of its segments could not be removed")),
            None => Err(failed("the service did not say what became of its segments")),
        }
    }

    /// Those of a name whose numbers are chosen.
    async fn remove_segments(
        &self,
        key: &Key,
        name: &str,
        is_chosen: impl Fn(u64) -> bool,
    ) -> Result<(), Error> {
        let prefix = format!("{name}/");
        let mut after = String::new();
        loop {
            let rows = self.rows(&prefix, &after, "").await?;
            let Some(last) = rows.last().and_then(|row| row.name.clone()) else { return Ok(()) };
            let names = rows.iter().filter_map(|row| row.name.as_deref());
            let chosen: Vec<String> = names
                .filter(|it| it.strip_prefix(&prefix).and_then(number).is_some_and(&is_chosen))
                .map(str::to_owned)
                .collect();
            let removals = chosen.iter().map(|segment| self.remove(key, segment));
            stream::iter(removals.collect::<Vec<_>>())
                .buffer_unordered(REMOVALS_AT_ONCE)
                .try_collect::<()>()
                .await?;
            if last <= after {
                return Ok(());
            }
            after = last;
        }
    }
}

/// Of a segment, where it is one.
fn number(below: &str) -> Option<u64> {
    let is_number = below.len() == DIGITS && below.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| below.parse().ok())?
}

/// As it must stand in a header.
fn encoded(path: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/-_.~".contains(&byte);
    let encode = |byte: u8| {
        if plain(byte) { char::from(byte).to_string() } else { format!("%{byte:02X}") }
    };
    path.bytes().map(encode).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_segments_are_ten_digits_and_paths_are_encoded() {
        assert_eq!(number("0000000012"), Some(12));
        for other in ["12", "00000000012", "000000001x", "a/00000000", ""] {
            assert_eq!(number(other), None, "{other}");
        }
        assert_eq!(encoded("bkt/a b/é/v2/Full-1"), "bkt/a%20b/%C3%A9/v2/Full-1");
    }
}
