//! Snapshots in a store: names, contents, listing, collection of garbage, copies to another store.
