//! One request of somebody who is signed in.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Client;

use crate::pages::PageId;
use crate::read::Reader;
use crate::session::{Note, Session};
use crate::view::{Frame, Signed, Theme};
use crate::web::App;

pub(crate) struct Visit {
    pub(crate) app: Arc<App>,
    pub(crate) session: Arc<Session>,
    pub(crate) client: Client,
    pub(crate) theme: Theme,
    /// The path and query that were asked for.
    pub(crate) here: String,
    /// Asked for by a page that keeps itself up to date, not by a person.
    pub(crate) is_part: bool,
    pub(crate) now: Timestamp,
}

impl Visit {
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader::new(&self.client, &self.session.standing)
    }

    /// What is around a page; takes the note along, so that it is shown once.
    pub(crate) fn frame(&self, page: Option<PageId>) -> Frame {
        let standing = &self.session.standing;
        Frame {
            theme: self.theme,
            here: self.here.clone(),
            signed: Some(Signed {
                user: standing.user.clone(),
                csrf: self.session.csrf().to_owned(),
                nav: PageId::nav(standing.sees_volumes, self.app.has_blocks(), page),
            }),
            note: if self.is_part { None } else { self.session.take_note() },
        }
    }

    pub(crate) fn leave(&self, text: impl Into<String>, is_error: bool) {
        self.session.leave_note(Note { text: text.into(), is_error });
    }
}
