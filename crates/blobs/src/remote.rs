//! The stores of the library underneath: S3, Google Cloud Storage, Azure and memory. Owns the
//! translation of calls, versions and errors; retries nothing (see [`crate::wrap::Retrying`]).

use std::fmt;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use async_trait::async_trait;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::{Bytes, BytesMut};
use futures::stream::iter as stream_of;
use futures::{StreamExt, TryStreamExt};
use jiff::Timestamp;
use md5::{Digest as _, Md5};
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::memory::InMemory;
use object_store::multipart::MultipartStore;
use object_store::path::Path;
use object_store::prefix::PrefixStore;
use object_store::{
    GetOptions, GetRange, GetResult, ListResult, ObjectMeta, ObjectStore, ObjectStoreExt, PutMode,
    PutOptions, UpdateVersion,
};

use crate::cut::NoRanges;
use crate::error::{Cause, Error};
use crate::key::{Key, Prefix};
use crate::rejection::{Rejection, tells_of_a_lock};
use crate::store::{
    Blob, Capabilities, LIST_PAGE_MAX, Level, Listing, Meta, Page, Permit, Store, Times, Version,
};
use crate::stream::{self, Body, First, Parts, Upload};
use crate::timeouts::{ContentMd5, Silent, Unreachable};

/// Objects that one request removes, as services have it.
const DELETES_MAX: usize = 1000;
/// Entries of one level that are held. A service that somebody else runs may list without end.
const LEVEL_MAX: usize = 100_000;

/// An empty store that ends with the process.
pub fn memory() -> Arc<dyn Store> {
    let listing = Listing::AtOnce;
    let capabilities =
        Capabilities { conditional_put: true, durable: false, listing, times: Times::OfStore };
    let store = Arc::new(InMemory::new());
    Arc::new(RemoteStore {
        inner: Arc::clone(&store) as _,
        multipart: store,
        pages: None,
        folder: None,
        version: None,
        sends_hash: false,
        capabilities,
    })
}

pub(crate) struct RemoteStore {
    inner: Arc<dyn ObjectStore>,
    /// The same store, without the folder that `inner` puts before each name.
    multipart: Arc<dyn MultipartStore>,
    /// The same again, where what it lists may have no end.
    pages: Option<Arc<dyn PaginatedListStore>>,
    folder: Option<Key>,
    /// The one that is read, where it is not the newest.
    version: Option<String>,
    /// With each object that is written in one request.
    sends_hash: bool,
    capabilities: Capabilities,
}

impl fmt::Debug for RemoteStore {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_tuple("RemoteStore").field(&self.inner).finish()
    }
}

impl RemoteStore {
    /// All that is in `folder` of `store`.
    pub(crate) fn new<S: ObjectStore + MultipartStore + PaginatedListStore>(
        store: S,
        folder: Option<&Key>,
        capabilities: Capabilities,
    ) -> Self {
        let store = Arc::new(store);
        let inner: Arc<dyn ObjectStore> = match folder {
            Some(folder) => {
                Arc::new(PrefixStore::new(Arc::clone(&store), Path::from(folder.as_str())))
            }
            None => Arc::clone(&store) as _,
        };
        let folder = folder.cloned();
        let (version, sends_hash) = (None, false);
        let pages = Some(Arc::clone(&store) as _);
        Self { inner, multipart: store, pages, folder, version, sends_hash, capabilities }
    }

    /// Sends a hash with each object. Buckets that lock objects take none without.
    pub(crate) fn sending_hashes(mut self, sends_hash: bool) -> Self {
        self.sends_hash = sends_hash;
        self
    }

    pub(crate) fn folder(&self) -> Option<&Key> {
        self.folder.as_ref()
    }

    /// Reads this version of whatever is read.
    pub(crate) fn at_version(&self, version: &str) -> Self {
        Self {
            inner: Arc::clone(&self.inner),
            multipart: Arc::clone(&self.multipart),
            pages: self.pages.clone(),
            folder: self.folder.clone(),
            version: Some(version.to_owned()),
            sends_hash: self.sends_hash,
            capabilities: self.capabilities,
        }
    }

    fn reading(&self) -> GetOptions {
        GetOptions { version: self.version.clone(), ..GetOptions::default() }
    }

    pub(crate) fn whole_path(&self, key: &Key) -> Result<Path, Error> {
        match &self.folder {
            // As the library writes it where it adds the folder.
            Some(folder) => {
                Ok(Path::from(folder.as_str()).parts().chain(path(key)?.parts()).collect())
            }
            None => path(key),
        }
    }

    /// Where one request for all was refused: services that know only single deletes say so in too
    /// many ways to tell, and single ones say what is wrong with which.
    async fn delete_each(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        for key in keys {
            permit.check()?;
            self.delete(key).await?;
        }
        Ok(())
    }

    /// One level, page by page and no further than can be held.
    async fn level_by_pages(
        &self,
        pages: &dyn PaginatedListStore,
        prefix: &Prefix,
    ) -> Result<ListResult, Error> {
        let above = self.folder.as_ref().map(path).transpose()?.unwrap_or_default();
        let below = prefix.folder().map(path).transpose()?.unwrap_or_default();
        let whole: Path = above.parts().chain(below.parts()).collect();
        let whole = Some(format!("{whole}/")).filter(|it| it != "/");
        let mut all = ListResult {
            common_prefixes: Vec::new(),
            objects: Vec::new(),
            extensions: http::Extensions::default(),
        };
        let mut token = None;
        loop {
            let options = PaginatedListOptions {
                delimiter: Some("/".into()),
                page_token: token,
                ..PaginatedListOptions::default()
            };
            let page = pages.list_paginated(whole.as_deref(), options).await;
            let page = page.map_err(|error| translate_listing(prefix, error))?;
            // The caller knows nothing of the folder above it.
            let inside = |it: &Path| it.prefix_match(&above).map(Iterator::collect::<Path>);
            all.common_prefixes.extend(page.result.common_prefixes.iter().filter_map(inside));
            all.objects.extend(page.result.objects.into_iter().filter_map(|it| {
                let location = inside(&it.location)?;
                Some(ObjectMeta { location, ..it })
            }));
            if all.common_prefixes.len() + all.objects.len() > LEVEL_MAX {
                let source = format!("it has more than {LEVEL_MAX} entries").into();
                return Err(Error::Unsupported {
                    what: "list a folder with so many entries",
                    source,
                });
            }
            token = page.page_token;
            if token.is_none() {
                return Ok(all);
            }
        }
    }

    async fn write(&self, key: &Key, bytes: Bytes, mode: PutMode) -> Result<Version, Error> {
        let mut options = PutOptions::from(mode);
        if self.sends_hash {
            let hash = BASE64_STANDARD.encode(Md5::digest(&bytes));
            options.extensions.insert(ContentMd5(hash));
        }
        let put = self.inner.put_opts(&path(key)?, bytes.into(), options).await;
        let put = put.map_err(|error| translate(key, error))?;
        Ok(Version { e_tag: put.e_tag, number: put.version })
    }
}

#[async_trait]
impl Store for RemoteStore {
    async fn put_new(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.write(key, bytes, PutMode::Create).await
    }

    async fn put_if_match(
        &self,
        key: &Key,
        bytes: Bytes,
        version: &Version,
    ) -> Result<Version, Error> {
        let Version { e_tag, number } = version.clone();
        let mode = PutMode::Update(UpdateVersion { e_tag, version: number });
        match self.write(key, bytes, mode).await {
            // Some services say that what is gone is not found; to us it was changed.
            Err(Error::NotFound { key }) => Err(Error::Changed { key }),
            other => other,
        }
    }

    async fn put(&self, key: &Key, bytes: Bytes) -> Result<Version, Error> {
        self.write(key, bytes, PutMode::Overwrite).await
    }

    async fn put_stream(&self, key: &Key, body: Body, parts: &Parts) -> Result<Version, Error> {
        match stream::first_part(key, body, parts).await? {
            // One part and no more: an object like any other, in one request.
            First::Whole(bytes) => {
                stream::again(parts, || self.write(key, bytes.clone(), PutMode::Overwrite)).await
            }
            First::More(first, rest) => {
                let upload = Upload {
                    store: self.multipart.as_ref(),
                    key,
                    path: self.whole_path(key)?,
                    parts,
                };
                upload.run(first, rest).await
            }
        }
    }

    async fn get_range(&self, key: &Key, range: Range<u64>) -> Result<Blob, Error> {
        if range.is_empty() {
            return Ok(Blob { meta: self.head(key).await?, bytes: Bytes::new() });
        }
        let (start, end) = (range.start, range.end);
        let options = GetOptions { range: Some(GetRange::Bounded(range)), ..self.reading() };
        let failed = match self.inner.get_opts(&path(key)?, options).await {
            Ok(found) => {
                let meta = meta(key.clone(), &found.meta)?;
                let wanted = end.min(meta.len_bytes).saturating_sub(start);
                let bytes =
                    no_more_than(wanted, found).await.map_err(|error| translate(key, error))?;
                // A service, or a proxy before it, may end early and call that the whole answer.
                if bytes.len() as u64 != wanted {
                    let source = format!("{} bytes came instead of {wanted}", bytes.len()).into();
                    return Err(Error::Unavailable { what: key.to_string(), source });
                }
                return Ok(Blob { meta, bytes });
            }
            Err(error) => translate(key, error),
        };
        // Services refuse a range past the end, and say so in too many ways to tell.
        if matches!(
            failed,
            Error::NotFound { .. }
                | Error::Denied { .. }
                | Error::Refused { .. }
                | Error::Locked { .. }
                | Error::Unsupported { .. }
        ) {
            return Err(failed);
        }
        match self.head(key).await {
            Ok(meta) if meta.len_bytes <= start => Ok(Blob { meta, bytes: Bytes::new() }),
            _ => Err(failed),
        }
    }

    async fn get_stream(&self, key: &Key) -> Result<(Meta, Body), Error> {
        let found = self.inner.get_opts(&path(key)?, self.reading()).await;
        let found = found.map_err(|error| translate(key, error))?;
        let meta = meta(key.clone(), &found.meta)?;
        Ok((meta, Box::pin(found.into_stream().map_err(io::Error::other))))
    }

    async fn head(&self, key: &Key) -> Result<Meta, Error> {
        let options = GetOptions { head: true, ..self.reading() };
        let found = self.inner.get_opts(&path(key)?, options).await;
        meta(key.clone(), &found.map_err(|error| translate(key, error))?.meta)
    }

    async fn list(&self, prefix: &Prefix, after: Option<&Key>) -> Result<Page, Error> {
        let folder = prefix.folder().map(path).transpose()?;
        let stream = match after {
            Some(after) => self.inner.list_with_offset(folder.as_ref(), &path(after)?),
            None => self.inner.list(folder.as_ref()),
        };
        let found: Vec<ObjectMeta> = stream
            .take(LIST_PAGE_MAX + 1)
            .try_collect()
            .await
            .map_err(|error| translate_listing(prefix, error))?;
        let is_last = found.len() <= LIST_PAGE_MAX;
        let objects = found
            .iter()
            .take(LIST_PAGE_MAX)
            .map(|object| {
                let key = Key::parse(object.location.as_ref());
                meta(key.map_err(|source| Error::ForeignName { source })?, object)
            })
            .collect::<Result<Vec<_>, _>>()?;
        if after.is_some() || !is_last {
            require_order(after, &objects)?;
        }
        Ok(Page { objects, is_last })
    }

    async fn list_level(&self, prefix: &Prefix) -> Result<Level, Error> {
        let found = if let Some(pages) = &self.pages {
            self.level_by_pages(pages.as_ref(), prefix).await?
        } else {
            let folder = prefix.folder().map(path).transpose()?;
            let found = self.inner.list_with_delimiter(folder.as_ref()).await;
            found.map_err(|error| translate_listing(prefix, error))?
        };
        let folders = found.common_prefixes.iter().filter_map(|it| Key::parse(it.as_ref()).ok());
        let mut folders: Vec<Key> = folders.collect();
        folders.sort_unstable();
        let mut objects = Vec::with_capacity(found.objects.len());
        for object in &found.objects {
            if let Ok(key) = Key::parse(object.location.as_ref()) {
                objects.push(meta(key, object)?);
            }
        }
        objects.sort_unstable_by(|one, other| one.key.cmp(&other.key));
        Ok(Level { folders, objects })
    }

    async fn delete(&self, key: &Key) -> Result<(), Error> {
        match self.inner.delete(&path(key)?).await {
            Ok(()) | Err(object_store::Error::NotFound { .. }) => Ok(()),
            Err(error) => Err(translate(key, error)),
        }
    }

    async fn delete_many(&self, keys: &[Key], permit: &Permit) -> Result<(), Error> {
        for keys in keys.chunks(DELETES_MAX) {
            permit.check()?;
            let paths = keys.iter().map(path).collect::<Result<Vec<_>, _>>()?;
            let paths = stream_of(paths.into_iter().map(Ok)).boxed();
            let mut removed = self.inner.delete_stream(paths);
            let mut has_failed = false;
            while let Some(done) = removed.next().await {
                has_failed |= !matches!(done, Ok(_) | Err(object_store::Error::NotFound { .. }));
            }
            if has_failed {
                permit.unanswered();
                self.delete_each(keys, permit).await?;
            }
        }
        Ok(())
    }

    fn capabilities(&self) -> Capabilities {
        self.capabilities
    }
}

/// Pages go on where the one before has ended. A service that begins them elsewhere, or has no order, would
/// be listed for ever, or not as a whole.
fn require_order(after: Option<&Key>, objects: &[Meta]) -> Result<(), Error> {
    let keys = after.into_iter().chain(objects.iter().map(|meta| &meta.key));
    if keys.is_sorted_by(|one, next| one < next) {
        return Ok(());
    }
    let source = "a page of its listing does not go on where the one before has ended".into();
    Err(Error::Unsupported { what: "list objects in the order of their names", source })
}

/// What a service answers, and a piece more at most where it answers more than was asked for.
async fn no_more_than(wanted: u64, found: GetResult) -> Result<Bytes, object_store::Error> {
    let mut pieces = found.into_stream();
    let first = pieces.try_next().await?.unwrap_or_default();
    if first.len() as u64 >= wanted {
        return Ok(first);
    }
    let mut bytes = BytesMut::with_capacity(usize::try_from(wanted).unwrap_or_default());
    bytes.extend_from_slice(&first);
    while let Some(piece) = pieces.try_next().await? {
        bytes.extend_from_slice(&piece);
        if bytes.len() as u64 > wanted {
            break;
        }
    }
    Ok(bytes.freeze())
}

fn path(key: &Key) -> Result<Path, Error> {
    // As it is, without the escapes that the library would else write into the name.
    Path::parse(key.as_str())
        .map_err(|_| Error::Unusable { key: key.clone(), why: "its library refuses the name" })
}

fn meta(key: Key, found: &ObjectMeta) -> Result<Meta, Error> {
    let modified = found.last_modified;
    let nanos = i32::try_from(modified.timestamp_subsec_nanos()).unwrap_or(0);
    let modified = Timestamp::new(modified.timestamp(), nanos)
        .map_err(|error| Error::Unavailable { what: key.to_string(), source: error.into() })?;
    let version = Version { e_tag: found.e_tag.clone(), number: found.version.clone() };
    Ok(Meta { key, len_bytes: found.size, version, modified })
}

pub(crate) fn translate(key: &Key, error: object_store::Error) -> Error {
    use object_store::Error as Theirs;
    if rejection_in(&error).is_some() {
        return translate_rest(key.to_string(), error);
    }
    let key = key.clone();
    match error {
        Theirs::NotFound { .. } => Error::NotFound { key },
        Theirs::AlreadyExists { .. } => Error::Exists { key },
        Theirs::Precondition { .. } | Theirs::NotModified { .. } => Error::Changed { key },
        other => translate_rest(key.to_string(), other),
    }
}

fn translate_listing(prefix: &Prefix, error: object_store::Error) -> Error {
    let what = match prefix.folder() {
        Some(folder) => format!("the listing of {folder}/"),
        None => "the listing of all".to_owned(),
    };
    translate_rest(what, error)
}

fn translate_rest(what: String, error: object_store::Error) -> Error {
    use object_store::Error as Theirs;
    if let Some(rejection) = rejection_in(&error) {
        return Box::new(rejection.clone()).into_error(what);
    }
    if causes(&error).any(<dyn std::error::Error>::is::<NoRanges>) {
        return Error::Unsupported { what: "read a part of a long object", source: error.into() };
    }
    match error {
        Theirs::PermissionDenied { .. } | Theirs::Unauthenticated { .. } => {
            Error::Denied { what, source: error.into() }
        }
        Theirs::NotSupported { .. } | Theirs::NotImplemented { .. } => {
            Error::Unsupported { what: "write with a condition", source: error.into() }
        }
        // Of one object among those that a request was to remove.
        Theirs::Generic { .. } if tells_of_a_lock(&error.to_string()) => {
            Error::Locked { what, source: error.into() }
        }
        _ => Error::Unavailable { what, source: plain(error) },
    }
}

/// The library says around it what was asked of whom, which ours does, too.
fn plain(error: object_store::Error) -> Cause {
    let ours = causes(&error).find(|cause| cause.is::<Silent>() || cause.is::<Unreachable>());
    match ours.map(ToString::to_string) {
        Some(text) => text.into(),
        None => error.into(),
    }
}

fn rejection_in(error: &object_store::Error) -> Option<&Rejection> {
    causes(error).find_map(|cause| cause.downcast_ref())
}

fn causes<'e>(
    error: &'e (dyn std::error::Error + 'static),
) -> impl Iterator<Item = &'e (dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error), |error| error.source())
}
