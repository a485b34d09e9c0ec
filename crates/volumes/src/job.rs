//! What is done by the clock: recurring jobs, and backups of the system itself.

use reconcile::Controller;

pub(crate) const CONTROLLERS: &[Controller] = &[];
