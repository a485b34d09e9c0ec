//! The whole service over the simulated backend, on SQLite and, where there is one, on `PostgreSQL`.
//!
//! What a Block Storage service with two status fields must do, and which test shows it; where rows of
//! the release before matter, they are planted by the same tests.
//!
//! | what | tests |
//! |---|---|
//! | a backup of a volume at rest, in both views | [`backups`]`::a_backup_of_an_available_volume_in_both_views` |
//! | a forced backup of one in use; its attachments stay | [`beside`]`::a_volume_in_use_stays_in_use_under_its_backup` |
//! | a live migration and a resize during a backup, which is of one moment | [`backups`]`::attaching_extending_and_cloning_go_on_beside_a_backup`; by real clients: suite `block_api`, `volumes_live_by_stock_clients` |
//! | what goes on beside a backup and what does not | [`beside`]`::a_running_backup_keeps_out_what_it_must_and_nothing_else` |
//! | of many backups one | [`backups`]`::a_hundred_clients_race_for_one_backup_and_one_wins` |
//! | never a backup and a deletion, transfer, migration or restore | [`backups`]`::a_backup_and_what_it_excludes_are_never_both_accepted`, [`schedules`]`::a_backup_excludes_migrations_and_restores` |
//! | a failed backup, and the next one | [`backups`]`::a_failed_backup_is_told_and_blocks_nothing` |
//! | a restore keeps everybody out; one that failed | [`backups`]`::a_restore_blocks_until_it_is_done_and_its_failure_until_it_is_unset`, [`cancelled`] |
//! | a restored volume is as large as its row; what is not there is not waited for without end | [`restores`] |
//! | workers that die or stand still in the middle of backups, restores and all else | [`killed`], [`late`], [`backups`]`::another_worker_goes_on_where_one_was_lost`; by SIGKILL: suite `block_api`, `rows_come_to_their_ends_after_a_kill_in_the_middle` |
//! | filters, counts, orders and markers of either version | [`wire`]`::pages_follow_each_other_by_either_status`, `a_hidden_failure_is_hidden_from_filters_too`, [`pages`] |
//! | resets of either version, and by whom | [`forms`]`::resets_of_either_release` |
//! | versions that are negotiated | [`wire`]`::versions_are_negotiated_and_told`, `rest::version::tests::negotiation`; older clients: `cargo xtask tempest` |
//! | migration of rows: batches, codes, twice, refused beside old services, under load | [`upgrade`]`::rows_of_the_release_before_are_served_and_then_split`, `operators_see_the_codes_of_the_dialects_tools`, `beside_old_services_one_field_is_written`, `a_migration_under_load_loses_nothing` |
//! | rows of the release before: shown, filtered, changed by every operation | [`forms`]`::every_operation_takes_rows_of_either_release`, [`upgrade`]`::rows_of_the_release_before_are_served_and_then_split`, [`beside`] |
//! | what is another project's, and what each role may | [`owners`], [`handed`], [`roles`] |
//! | what came with a microversion | [`gates`] |

mod attachments;
mod backups;
mod beside;
mod cancelled;
mod document;
mod forms;
mod gates;
mod handed;
mod images;
mod interleavings;
mod killed;
mod late;
mod left;
mod operators;
mod outage;
mod outside;
mod owners;
mod pages;
mod qos;
mod readonly;
mod restores;
mod rig;
mod roles;
mod schedules;
mod upgrade;
mod wire;
mod work;
