use std::fmt::Write as _;
use std::io::BufRead as _;
use std::sync::Arc;
use std::time::Duration;

use leasehold::store::{Clock, SystemClock};
use leasehold::{Candidate, Election, Leadership, Locker};
use leasehold_testkit::faulty::Faulty;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::sync::oneshot;

use super::cut::Cut;
use super::{TTL, open};

/// Set for a process that is a candidate: its number and the URL.
pub(crate) const ROLE: &str = "LEASEHOLD_TEST_CANDIDATE";

/// Precedes a candidate's reports in the output of the test harness.
pub(crate) const MARK: &str = "@ ";

/// How often a leader checks whether it still leads.
const LOOK: Duration = Duration::from_millis(2);

/// If this process was started as a candidate of the test `name`, is one until its orders end.
pub(crate) fn is_asked_for(name: &str) -> bool {
    let Ok(role) = std::env::var(ROLE) else { return false };
    let mut role = role.splitn(3, ' ');
    let (of, number, url) = (role.next().unwrap(), role.next().unwrap(), role.next().unwrap());
    assert_eq!(of, name);
    let (send, orders) = unbounded_channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lock().lines().map_while(Result::ok) {
            send.send(line).unwrap();
        }
        // The supervisor is gone.
        std::process::exit(0);
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let tell = |told: String| println!("{MARK}{told}");
    runtime.block_on(stand(url.to_owned(), number.parse().unwrap(), orders, tell));
    true
}

/// How it takes part: with a campaign each time, or as a spawned candidate.
enum Body {
    Once,
    Ever(Option<(Candidate, oneshot::Sender<()>)>),
}

impl Body {
    async fn elected(&mut self, election: &Election) -> Arc<Leadership> {
        match self {
            Self::Once => Arc::new(election.campaign().await.unwrap()),
            Self::Ever(running) => {
                let (candidate, _) = running.get_or_insert_with(|| {
                    let (stop, stopped) = oneshot::channel();
                    (election.spawn(async { drop(stopped.await) }).unwrap(), stop)
                });
                candidate.elected().await.unwrap()
            }
        }
    }

    /// Ends a leadership without waiting for the result: drops it, or shuts its candidate down.
    async fn let_go(&mut self, leadership: Arc<Leadership>) {
        match self {
            Self::Once => assert_eq!(Arc::strong_count(&leadership), 1),
            Self::Ever(running) => {
                let (candidate, stop) = running.take().unwrap();
                drop(stop);
                candidate.join().await.unwrap();
            }
        }
        drop(leadership);
    }
}

/// Campaigns, leads and reports; ends when its orders do.
///
/// It reports `elected TOKEN LEASE AT ASKED…`, `held TOKEN AT`, `cut TOKEN AT` and `over TOKEN HOW BEGAN AT`.
pub(crate) async fn stand(
    url: String,
    number: usize,
    mut orders: UnboundedReceiver<String>,
    tell: impl Fn(String),
) {
    let clock = SystemClock::new();
    let store = Cut::new(open(&url).await);
    let locks = Locker::builder(Faulty(store.clone())).build();
    let election =
        locks.election("chief").candidate_name(format!("candidate-{number}").as_str()).ttl(TTL);
    let mut body = if number % 2 == 0 { Body::Once } else { Body::Ever(None) };
    loop {
        let leadership = tokio::select! {
            leadership = body.elected(&election) => leadership,
            () = ended(&mut orders) => return,
        };
        let token = leadership.token().unwrap();
        let asked = store.take_asked();
        let from = clock.now().as_nanos();
        if !leadership.is_leader() {
            continue;
        }
        let mut told = format!("elected {token} {} {from}", leadership.guard().lease().id);
        for at in asked {
            write!(told, " {}", at.as_nanos()).unwrap();
        }
        tell(told);
        let mut order = None;
        while order.is_none() {
            let look = clock.now();
            if !leadership.is_leader() {
                break;
            }
            tell(format!("held {token} {}", look.as_nanos()));
            let told = tokio::time::timeout(LOOK, orders.recv()).await;
            match told.map(|order| order.as_deref().map(str::to_owned)) {
                Ok(None) => return,
                Ok(Some(told)) => match told.strip_suffix(&format!(" {token}")) {
                    Some("cut") => {
                        tell(format!("cut {token} {}", clock.now().as_nanos()));
                        store.cut(true);
                    }
                    Some(end @ ("resign" | "drop")) => order = Some(end.to_owned()),
                    // For a leadership that has ended.
                    _ => {}
                },
                Err(_) => {}
            }
        }
        let began = clock.now().as_nanos();
        let how = match order.as_deref() {
            Some("resign") => {
                // It may have been lost meanwhile, or the store may be unreachable.
                leadership.resign().await.map(drop).unwrap_or_default();
                "resigned"
            }
            Some(_) => {
                body.let_go(leadership).await;
                "dropped"
            }
            None => "lost",
        };
        tell(format!("over {token} {how} {began} {}", clock.now().as_nanos()));
        store.cut(false);
        if how != "lost" {
            // As a spawned candidate does by itself.
            tokio::time::sleep(TTL).await;
        }
    }
}

/// Ends when the orders do; a candidate that does not lead gets none.
async fn ended(orders: &mut UnboundedReceiver<String>) {
    while orders.recv().await.is_some() {}
}
