use super::super::tests::now;
use super::*;
use crate::until;

/// Writes what a majority then has.
async fn write(node: &Server) -> Result<Document> {
    let concern = doc! { "w": "majority", "j": true };
    let insert = doc! { "insert": "c", "documents": [{}], "writeConcern": concern };
    in_time(node.command(DATABASE, insert)).await
}

#[tokio::test]
async fn a_set_of_one_has_a_primary() {
    let set = ReplicaSet::start(1).await.unwrap();
    write(&set.nodes[0]).await.unwrap();
    set.nodes[0].restart().await.unwrap();
    write(set.primary().await).await.unwrap();
    write(set.step_down().await.unwrap()).await.unwrap();
}

#[tokio::test]
async fn a_set_of_three_has_another_primary_when_one_ends() {
    let set = ReplicaSet::start(3).await.unwrap();
    write(&set.nodes[0]).await.unwrap();
    let second = set.step_down().await.unwrap();
    write(second).await.unwrap();
    second.kill();
    let third = set.primary().await;
    assert_ne!(third.port(), second.port());
    write(third).await.unwrap();
    second.restart().await.unwrap();
    set.until_well().await;
    third.pause();
    let fourth = async || {
        let found = set.find_primary().await;
        found.is_some_and(|found| found.port() != third.port())
    };
    until(fourth).await;
    third.resume();
    write(set.primary().await).await.unwrap();
}

#[tokio::test]
async fn a_set_lives_on_a_clock_that_stands_still() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ServerClock::new(directory.path().join("clock")).unwrap();
    let set = ReplicaSet::start_on(Some(clock.clone()), 3).await.unwrap();
    for by in [1, 1_000, 86_400_000].map(Duration::from_millis) {
        set.advance(by).unwrap();
        let time = now(&set.nodes[0]).await.timestamp_millis();
        assert_eq!(u64::try_from(time).unwrap(), clock.wall_micros() / 1_000);
        // When much time passes at once, the others may stop to follow until more has passed.
        set.until_replicated(&set.nodes[0]).await;
        write(&set.nodes[0]).await.unwrap();
    }
    write(set.step_down().await.unwrap()).await.unwrap();
    set.step_up(0).await;
    write(&set.nodes[0]).await.unwrap();
    set.nodes[0].kill();
    set.step_up(1).await;
    write(&set.nodes[1]).await.unwrap();
    set.restart(0).await.unwrap();
    set.restart(1).await.unwrap();
    assert_eq!(set.primary().await.port(), set.nodes[1].port());
    write(&set.nodes[1]).await.unwrap();
}

#[tokio::test]
async fn the_clock_of_a_set_of_one_does_not_move_by_itself() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ServerClock::new(directory.path().join("clock")).unwrap();
    let start = clock.wall_micros();
    let set = ReplicaSet::start_on(Some(clock.clone()), 1).await.unwrap();
    write(&set.nodes[0]).await.unwrap();
    set.restart(0).await.unwrap();
    write(&set.nodes[0]).await.unwrap();
    assert_eq!(clock.wall_micros(), start);
}

#[tokio::test]
async fn a_set_of_one_writes_on_after_its_clock_was_put_back() {
    let directory = tempfile::tempdir().unwrap();
    let clock = ServerClock::new(directory.path().join("clock")).unwrap();
    let set = ReplicaSet::start_on(Some(clock), 1).await.unwrap();
    for _ in 0..3 {
        let hasty = doc! { "insert": "c", "documents": [{}], "writeConcern": { "w": 1 } };
        set.nodes[0].command(DATABASE, hasty).await.unwrap();
        set.step_wall(WallStep::Back(Duration::from_secs(3_600))).await.unwrap();
        in_time(write(&set.nodes[0])).await.unwrap();
    }
}

#[tokio::test]
async fn a_secured_set_lets_in_who_has_the_password() {
    for nodes in [1, 3] {
        let options = SetOptions { nodes, is_secured: true, ..SetOptions::default() };
        let set = ReplicaSet::start_with(options).await.unwrap();
        for node in &set.nodes {
            let list = doc! { "listDatabases": 1 };
            assert!(node.command("admin", list.clone()).await.is_ok());
            let other = node.client_of("root", "other").unwrap();
            assert!(other.database("admin").run_command(list).await.is_err());
        }
    }
}
