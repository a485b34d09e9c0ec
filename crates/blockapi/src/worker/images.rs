//! Volumes filled from images, and images made of volumes. The copy is a task beside the passes: a
//! look only asks how far it is.

use serde_json::{Value, json};

use super::backend::{Origin, Progress};
use super::volumes::settled;
use super::{Next, WorkError, Worker};
use crate::images::{Claim, CopyError, Place, State, fill, upload};
use crate::store::Pairs;
use crate::store::guard::{Change, Set};
use crate::store::messages::Action;
use crate::store::volumes::Volume;
use crate::store::work::{IMAGE_COPY, Verb, Work};

const NO_SERVICE: &str = "there is no image service any more";

/// What a look at a copy led to.
enum Copied {
    Not(Next),
    Done,
    Failed(String),
}

/// How a copy ended, kept while its connection is taken down.
const ENDED: &str = "ended";

fn ended(work: &Work) -> Option<Copied> {
    match work.detail.get(ENDED)? {
        Value::String(why) => Some(Copied::Failed(why.clone())),
        _ => Some(Copied::Done),
    }
}

fn text<'a>(work: &'a Work, key: &str) -> Option<&'a str> {
    work.detail.get(key).and_then(Value::as_str)
}

impl Worker {
    /// Takes note of how a copy ended; nothing if it is to be begun.
    fn copied(&self, work: &Work) -> Option<Copied> {
        Some(match self.copies.look(&work.id)? {
            State::Running => Copied::Not(Next::Soon),
            State::Ended(Ok(())) => Copied::Done,
            State::Ended(Err(CopyError::Hopeless(why))) => Copied::Failed(why),
            State::Ended(Err(CopyError::Broken(why))) if self.is_late(work) => Copied::Failed(why),
            State::Ended(Err(error @ (CopyError::Broken(_) | CopyError::Lost))) => {
                tracing::warn!(volume = work.resource_id, %error, "the copy of an image is begun again");
                Copied::Not(Next::Later)
            }
        })
    }

    /// Where the bytes of a volume are, once it is connected.
    async fn place_of(&self, volume: &str) -> Result<Progress<Place>, WorkError> {
        let connected = self.backend.connect(volume, IMAGE_COPY, &json!({})).await;
        Ok(match settled(connected)? {
            Progress::Running => Progress::Running,
            Progress::Failed(why) => Progress::Failed(why),
            Progress::Done(connection) => match Place::of(&connection) {
                Some(place) => Progress::Done(place),
                None => Progress::Failed("the volume has no address".to_owned()),
            },
        })
    }

    pub(super) async fn fill_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let volume = self.store.volume(&work.resource_id, None).await?;
        let volume = volume.filter(|it| it.status == "downloading");
        let (Some(volume), Some(image)) = (volume, text(work, "image")) else {
            return self.abandon(work).await;
        };
        let known = ended(work);
        let is_noted = known.is_some();
        let outcome = match known.or_else(|| self.copied(work)) {
            Some(outcome) => outcome,
            None => self.begin_filling(work, &volume, image).await?,
        };
        let change = Change::of(&volume.id).while_status("downloading");
        let (change, failed) = match outcome {
            Copied::Not(next) => return Ok(next),
            Copied::Done => {
                let change = change.set(Set::StatusByAttachments).column("bootable", true);
                (change, None)
            }
            Copied::Failed(why) => (change.set(Set::Status("error")), Some(why)),
        };
        let outcome = failed.clone().map_or(Value::Bool(true), Value::String);
        if !is_noted && !self.note(work, ENDED, outcome).await? {
            return Ok(Next::Soon);
        }
        // Nobody else may have it before: a worker that lost this work, and does not know it, may still
        // be writing.
        let taken_down = self.backend.disconnect(volume.backend_name(), IMAGE_COPY).await?;
        if taken_down != Progress::Done(()) {
            return Ok(Next::Soon);
        }
        let mut tx = self.store.on_volume(&volume.id).await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            change.apply(&self.store, &mut tx).await?;
            match failed {
                None => {
                    let kept = work.detail.get("kept").cloned().unwrap_or_default();
                    let kept = serde_json::from_value(kept).unwrap_or_default();
                    Pairs::VolumeImage.clear(&mut tx, &volume.id).await?;
                    Pairs::VolumeImage.put(&mut tx, &volume.id, &kept).await?;
                }
                Some(why) => {
                    tracing::warn!(volume = volume.id, image, why, "a volume is not filled");
                    let of = ("VOLUME", volume.id.as_str(), volume.project_id.as_str());
                    self.tell(&mut tx, work, of, Action::CopyImageToVolume, "001").await?;
                }
            }
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }

    async fn begin_filling(
        &self,
        work: &Work,
        volume: &Volume,
        image: &str,
    ) -> Result<Copied, WorkError> {
        let Some(images) = self.images.clone() else {
            return Ok(Copied::Failed(NO_SERVICE.to_owned()));
        };
        let place = match self.place_of(volume.backend_name()).await? {
            Progress::Running => return Ok(Copied::Not(Next::Soon)),
            Progress::Failed(why) => return Ok(Copied::Failed(why)),
            Progress::Done(place) => place,
        };
        let is = |key: &str| work.detail.get(key).and_then(Value::as_bool).unwrap_or(false);
        let (is_new, was_tried) = (is("new"), is("tried"));
        if !is_new {
            // One that came since the request was judged, or that could not be seen then.
            let known = self.backend.connections(volume.backend_name()).await?;
            if let Some(client) = known.into_iter().find(|it| it != IMAGE_COPY) {
                let why = format!("a client is connected ({client}); what it uses is not replaced");
                return Ok(Copied::Failed(why));
            }
        }
        // What a try left that came to nothing must not show where the image has zeros.
        if !was_tried && !self.note(work, "tried", true).await? {
            return Ok(Copied::Not(Next::Soon));
        }
        let is_empty = is_new && !was_tried;
        let store = self.store.clone();
        let claim = Claim { store, work: work.clone(), owner: self.name.clone() };
        let image = image.to_owned();
        self.copies.begin(&work.id, async move {
            let image = images.show(&image).await?;
            fill(&images, &image, &place, is_empty, &claim).await
        });
        Ok(Copied::Not(Next::Soon))
    }

    /// The image is of one moment: it is read from a copy of the volume.
    pub(super) async fn upload_volume(&self, work: &Work) -> Result<Next, WorkError> {
        let volume = self.store.volume(&work.resource_id, None).await?;
        let volume = volume.filter(|it| it.status == "uploading");
        let (Some(volume), Some(image), Some(place)) =
            (volume, text(work, "image"), text(work, "place"))
        else {
            return self.abandon(work).await;
        };
        let outcome = match self.copied(work) {
            Some(copied) => copied,
            None => self.begin_upload(work, &volume, (image, place)).await?,
        };
        let failed = match outcome {
            Copied::Not(next) => return Ok(next),
            Copied::Done => None,
            Copied::Failed(why) => Some(why),
        };
        self.backend.disconnect(place, IMAGE_COPY).await?;
        if let (Some(_), Some(images)) = (&failed, &self.images) {
            // It has no data, and will have none.
            if let Err(error) = images.delete(image).await {
                tracing::warn!(image, %error, "an image without data is left behind");
            }
        }
        let mut tx = self.store.on_volume(&volume.id).await?;
        if self.store.end(&mut tx, work, &self.name).await? {
            let change = Change::of(&volume.id).while_status("uploading");
            change.set(Set::StatusByAttachments).apply(&self.store, &mut tx).await?;
            self.store.ask(&mut tx, Verb::Discard, place, &json!({}), "").await?;
            if let Some(why) = failed {
                tracing::warn!(volume = volume.id, image, why, "a volume is not uploaded");
                let of = ("VOLUME", volume.id.as_str(), volume.project_id.as_str());
                self.tell(&mut tx, work, of, Action::CopyVolumeToImage, "001").await?;
            }
            tx.commit().await?;
        }
        Ok(Next::Ended)
    }

    async fn begin_upload(
        &self,
        work: &Work,
        volume: &Volume,
        (image, place): (&str, &str),
    ) -> Result<Copied, WorkError> {
        let Some(images) = self.images.clone() else {
            return Ok(Copied::Failed(NO_SERVICE.to_owned()));
        };
        let origin = Origin::Volume { volume: volume.backend_name().to_owned() };
        let order = self.order(volume, place, origin).await?;
        let place = match settled(self.backend.ensure_volume(&order).await)? {
            Progress::Running => return Ok(Copied::Not(Next::Soon)),
            Progress::Failed(why) => return Ok(Copied::Failed(why)),
            Progress::Done(()) => match self.place_of(place).await? {
                Progress::Running => return Ok(Copied::Not(Next::Soon)),
                Progress::Failed(why) => return Ok(Copied::Failed(why)),
                Progress::Done(place) => place,
            },
        };
        let image = image.to_owned();
        self.copies.begin(&work.id, async move { upload(&images, &image, &place).await });
        Ok(Copied::Not(Next::Soon))
    }
}
