//! Backups and the volumes they were made of: creation, progress, deletion.

use reconcile::Controller;

pub(crate) const CONTROLLERS: &[Controller] = &[];
