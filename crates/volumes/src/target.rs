//! Backup targets: whether a store can be reached, and what is in it.

use reconcile::Controller;

pub(crate) const CONTROLLERS: &[Controller] = &[];
