//! The whole service over the simulated backend, on SQLite and, where there is one, on `PostgreSQL`.
//!
//! What a Block Storage service with two status fields must do, and where that is tested:
//!
//! | what | tests |
//! |---|---|
//! | a backup of a volume at rest, in both views | [`backups`], [`beside`] |
//! | a forced backup of one in use; its attachments stay | [`beside`] |
//! | a live migration during a backup | [`backups`]; by a real client: suite `block_api` |
//! | what goes on beside a backup and what does not; the backup is of one moment | [`beside`], [`backups`] |
//! | of many backups one; never a backup and a migration, deletion or restore | [`backups`], [`schedules`] |
//! | a failed backup, and the next one | [`backups`] |
//! | a restore keeps everybody out; one that failed | [`backups`], [`cancelled`] |
//! | workers that die, in the middle of backups and restores too | [`killed`], [`backups`], [`work`] |
//! | filters, counts, orders and markers of either version | [`wire`], [`pages`] |
//! | resets of either version, and by whom | [`forms`] |
//! | versions that are negotiated | [`wire`] |
//! | migration of rows: codes, batches, under load, refused beside old services | [`upgrade`] |
//! | rows of the release before, by every operation | [`forms`], [`upgrade`], [`beside`] |

mod attachments;
mod backups;
mod beside;
mod cancelled;
mod document;
mod forms;
mod images;
mod interleavings;
mod killed;
mod operators;
mod outage;
mod outside;
mod owners;
mod pages;
mod qos;
mod rig;
mod schedules;
mod upgrade;
mod wire;
mod work;
