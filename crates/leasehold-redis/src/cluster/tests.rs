use std::time::Duration;

use leasehold_core::Key;

use super::*;
use crate::credentials::Credentials;
use crate::durability::Statement;

#[test]
fn a_listener_at_a_dropped_node_is_moved_and_may_leave() {
    let options = ConnectionOptions {
        client_name: None,
        credentials: Credentials::default(),
        timeout: Duration::from_secs(1),
        statement: Statement {
            durable: false,
            quarantine: Duration::ZERO,
            max_ttl: Duration::from_secs(1),
        },
        replicas: 0,
        allow_eviction: false,
        in_cluster: true,
        is_checked: false,
    };
    let cluster = Cluster::new(vec![Client::open("redis://h:1").unwrap()], options);
    let owned_by = |owner| {
        let mut topology = Topology::default();
        topology.set_owner(slot("channel"), owner);
        topology
    };
    let inner = &cluster.0;
    inner.take(owned_by("h:1"));
    let node = inner.owner(slot("channel")).unwrap().unwrap();
    // Between finding the node and subscribing there.
    inner.take(owned_by("h:2"));
    let key = Key::new("unread").unwrap();
    let (mut listeners, _wakeups) = Listener::subscribe(&[key], |_| ());
    let listener = listeners.remove(0);
    let subscription = listener.subscription();
    inner.add_listener(node, "channel", listener);
    inner.move_listeners();
    let names_at =
        |address: &str| inner.node(&address.into()).unwrap().subscriber.listeners().names();
    assert_eq!((names_at("h:1"), names_at("h:2")), (vec![], vec!["channel".to_owned()]));
    cluster.leave(subscription, &["channel".to_owned()]);
    assert!(names_at("h:2").is_empty());
}
