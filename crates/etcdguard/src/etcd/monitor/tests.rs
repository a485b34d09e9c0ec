use tokio::sync::mpsc;

use super::super::wire::ResponseHeader;
use super::*;

/// Answers what the test says next, and hangs when it says nothing.
struct Script(tokio::sync::Mutex<mpsc::Receiver<Result<StatusResponse, EtcdError>>>);

#[async_trait::async_trait]
impl StatusSource for Script {
    async fn status(&self, _: Duration) -> Result<StatusResponse, EtcdError> {
        match self.0.lock().await.recv().await {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

fn status(own: u64, leader: u64, is_learner: bool) -> StatusResponse {
    let header = Some(ResponseHeader { member_id: own, cluster_id: 9, ..Default::default() });
    StatusResponse { header, leader, is_learner, ..Default::default() }
}

fn scripted() -> (EtcdMonitor, mpsc::Sender<Result<StatusResponse, EtcdError>>, tasks::Tasks) {
    let (sender, receiver) = mpsc::channel(16);
    let source = Arc::new(Script(tokio::sync::Mutex::new(receiver)));
    let monitor = EtcdMonitor::new(source, Duration::from_millis(1), Duration::from_secs(1));
    let tasks = tasks::Tasks::new();
    let running = monitor.clone();
    tasks.spawn_draining("monitor", |stop| async move { running.run(&stop).await });
    (monitor, sender, tasks)
}

#[test]
fn states_follow_from_one_status() {
    for (own, leader, learner, wanted) in [
        (1, 0, false, MemberState::Unknown),
        (1, 0, true, MemberState::Unknown),
        (1, 1, false, MemberState::Leader),
        (1, 2, false, MemberState::Follower),
        (1, 2, true, MemberState::Learner),
    ] {
        assert_eq!(state_of(&status(own, leader, learner)), wanted);
    }
}

#[tokio::test]
async fn subscribers_see_each_look_and_the_member_keeps_its_name_when_it_is_gone() {
    let (monitor, answers, _tasks) = scripted();
    let mut subscription = monitor.subscribe("a");
    assert_eq!(subscription.latest().looks, 0);
    answers.send(Ok(status(1, 1, false))).await.unwrap();
    let seen = subscription.next().await.unwrap();
    assert_eq!((seen.state, seen.member_id, seen.cluster_id), (MemberState::Leader, 1, 9));
    answers.send(Ok(status(1, 1, false))).await.unwrap();
    assert_eq!(subscription.next().await.unwrap().looks, 2, "an equal state is told too");
    // No answer in time.
    let seen = subscription.next().await.unwrap();
    assert_eq!((seen.state, seen.member_id, seen.leader_id), (MemberState::Unknown, 1, 0));
}

#[tokio::test]
async fn a_subscriber_that_never_reads_slows_nobody_and_gets_the_last() {
    let (monitor, answers, _tasks) = scripted();
    let mut slow = monitor.subscribe("slow");
    let mut quick = monitor.subscribe("quick");
    for leader in [2, 2, 1] {
        answers.send(Ok(status(1, leader, false))).await.unwrap();
        quick.next().await.unwrap();
    }
    assert!(slow.next().await.unwrap().is_leading());
}

#[tokio::test]
async fn subscriptions_end_alone_or_all_together() {
    let (monitor, answers, tasks) = scripted();
    let (mut a, mut b) = (monitor.subscribe("a"), monitor.subscribe("b"));
    assert_eq!(monitor.subscribers(), ["a", "b"]);
    monitor.unsubscribe("a");
    monitor.unsubscribe("nobody");
    assert_eq!(a.next().await, None);
    answers.send(Ok(status(1, 2, false))).await.unwrap();
    assert_eq!(b.next().await.unwrap().state, MemberState::Follower);
    monitor.close();
    assert_eq!(b.next().await, None);
    assert_eq!(monitor.subscribe("late").next().await, None);
    // The polling ends too, without being told.
    answers.send(Ok(status(1, 2, false))).await.unwrap();
    while !tasks.list().is_empty() {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn failures_are_observations() {
    let (monitor, answers, _tasks) = scripted();
    let mut subscription = monitor.subscribe("a");
    for _ in 0..3 {
        let error = EtcdError::Setup("nobody there".to_owned());
        answers.send(Err(error)).await.unwrap();
        assert_eq!(subscription.next().await.unwrap().state, MemberState::Unknown);
    }
    answers.send(Ok(status(4, 7, true))).await.unwrap();
    let seen = subscription.until(|seen| seen.state == MemberState::Learner).await.unwrap();
    assert_eq!(seen.looks, 4);
}
