//! Where a copy goes.
