//! Volumes: where one is between detached and attached, and how many of its copies it has.

use reconcile::Controller;

pub(crate) const CONTROLLERS: &[Controller] = &[];
