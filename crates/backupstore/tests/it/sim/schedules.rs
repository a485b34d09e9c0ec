//! Schedules that once ended with a complete backup without its blocks, one by one.

use std::sync::Arc;
use std::time::Duration;

use backupstore::delete::DeleteOptions;
use backupstore::{Control, Error};
use blobs::{Key, Prefix};
use jiff::SignedDuration;

use super::actor::{Actor, What, When};
use super::peer::{Peer, data};
use super::world::{Condition, Conditions, Kind, Stamps, Tags, World, folder};
use super::{Ours, states};
use crate::world::{name, volume};

const SECOND: Duration = Duration::from_secs(1);

/// One machine without misfortune.
async fn calm(world: &Arc<World>, name: &str) -> Ours {
    Ours::new(Actor::build(world, name, 1).start()).await
}

async fn befallen(world: &Arc<World>, name: &str, when: When, what: What) -> Ours {
    Ours::new(Actor::build(world, name, 2).befalls(when, what).start()).await
}

/// Whose link is as slow, and whose listings are as late, as the seed says.
async fn drawn(world: &Arc<World>, name: &str, seed: u64) -> Ours {
    Ours::new(Actor::build(world, name, seed).start()).await
}

async fn at(second: u64) {
    tokio::time::sleep(SECOND * u32::try_from(second).unwrap()).await;
}

/// Something that begins so many seconds later.
async fn after<T>(seconds: u64, work: impl Future<Output = T>) -> T {
    at(seconds).await;
    work.await
}

#[track_caller]
fn sound(world: &World) {
    if let Some(what) = world.violation() {
        panic!("{what}");
    }
}

/// What lies among the locks.
fn locks(world: &World) -> Vec<String> {
    let locks = Prefix::from(Key::parse(&format!("{}/locks", folder())).unwrap());
    let found = world.listed(&locks, Duration::ZERO);
    found.into_iter().map(|meta| meta.key.to_string()).collect()
}

/// A store that holds one complete backup.
async fn with_backup(kind: Kind) -> Arc<World> {
    let world = World::new(kind);
    assert!(calm(&world, "first").await.back_up(&states(), 0, "backup-1").await);
    world
}

/// The deleter has passed its checks when its machine is suspended for ten minutes.
#[tokio::test(start_paused = true)]
async fn schedule_1_a_suspended_deleter_does_not_sweep_on() {
    let world = with_backup(Kind::STRONG).await;
    let when = When::Named("list", "/blocks", 2);
    let deleter = befallen(&world, "deleter", when, What::Suspend(600 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let of = states();
    let (is_done, published) =
        futures::join!(deleter.delete("backup-1"), after(200, writer.back_up(&of, 0, "backup-2")));
    sound(&world);
    assert!(published, "an expired lock is passed");
    assert!(!is_done, "it has lost its lock");
}

/// The same by a signal, with deletes already chosen.
#[tokio::test(start_paused = true)]
async fn schedule_2_a_stopped_deleter_does_not_send_what_it_chose() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/blocks/", 1);
    let deleter = befallen(&world, "deleter", when, What::Stop(600 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let of = states();
    let (is_done, published) =
        futures::join!(deleter.delete("backup-1"), after(200, writer.back_up(&of, 0, "backup-2")));
    sound(&world);
    assert!(published);
    assert!(!is_done);
}

/// A v1 engine whose refreshes fail goes on, and publishes whatever lies there.
#[tokio::test(start_paused = true)]
async fn schedule_3_a_peer_that_cannot_refresh_keeps_its_blocks() {
    let world = with_backup(Kind::STRONG).await;
    let mut actor = Actor::build(&world, "peer", 3);
    // The third write of its lock is the first refresh.
    for nth in 3..9 {
        actor = actor.befalls(When::Named("put", "/locks/", nth), What::Lost);
    }
    let peer = Peer::new(&actor.start(), 1);
    let deleter = calm(&world, "deleter").await;
    let of = states();
    let peer_data = data(&of, 1);
    let (made, is_deleted) = futures::join!(
        peer.back_up(&peer_data, "backup-peer", 300 * SECOND),
        after(200, deleter.delete("backup-1"))
    );
    made.unwrap();
    sound(&world);
    assert!(is_deleted);
    assert_eq!(world.counts().0, 2, "the peer has published");
}

/// A directory whose times are those of the hosts, and a deleter whose clock is five minutes behind.
#[tokio::test(start_paused = true)]
async fn schedule_4_a_clock_that_is_behind_does_not_make_a_lock_dead() {
    let world = with_backup(Kind { stamps: Stamps::ByTheWriter, ..Kind::STRONG }).await;
    // Where clocks differ, younger blocks stay whatever happens.
    at(7200).await;
    let slow = Actor::build(&world, "deleter", 2)
        .skewed(-300)
        .befalls(When::Named("list", "/blocks", 2), What::Stop(20 * SECOND))
        .start();
    let (deleter, writer) = (Ours::new(slow).await, calm(&world, "writer").await);
    let of = states();
    let others = async {
        at(4).await;
        writer.back_up(&of, 0, "backup-2").await;
    };
    let (is_done, ()) = futures::join!(deleter.delete("backup-1"), others);
    sound(&world);
    assert!(is_done);
}

/// A writer sleeps and is fenced; the next try of the same backup begins with the same bytes.
#[tokio::test(start_paused = true)]
async fn schedule_5_a_sleeper_does_not_publish_in_the_place_of_the_next_try() {
    let world = with_backup(Kind::WIDE).await;
    // Everything is there, and the lock was confirmed, when it sleeps.
    let when = When::Named("put_if_match", "/backups/", 1);
    let sleeper = befallen(&world, "sleeper", when, What::Stop(400 * SECOND)).await;
    let deleter = calm(&world, "deleter").await;
    let when = When::Named("put", "/blocks/", 1);
    let again = befallen(&world, "again", when, What::Stop(115 * SECOND)).await;
    let of = states();
    let others = async {
        at(200).await;
        assert!(deleter.delete("backup-1").await);
        at(100).await;
        again.back_up(&of, 0, "backup-2").await
    };
    let (published, finished) = futures::join!(sleeper.back_up(&of, 0, "backup-2"), others);
    sound(&world);
    assert!(!published && finished);
}

/// A service that takes conditions and does not keep them.
#[tokio::test(start_paused = true)]
async fn schedule_6_a_store_without_conditions_is_known_for_it() {
    for conditions in [Conditions::Ignored, Conditions::Unsupported] {
        let world = with_backup(Kind { conditions, page_max: 999, ..Kind::STRONG }).await;
        let when = When::Named("put", "/backups/", 2);
        let sleeper = befallen(&world, "sleeper", when, What::Stop(400 * SECOND)).await;
        let deleter = calm(&world, "deleter").await;
        let of = states();
        let (_, is_done) = futures::join!(
            sleeper.back_up(&of, 0, "backup-2"),
            after(200, deleter.delete("backup-1"))
        );
        sound(&world);
        assert!(is_done, "{conditions:?}");
    }
}

/// The link is down for longer than the lease, with deletes on their way.
#[tokio::test(start_paused = true)]
async fn schedule_7_deletes_end_with_the_lease() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/blocks/", 2);
    let deleter = befallen(&world, "deleter", when, What::Down(400 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let of = states();
    let (is_done, published) =
        futures::join!(deleter.delete("backup-1"), after(200, writer.back_up(&of, 0, "backup-2")));
    sound(&world);
    assert!(published);
    assert!(!is_done);
}

/// A writer is stopped between its look at the clock and the first write of its lock: by that, the store's
/// clock is far ahead, and every lock long dead.
#[tokio::test(start_paused = true)]
async fn schedule_8_a_slow_answer_does_not_make_others_old() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("put_new", "/locks/", 1);
    let writer = befallen(&world, "writer", when, What::Stop(200 * SECOND)).await;
    let when = When::Named("delete", "/blocks/", 1);
    let deleter = befallen(&world, "deleter", when, What::Stop(5 * SECOND)).await;
    let of = states();
    let (published, is_done) =
        futures::join!(writer.back_up(&of, 0, "backup-2"), after(198, deleter.delete("backup-1")));
    sound(&world);
    assert!(published && is_done, "it waits for the deletion, which is alive");
}

/// A lock is seen, and judged much later; it was renewed since, with the same text before it had a number.
#[tokio::test(start_paused = true)]
async fn schedule_9_a_lock_is_judged_as_of_when_it_was_seen() {
    let world = with_backup(Kind::WIDE).await;
    let deleter = Actor::build(&world, "deleter", 2)
        .befalls(When::Named("list", "/blocks", 1), What::Stop(100 * SECOND))
        .befalls(When::Named("delete", "/blocks/", 1), What::Stop(64 * SECOND))
        .start();
    let deleter = Ours::new(deleter).await;
    let when = When::Named("get", "/locks/", 1);
    let writer = befallen(&world, "writer", when, What::StopAfter(160 * SECOND)).await;
    let of = states();
    let (is_done, published) =
        futures::join!(deleter.delete("backup-1"), after(1, writer.back_up(&of, 0, "backup-2")));
    sound(&world);
    assert!(published && is_done);
}

/// The store's clock jumps while a deletion is between its checks and its removals: to everybody else its
/// lock has ended.
#[tokio::test(start_paused = true)]
async fn schedule_10_a_clock_that_jumps_ends_no_deletion_unseen() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/blocks/", 1);
    let deleter = befallen(&world, "deleter", when, What::Stop(25 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let of = states();
    let others = async {
        at(5).await;
        world.jump(SignedDuration::from_hours(1));
        // It may find blocks gone, and fails then: the next try stores them.
        writer.back_up(&of, 0, "backup-2").await || writer.back_up(&of, 0, "backup-2").await
    };
    let (_, published) = futures::join!(deleter.delete("backup-1"), others);
    sound(&world);
    assert!(published);
}

/// A collection is stopped before it removes the record of a writer that died; the next try of that backup
/// goes by it, and completes.
#[tokio::test(start_paused = true)]
async fn schedule_11_a_late_removal_does_not_take_the_next_tries_record() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("put_new", "/blocks/", 1);
    let dead = befallen(&world, "dead", when, What::Die).await;
    let of = states();
    assert!(!dead.back_up(&of, 1, "backup-2").await);
    at(200).await;
    let when = When::Named("delete", "/backups/", 1);
    let collector = befallen(&world, "collector", when, What::Stop(400 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let (is_done, published) =
        futures::join!(collector.collect(), after(200, writer.back_up(&of, 1, "backup-2")));
    sound(&world);
    assert!(published && !is_done);
    assert!(world.is_complete("backup-2"), "what was acknowledged stays");
}

/// Ours goes on with a backup that a v1 engine has begun, and dies; the v1 engine is slow, and alive.
#[tokio::test(start_paused = true)]
async fn schedule_12_a_peers_backup_that_was_taken_over_keeps_its_blocks() {
    let world = with_backup(Kind::STRONG).await;
    let mut actor = Actor::build(&world, "peer", 3);
    for nth in 3..20 {
        actor = actor.befalls(When::Named("put", "/locks/", nth), What::Lost);
    }
    let peer = Peer::new(&actor.start(), 1);
    let when = When::Named("list", "/blocks", 1);
    let dead = befallen(&world, "dead", when, What::Die).await;
    let deleter = calm(&world, "deleter").await;
    let of = states();
    let others = async {
        at(200).await;
        assert!(!dead.back_up(&of, 1, "backup-2").await);
        at(200).await;
        assert!(deleter.delete("backup-1").await);
    };
    let peer_data = data(&of, 1);
    let (made, ()) = futures::join!(peer.back_up(&peer_data, "backup-2", 600 * SECOND), others);
    made.unwrap();
    sound(&world);
    assert!(world.is_complete("backup-2"), "the peer has published");
}

/// The store's clock has jumped. One who passes a deletion's lock dies before it has done anything; the next
/// finds no lock, while the deletion is about to send what it chose.
#[tokio::test(start_paused = true)]
async fn schedule_13_what_one_knows_of_a_passed_deletion_the_next_learns() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/blocks/", 1);
    let deleter = befallen(&world, "deleter", when, What::Stop(25 * SECOND)).await;
    let when = When::Named("put_new", "/backups/", 1);
    let passes = befallen(&world, "passes", when, What::Die).await;
    let writer = calm(&world, "writer").await;
    let of = states();
    let others = async {
        at(5).await;
        world.jump(SignedDuration::from_hours(1));
        assert!(!passes.back_up(&of, 0, "backup-2").await);
        writer.back_up(&of, 0, "backup-3").await || writer.back_up(&of, 0, "backup-3").await
    };
    let (_, published) = futures::join!(deleter.delete("backup-1"), others);
    sound(&world);
    assert!(published);
    assert_eq!(locks(&world).len(), 1, "that of the dead, and no trace of the deletion");
}

/// The same, and it is another deletion that takes the first one's lock away, as one that ended long ago.
#[tokio::test(start_paused = true)]
async fn schedule_14_a_deletion_taken_for_litter_is_not_forgotten() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/blocks/", 1);
    let deleter = befallen(&world, "deleter", when, What::Stop(25 * SECOND)).await;
    let collector = calm(&world, "collector").await;
    let writer = calm(&world, "writer").await;
    let of = states();
    let others = async {
        at(5).await;
        world.jump(SignedDuration::from_hours(1));
        assert!(collector.collect().await);
        writer.back_up(&of, 0, "backup-2").await || writer.back_up(&of, 0, "backup-2").await
    };
    let (_, published) = futures::join!(deleter.delete("backup-1"), others);
    sound(&world);
    assert!(published);
}

/// A removal gets no answer and is sent again, which goes well; the first comes through later.
#[tokio::test(start_paused = true)]
async fn schedule_15_a_deletion_waits_for_removals_that_were_not_answered() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/blocks/", 1);
    let deleter = befallen(&world, "deleter", when, What::Late(19 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let of = states();
    let (is_done, published) =
        futures::join!(deleter.delete("backup-1"), after(14, writer.back_up(&of, 0, "backup-2")));
    at(30).await;
    sound(&world);
    assert!(is_done && published);
}

/// A deletion is cancelled while a removal is on its way.
#[tokio::test(start_paused = true)]
async fn schedule_16_a_cancelled_deletion_waits_for_what_it_has_sent() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/blocks/", 1);
    let deleter = befallen(&world, "deleter", when, What::Late(19 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let (of, control, options) = (states(), Control::default(), DeleteOptions::default());
    let others = async {
        at(5).await;
        control.cancel();
        at(3).await;
        writer.back_up(&of, 0, "backup-2").await
    };
    let (volume, backup) = (volume(), name("backup-1"));
    let deletion = deleter.store.delete_backup(&volume, &backup, &options, &control);
    let (done, published) = futures::join!(deletion, others);
    at(30).await;
    sound(&world);
    assert!(matches!(done, Err(Error::Cancelled)), "{done:?}");
    assert!(published);
}

/// The store's clock jumps while a collection is stopped before it removes the record of a writer that
/// died: for less long than its lease, and longer than others wait for it.
#[tokio::test(start_paused = true)]
async fn schedule_17_records_are_removed_at_once_or_not_at_all() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("put_new", "/blocks/", 1);
    let dead = befallen(&world, "dead", when, What::Die).await;
    let of = states();
    assert!(!dead.back_up(&of, 1, "backup-2").await);
    at(200).await;
    let when = When::Named("delete", "/backups/", 1);
    let collector = befallen(&world, "collector", when, What::Stop(100 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let others = async {
        at(5).await;
        world.jump(SignedDuration::from_hours(1));
        writer.back_up(&of, 1, "backup-2").await
    };
    let (is_done, published) = futures::join!(collector.collect(), others);
    sound(&world);
    assert!(published && !is_done);
    assert!(world.is_complete("backup-2"), "what was acknowledged stays");
}

/// The same before the record of a volume that is deleted: a backup that was made since could not be found.
#[tokio::test(start_paused = true)]
async fn schedule_18_the_record_of_a_volume_is_removed_at_once_or_not_at_all() {
    let world = with_backup(Kind::WIDE).await;
    let when = When::Named("delete", "/volume.cfg", 1);
    let deleter = befallen(&world, "deleter", when, What::Stop(100 * SECOND)).await;
    let writer = calm(&world, "writer").await;
    let (of, control, options) = (states(), Control::default(), DeleteOptions::default());
    let others = async {
        at(5).await;
        world.jump(SignedDuration::from_hours(1));
        writer.back_up(&of, 0, "backup-2").await
    };
    let volume = volume();
    let deletion = deleter.store.delete_volume(&volume, &options, &control);
    let (done, published) = futures::join!(deletion, others);
    sound(&world);
    assert!(published && done.is_err(), "{done:?}");
    let cfg = Key::parse(&format!("{}/volume.cfg", folder())).unwrap();
    assert!(world.get(&cfg).is_ok(), "the backup that was acknowledged has its volume");
}

/// A deletion is killed with a removal on its way. Who is on its machine need not wait for the end of its
/// lock, nor for what it could have sent later; but for what it had sent.
#[tokio::test(start_paused = true)]
async fn schedule_19_a_deletion_whose_process_is_gone_sends_nothing_more() {
    let world = with_backup(Kind::WIDE).await;
    let deleter = Actor::build(&world, "deleter", 2)
        .befalls(When::Named("delete", "/blocks/", 1), What::DieLate(19 * SECOND))
        .on("one");
    let deleter = Ours::new(deleter.start()).await;
    let writer = Ours::new(Actor::build(&world, "writer", 1).on("one").start()).await;
    assert!(!deleter.delete("backup-1").await);
    let begun = world.elapsed();
    assert!(writer.back_up(&states(), 0, "backup-2").await);
    let took = world.elapsed().checked_sub(begun).unwrap();
    at(30).await;
    sound(&world);
    assert!(took < 30 * SECOND, "it was not waited for longer: {took:?}");
    assert_eq!(locks(&world), [""; 0]);
}

/// The same where the store's clock has jumped: the lock has ended before anybody saw that its process is
/// gone, and what that had sent is still on its way.
#[tokio::test(start_paused = true)]
async fn schedule_20_a_process_that_is_gone_has_sent_what_it_has_sent() {
    let world = with_backup(Kind::WIDE).await;
    let deleter = Actor::build(&world, "deleter", 2)
        .befalls(When::Named("delete", "/blocks/", 1), What::DieLate(19 * SECOND))
        .on("one");
    let deleter = Ours::new(deleter.start()).await;
    let writer = Ours::new(Actor::build(&world, "writer", 1).on("one").start()).await;
    assert!(!deleter.delete("backup-1").await);
    world.jump(SignedDuration::from_hours(1));
    let of = states();
    assert!(!writer.back_up(&of, 0, "backup-2").await, "a block that it found is gone");
    assert!(writer.back_up(&of, 0, "backup-2").await);
    at(30).await;
    sound(&world);
}

/// A store without conditions. What begins a backup gets no answer and is sent again, which goes well; the
/// first comes through when the backup is complete.
#[tokio::test(start_paused = true)]
async fn schedule_21_a_late_begin_does_not_undo_a_backup() {
    for tags in [Tags::OfContents, Tags::OfWrites] {
        let kind = Kind { conditions: Conditions::Unsupported, tags, ..Kind::STRONG };
        let world = with_backup(kind).await;
        let when = When::Named("put", "/backups/", 1);
        let writer = befallen(&world, "writer", when, What::Late(19 * SECOND)).await;
        assert!(writer.back_up(&states(), 1, "backup-2").await);
        at(30).await;
        sound(&world);
        assert!(world.is_complete("backup-2"), "what was acknowledged stays");
    }
}

/// The same where the one that began it was killed, and another goes on at once.
#[tokio::test(start_paused = true)]
async fn schedule_21_a_late_begin_of_the_dead_does_not_undo_a_backup() {
    let world = with_backup(Kind { conditions: Conditions::Unsupported, ..Kind::STRONG }).await;
    let when = When::Named("put", "/backups/", 1);
    let dead = befallen(&world, "dead", when, What::DieLate(19 * SECOND)).await;
    let (writer, of) = (calm(&world, "writer").await, states());
    assert!(!dead.back_up(&of, 1, "backup-2").await);
    // It finds the other's record in the place of its own, and fails then.
    assert!(writer.back_up(&of, 1, "backup-2").await || writer.back_up(&of, 1, "backup-2").await);
    at(30).await;
    sound(&world);
    assert!(world.is_complete("backup-2"), "what was acknowledged stays");
}

/// The same with what makes it complete, and the backup is deleted as soon as it is.
#[tokio::test(start_paused = true)]
async fn schedule_21_a_late_record_does_not_come_back() {
    let world = with_backup(Kind { conditions: Conditions::Unsupported, ..Kind::STRONG }).await;
    // Younger blocks stay whatever happens.
    at(7200).await;
    let when = When::Named("put", "/backups/", 2);
    let writer = befallen(&world, "writer", when, What::Late(19 * SECOND)).await;
    let (deleter, of) = (calm(&world, "deleter").await, states());
    assert!(writer.back_up(&of, 0, "backup-2").await);
    assert!(deleter.delete("backup-2").await && deleter.delete("backup-1").await);
    at(30).await;
    sound(&world);
    assert!(!world.is_complete("backup-2"), "what was deleted stays away");
}

/// Ours goes on with a backup that a v1 engine has begun, and completes it; the v1 engine is slow, alive, and
/// has blocks that ours has not.
#[tokio::test(start_paused = true)]
async fn schedule_22_a_completed_takeover_keeps_blocks() {
    for deleted in [&["backup-1"][..], &["backup-2"][..]] {
        let world = with_backup(Kind::STRONG).await;
        let mut actor = Actor::build(&world, "peer", 3);
        for nth in 3..20 {
            actor = actor.befalls(When::Named("put", "/locks/", nth), What::Lost);
        }
        let peer = Peer::new(&actor.start(), 1);
        let (writer, deleter) = (calm(&world, "writer").await, calm(&world, "deleter").await);
        let of = states();
        let others = async {
            at(200).await;
            assert!(writer.back_up(&of, 2, "backup-2").await);
            at(200).await;
            for backup in deleted {
                assert!(deleter.delete(backup).await);
            }
        };
        let peer_data = data(&of, 1);
        let (made, ()) = futures::join!(peer.back_up(&peer_data, "backup-2", 600 * SECOND), others);
        made.unwrap();
        sound(&world);
        assert!(world.is_complete("backup-2"), "the peer has published");
        // A day later nobody can publish it any more.
        at(25 * 60 * 60).await;
        assert!(deleter.delete("backup-2").await);
        sound(&world);
        assert!(world.counts().1 > 0, "space comes back");
    }
}

/// What the record of the volume says of its last backup.
fn last_backup(world: &World) -> String {
    let cfg = Key::parse(&format!("{}/volume.cfg", folder())).unwrap();
    let cfg: serde_json::Value = serde_json::from_slice(&world.get(&cfg).unwrap().bytes).unwrap();
    cfg["LastBackupName"].as_str().unwrap().to_owned()
}

/// A deletion is stopped before it reads the record of the volume; a backup is made meanwhile.
#[tokio::test(start_paused = true)]
async fn schedule_23_a_stopped_collection_does_not_turn_back_the_volume() {
    for nth in 1..4 {
        let world = with_backup(Kind::WIDE).await;
        let when = When::Named("get", "/volume.cfg", nth);
        let deleter = befallen(&world, "deleter", when, What::Stop(400 * SECOND)).await;
        let (writer, of) = (calm(&world, "writer").await, states());
        let (_, published) = futures::join!(
            deleter.delete("backup-1"),
            after(200, writer.back_up(&of, 1, "backup-2"))
        );
        sound(&world);
        assert!(published, "{nth}");
        assert_eq!(last_backup(&world), "backup-2", "{nth}");
    }
}

/// Of two backups that are made at a time, the one that was started later is the last, whichever is slower.
#[tokio::test(start_paused = true)]
async fn schedule_23_a_slow_backup_does_not_turn_back_the_volume() {
    let world = with_backup(Kind::STRONG).await;
    let when = When::Named("put_new", "/blocks/", 1);
    let slow = befallen(&world, "slow", when, What::Stop(60 * SECOND)).await;
    let (writer, of) = (calm(&world, "writer").await, states());
    let (is_done, published) = futures::join!(
        slow.back_up(&of, 1, "backup-2"),
        after(10, writer.back_up(&of, 2, "backup-3"))
    );
    sound(&world);
    assert!(is_done && published);
    assert_eq!(last_backup(&world), "backup-3");
}

/// A backup is stopped before it tells its volume, and deleted meanwhile.
#[tokio::test(start_paused = true)]
async fn schedule_23_a_backup_that_is_gone_is_not_the_last() {
    let world = with_backup(Kind::STRONG).await;
    let when = When::Named("put_if_match", "/volume.cfg", 1);
    let slow = befallen(&world, "slow", when, What::Stop(400 * SECOND)).await;
    let (deleter, of) = (calm(&world, "deleter").await, states());
    let (is_done, is_deleted) =
        futures::join!(slow.back_up(&of, 1, "backup-2"), after(200, deleter.delete("backup-2")));
    sound(&world);
    assert!(is_deleted && !is_done, "it has lost its lock");
    assert_eq!(last_backup(&world), "backup-1");
}

/// A deletion dies, and its store's clock, which was ahead, is set right: its lock is of the future. Nobody can
/// tell that it has ended but by looking at it.
#[tokio::test(start_paused = true)]
async fn schedule_24_a_lock_of_the_future_is_watched_to_its_end() {
    let world = with_backup(Kind::STRONG).await;
    let hour = SignedDuration::from_hours(1);
    world.jump(hour);
    let when = When::Named("delete", "/blocks/", 1);
    let dead = befallen(&world, "dead", when, What::Die).await;
    assert!(!dead.delete("backup-1").await);
    world.jump(-hour);
    let writer = calm(&world, "writer").await;
    assert!(writer.back_up(&states(), 0, "backup-2").await);
    sound(&world);
    assert_eq!(locks(&world), [""; 0]);
}

/// A directory of a server. A machine is suspended between the comparison of the record's version and the
/// renaming that completes it; its backup is taken for abandoned meanwhile. It wakes up in the middle of the
/// call, and looks at no lock before the next.
#[tokio::test(start_paused = true)]
async fn schedule_25_who_has_compared_and_slept_does_not_publish() {
    for what in [What::Suspend(600 * SECOND), What::Down(600 * SECOND)] {
        let world = with_backup(Kind::SHARED).await;
        // Where others are seen late, younger blocks stay whatever happens.
        at(7200).await;
        let when = When::Named("put_if_match", "/backups/", 1);
        let sleeper = befallen(&world, "sleeper", when, what).await;
        let (deleter, of) = (calm(&world, "deleter").await, states());
        let (published, is_deleted) = futures::join!(
            sleeper.back_up(&of, 0, "backup-2"),
            after(200, deleter.delete("backup-1"))
        );
        at(700).await;
        sound(&world);
        assert!(is_deleted && !published, "{what:?}");
        assert!(world.counts().1 > 0, "its blocks were removed: {what:?}");
        assert!(!world.is_complete("backup-2"), "{what:?}");
    }
}

/// The same before a removal: the kernel has it, and does it when its server is back.
#[tokio::test(start_paused = true)]
async fn schedule_26_a_removal_that_was_held_back_is_undone() {
    for what in [What::Suspend(600 * SECOND), What::Down(600 * SECOND)] {
        for part in ["/blocks/", "/backups/"] {
            let world = with_backup(Kind::SHARED).await;
            at(7200).await;
            let deleter = befallen(&world, "deleter", When::Named("delete", part, 1), what).await;
            let (writer, of) = (calm(&world, "writer").await, states());
            let others = async {
                at(200).await;
                writer.back_up(&of, 1, "backup-1").await || writer.back_up(&of, 1, "backup-2").await
            };
            let (is_deleted, published) = futures::join!(deleter.delete("backup-1"), others);
            at(700).await;
            sound(&world);
            assert!(published && !is_deleted, "{what:?} {part}");
            // Whatever came late took nothing that was acknowledged.
            assert!(world.is_complete("backup-1") || part == "/blocks/", "{what:?} {part}");
        }
    }
}

/// A service that makes what is to be replaced and is not there. A writer's record is taken away, after the
/// store's clock has jumped, between its last look at its lock and the final record.
#[tokio::test(start_paused = true)]
async fn schedule_27_what_was_taken_away_is_not_replaced() {
    let conditions = Conditions::KeptOfWhatIsThere;
    for kind in [Kind::WIDE, Kind { conditions, ..Kind::WIDE }] {
        let world = with_backup(kind).await;
        at(7200).await;
        let when = When::Named("put", "/backups/", 2);
        let sleeper = befallen(&world, "sleeper", when, What::Stop(60 * SECOND)).await;
        let (deleter, of) = (calm(&world, "deleter").await, states());
        let others = async {
            at(5).await;
            world.jump(SignedDuration::from_hours(1));
            deleter.delete("backup-1").await
        };
        let (published, is_deleted) = futures::join!(sleeper.back_up(&of, 0, "backup-2"), others);
        sound(&world);
        assert!(is_deleted, "{kind:?}");
        // Where nothing is fenced, it may go on.
        assert!(!published || kind.conditions == conditions, "{kind:?}");
    }
}

/// As far behind as is allowed.
const LATE: Kind = Kind { lag: Duration::from_millis(1900), ..Kind::SHARED };

/// A backup is complete, and its lock given back, just before the volume is deleted: a listing that is late
/// shows nothing of it yet.
#[tokio::test(start_paused = true)]
async fn schedule_28_a_record_that_is_listed_late_goes_with_its_volume() {
    for seed in 80..120 {
        let world = with_backup(LATE).await;
        let writer = drawn(&world, "writer", seed).await;
        let deleter = drawn(&world, "deleter", seed + 5000).await;
        let of = states();
        let deletion = async {
            tokio::time::sleep(Duration::from_millis(10 * seed)).await;
            deleter.delete_volume().await
        };
        futures::join!(writer.back_up(&of, 0, "backup-2"), deletion);
        sound(&world);
    }
}

/// Whoever verifies beside a writer finds its record at once, and its blocks in listings that are late.
#[tokio::test(start_paused = true)]
async fn what_is_not_listed_yet_is_not_damage() {
    for seed in 415..435 {
        let world = with_backup(LATE).await;
        let writer = drawn(&world, "writer", seed).await;
        let reader = drawn(&world, "reader", seed + 5000).await;
        let of = states();
        let look = async {
            at(2).await;
            while !world.is_complete("backup-2") {
                tokio::time::sleep(SECOND / 100).await;
            }
            reader.is_healthy().await
        };
        let (_, is_healthy) = futures::join!(writer.back_up(&of, 1, "backup-2"), look);
        assert!(is_healthy, "{seed}");
    }
}

/// A backup is deleted while it is looked at, and made again before its record is read once more.
#[tokio::test(start_paused = true)]
async fn what_was_missing_of_a_backup_that_was_deleted_is_no_damage_of_the_next() {
    let world = with_backup(Kind { tags: Tags::OfWrites, ..Kind::WIDE }).await;
    let reader = Actor::build(&world, "reader", 2)
        .befalls(When::Named("list", "/blocks", 1), What::Stop(60 * SECOND))
        .befalls(When::Named("get", "/backups/", 2), What::Stop(60 * SECOND));
    let (reader, of) = (Ours::new(reader.start()).await, states());
    let (deleter, writer) = (calm(&world, "deleter").await, calm(&world, "writer").await);
    let others = async {
        at(5).await;
        assert!(deleter.delete("backup-1").await);
        after(65, writer.back_up(&of, 0, "backup-1")).await
    };
    let (is_healthy, is_made) = futures::join!(reader.is_healthy(), others);
    assert!(is_made && world.is_complete("backup-1"));
    assert!(is_healthy);
}

/// A store without conditions, which nobody else uses: there is nobody to be waited for.
#[tokio::test(start_paused = true)]
async fn a_backup_alone_waits_for_nobody() {
    let world = with_backup(Kind { conditions: Conditions::Unsupported, ..Kind::STRONG }).await;
    let (writer, of) = (calm(&world, "writer").await, states());
    let begun = world.elapsed();
    assert!(writer.back_up(&of, 1, "backup-2").await);
    let took = world.elapsed().checked_sub(begun).unwrap();
    assert!(took < 10 * SECOND, "{took:?}");
    sound(&world);
}

/// Ten thousand processes have died, each with a lock that excludes ours.
#[tokio::test(start_paused = true)]
async fn locks_of_ten_thousand_dead_are_taken_away_within_minutes() {
    const DEAD: usize = 10_000;
    let world = with_backup(Kind::STRONG).await;
    for number in 0..DEAD {
        let lock = format!("lock-{number:016x}");
        let text = format!(r#"{{"Name":"{lock}","Type":2,"Acquired":true}}"#);
        let key = Key::parse(&format!("{}/locks/{lock}.lck", folder())).unwrap();
        world.put(&key, &text.into(), &Condition::None, SignedDuration::ZERO).unwrap();
    }
    at(3600).await;
    let writer = calm(&world, "writer").await;
    let begun = world.elapsed();
    assert!(writer.back_up(&states(), 1, "backup-2").await);
    let took = world.elapsed().checked_sub(begun).unwrap();
    println!("{DEAD} locks of the dead: {} s of simulated time", took.as_secs());
    assert!(took < 600 * SECOND, "{took:?}");
    assert_eq!(locks(&world), [""; 0], "none is left");
    sound(&world);
}
