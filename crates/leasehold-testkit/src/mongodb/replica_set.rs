//! Real replica sets of MongoDB for tests.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{join_all, try_join_all};
use leasehold_conformance::{Result, ServerClock, WallStep};
use mongodb::bson::oid::ObjectId;
use mongodb::bson::{Document, doc};

use super::flushes::Flushes;
use super::{DATABASE, ROOT, Server, put_key};
use crate::in_time;
use cut_off::CutOff;

mod cut_off;
#[cfg(test)]
mod tests;

/// Servers that keep the same data; one of them is the primary.
///
/// On a [`ServerClock`] the primary is lost only with its process or by [`step_down`](Self::step_down): no time that passes on
/// the clock is too long a silence for the others, and [`step_up`](Self::step_up) makes another one the primary. What waits for
/// several servers here moves their clock, by which they do their work.
pub struct ReplicaSet {
    pub nodes: Vec<Server>,
    is_secured: bool,
    /// Empty without a clock of the tests.
    _flushes: Vec<Flushes>,
    cut_off: Option<CutOff>,
}

/// How a replica set is started.
pub struct SetOptions {
    /// What its servers read instead of the machine's clock.
    pub clock: Option<ServerClock>,
    /// How many servers: one or three.
    pub nodes: usize,
    pub settings: Vec<String>,
    /// Whether it lets in only [`ROOT`] and the users whom a test adds.
    pub is_secured: bool,
    /// Whether the others may lose its first server, see [`ReplicaSet::cut_off`].
    pub can_be_cut_off: bool,
}

/// Its name.
pub const NAME: &str = "rs";

/// How long the others wait for a silent primary before they elect another one.
const SILENCE: Duration = Duration::from_secs(2);

/// So much passes on a clock at a time while something is awaited that a server does by it.
const STEP: Duration = Duration::from_millis(100);

impl Default for SetOptions {
    fn default() -> Self {
        Self {
            clock: None,
            nodes: 3,
            settings: Vec::new(),
            is_secured: false,
            can_be_cut_off: false,
        }
    }
}

impl ReplicaSet {
    /// Starts one of so many servers.
    pub async fn start(nodes: usize) -> Result<Self> {
        Self::start_on(None, nodes).await
    }

    /// Starts one that reads this clock.
    pub async fn start_on(clock: Option<ServerClock>, nodes: usize) -> Result<Self> {
        Self::start_with(SetOptions { clock, nodes, ..SetOptions::default() }).await
    }

    /// Starts one. Its first server is the primary, and all have what it has.
    pub async fn start_with(options: SetOptions) -> Result<Self> {
        let mut settings = vec!["--replSet", NAME, "--oplogSize", "256"];
        settings.extend(options.settings.iter().map(String::as_str));
        let key = if options.is_secured { put_key()?.display().to_string() } else { String::new() };
        if options.is_secured {
            settings.extend(["--keyFile", &key]);
        }
        let (mut nodes, mut cut_off) = (Vec::new(), None);
        if options.can_be_cut_off {
            let (first, of_first) = CutOff::start(&settings).await?;
            nodes.push(first);
            cut_off = Some(of_first);
        }
        let starting = (nodes.len()..options.nodes)
            .map(|_| Server::start_on(options.clock.clone(), &settings));
        nodes.extend(try_join_all(starting).await?);
        let mut this = Self { nodes, is_secured: false, _flushes: Vec::new(), cut_off };
        // One server elects itself at once. Those that join it need no election.
        let first = &this.nodes[0];
        first.command("admin", doc! { "replSetInitiate": this.config(1) }).await?;
        this.until_primary(first).await;
        if options.is_secured {
            this.nodes[0].secure().await?;
            this.is_secured = true;
        }
        if options.nodes > 1 {
            let config = this.config(options.nodes);
            this.nodes[0]
                .command("admin", doc! { "replSetReconfig": config, "force": true })
                .await?;
        }
        this.until_well().await;
        // Only now do the others have all users.
        this.nodes.iter_mut().for_each(|node| node.is_secured = options.is_secured);
        this.until_replicated(&this.nodes[0]).await;
        let clocked = this.nodes.iter().filter(|node| node.clock.is_some());
        let flushes = clocked.map(|node| Flushes::start(node.own_options()));
        this._flushes = flushes.collect::<Result<_>>()?;
        Ok(this)
    }

    /// The configuration with the first servers.
    fn config(&self, nodes: usize) -> Document {
        let members: Vec<_> = (0i32..)
            .zip(&self.addresses()[..nodes])
            .map(|(id, address)| doc! { "_id": id, "host": address })
            .collect();
        let has_clock = self.nodes[0].clock.is_some();
        let silence = if has_clock { i64::from(i32::MAX) } else { millis(SILENCE) };
        let settings = doc! {
            "electionTimeoutMillis": silence,
            "heartbeatIntervalMillis": 100,
            "heartbeatTimeoutSecs": silence / 1_000,
        };
        // While its clock stands still, a server writes its journal at once only for those who ask for it; a linearizable read
        // does not.
        let waits_for_journal = !has_clock;
        doc! {
            "_id": NAME,
            "version": 1,
            "members": members,
            "settings": settings,
            "writeConcernMajorityJournalDefault": waits_for_journal,
        }
    }

    /// Where a store connects to.
    pub fn url(&self) -> String {
        if self.is_secured {
            let [user, password] = ROOT;
            return self.url_of(user, password);
        }
        format!("mongodb://{}/{DATABASE}?replicaSet={NAME}", self.addresses().join(","))
    }

    /// Where a store connects to as this user.
    pub fn url_of(&self, user: &str, password: &str) -> String {
        let addresses = self.addresses().join(",");
        format!(
            "mongodb://{user}:{password}@{addresses}/{DATABASE}?replicaSet={NAME}&authSource=admin"
        )
    }

    /// Where its servers reach each other.
    fn addresses(&self) -> Vec<String> {
        let mut addresses: Vec<_> = self.nodes.iter().map(Server::address).collect();
        if let Some(cut_off) = &self.cut_off {
            addresses[0] = cut_off.address();
        }
        addresses
    }

    pub fn servers(&self) -> Vec<&Server> {
        self.nodes.iter().collect()
    }

    /// Waits until it has a primary, which is the one that was elected last.
    pub async fn primary(&self) -> &Server {
        self.until_primary_is(|_| true).await
    }

    /// A primary that was paused may not know yet that there is another.
    async fn find_primary(&self) -> Option<&Server> {
        let elections = join_all(self.nodes.iter().map(election)).await;
        let elected = elections.into_iter().zip(&self.nodes);
        elected
            .filter_map(|(at, node)| Some((at?, node)))
            .max_by_key(|(at, _)| *at)
            .map(|(_, node)| node)
    }

    /// Makes another server the primary, which is returned. A primary without others becomes it again after a second.
    pub async fn step_down(&self) -> Result<&Server> {
        let old = self.primary().await;
        let alone = self.nodes.len() == 1;
        let command = if alone {
            doc! { "replSetStepDown": 1, "secondaryCatchUpPeriodSecs": 0, "force": true }
        } else {
            doc! { "replSetStepDown": 10, "secondaryCatchUpPeriodSecs": 5 }
        };
        old.command("admin", command).await?;
        let new = self.until_primary_is(|new| alone || new.port() != old.port()).await;
        self.until_followed(new).await;
        Ok(new)
    }

    /// Cuts the first server off, which is the primary and remains it for itself, until [`rejoin`](Self::rejoin). Returns the one
    /// that the others elect. Both can be reached directly.
    pub async fn cut_off(&self) -> Result<&Server> {
        let old = self.nodes[0].port();
        self.cut_off.as_ref().unwrap().begin()?;
        Ok(self.until_primary_is(|new| new.port() != old).await)
    }

    /// Lets time pass for the server that is cut off, less than the others wait for a silent primary. It then asks for the others:
    /// what they answer ends its belief that it is the primary.
    pub fn advance_cut_off(&self, by: Duration) -> Result {
        self.cut_off.as_ref().unwrap().advance(by)
    }

    /// Lets the others reach the server again that was cut off, and waits until it follows them.
    pub async fn rejoin(&self) -> Result<()> {
        self.cut_off.as_ref().unwrap().end()?;
        self.until_well().await;
        Ok(())
    }

    async fn until_primary_is(&self, meant: impl Fn(&Server) -> bool) -> &Server {
        let found = async {
            loop {
                if let Some(new) = self.find_primary().await.filter(|new| meant(new)) {
                    return new;
                }
                self.pause().await;
            }
        };
        in_time(found).await
    }

    /// Makes this server the primary.
    pub async fn step_up(&self, at: usize) {
        let node = &self.nodes[at];
        let stand = async {
            while node.command("admin", doc! { "replSetStepUp": 1 }).await.is_err() {
                self.pause().await;
            }
        };
        in_time(stand).await;
        self.until_primary(node).await;
        self.until_followed(node).await;
    }

    /// Starts a server again in its directory, and waits until it is a part of the set. On a clock it is the primary again if
    /// it was.
    pub async fn restart(&self, at: usize) -> Result<()> {
        self.nodes[at].restart().await?;
        let is_leaderless = self.has_shared_clock() && self.find_primary().await.is_none();
        if is_leaderless {
            self.step_up(at).await;
        }
        self.until_well().await;
        Ok(())
    }

    /// Waits until one running server is the primary and all others follow.
    pub async fn until_well(&self) {
        let well = async {
            while !self.is_well().await {
                self.pause().await;
            }
        };
        in_time(well).await;
    }

    async fn is_well(&self) -> bool {
        let states = join_all(self.nodes.iter().map(state)).await;
        let count = |name| {
            let states = states.iter().flatten();
            states.filter(|state| state.get_bool(name).unwrap_or(false)).count()
        };
        count("isWritablePrimary") == 1 && count("secondary") == self.running() - 1
    }

    async fn until_primary(&self, node: &Server) {
        let is_primary = async {
            while election(node).await.is_none() {
                self.pause().await;
            }
        };
        in_time(is_primary).await;
    }

    /// Waits until the others have found their new primary, for which they need a clock that moves.
    async fn until_followed(&self, primary: &Server) {
        if self.has_shared_clock() {
            self.until_replicated(primary).await;
        }
    }

    /// Waits until all running servers have what the primary has.
    async fn until_replicated(&self, primary: &Server) {
        let all = i32::try_from(self.running()).expect("they are few");
        let concern = doc! { "w": all };
        let mut noted = pin!(in_time(primary.command("admin", note(concern))));
        loop {
            match tokio::time::timeout(STEP, noted.as_mut()).await {
                Ok(noted) => return drop(noted.unwrap()),
                Err(_) => self.tick(),
            }
        }
    }

    fn running(&self) -> usize {
        self.nodes.iter().filter(|node| node.lock().is_some()).count()
    }

    /// Between two looks at the servers.
    async fn pause(&self) {
        self.tick();
        tokio::time::sleep(Duration::from_millis(10)).await;
    }

    fn tick(&self) {
        if self.has_shared_clock() {
            self.advance(STEP).unwrap();
        }
    }

    /// A server alone waits for nobody on its clock.
    fn has_shared_clock(&self) -> bool {
        self.nodes[0].clock.is_some() && self.nodes.len() > 1
    }

    /// Lets time pass on its clock.
    pub fn advance(&self, by: Duration) -> Result {
        Server::advance(&self.servers(), by)
    }

    /// Steps its clock.
    pub async fn step_wall(&self, step: WallStep) -> Result {
        // A primary that has written something looks again and again, a millisecond later by its clock, whether somebody waits to
        // see it; after a step back that is never. With this write it has shown everything and looks no more.
        self.primary().await.command("admin", note(doc! { "w": 1, "j": true })).await?;
        Server::step_wall(&self.servers(), step)
    }
}

/// What a server says about itself, unless it was killed or is paused.
async fn state(node: &Server) -> Option<Document> {
    let soon = Duration::from_millis(300);
    tokio::time::timeout(soon, node.hello()).await.ok()?.ok()
}

/// The election that made this server the primary, if it is that.
async fn election(node: &Server) -> Option<ObjectId> {
    let state = state(node).await?;
    state.get_bool("isWritablePrimary").ok()?.then(|| state.get_object_id("electionId").ok())?
}

/// A write of no data.
fn note(concern: Document) -> Document {
    doc! { "appendOplogNote": 1, "data": { "this": "is written" }, "writeConcern": concern }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).expect("it is short")
}
