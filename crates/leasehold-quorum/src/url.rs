use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use leasehold_core::tally::{lasting_failure, majority};
use leasehold_core::term::Drift;
use leasehold_core::{AnyStore, Capabilities, Clock, Effect, Error, NodeReport, Result, Store};
use leasehold_driver::StoreUrl;

use crate::inner::NAME;
use crate::late::{Inner, Late, OPEN_LIMIT, OpenNode, State, open_all, open_ones};
use crate::node::Servers;
use crate::round::failure;
use crate::{QuorumConfig, QuorumStore};

/// A parsed quorum URL: `quorum:?node=URL&node=URL…`, each node's URL percent-encoded.
///
/// Options: `max_ttl`, `node_timeout`, `release_timeout` (durations such as `60s` or `50ms`), `fenced` and
/// `release_waits_for_all` (`1` or `0`), and what the holder subtracts from its terms: `drift` (a fraction such as `0.02`)
/// and `drift_margin` (a duration).
///
/// ```
/// use leasehold_quorum::QuorumUrl;
///
/// let url = QuorumUrl::parse("quorum:?node=sqlite:a.db&node=sqlite:b.db&node=sqlite:c.db&fenced=1")?;
/// assert_eq!(url.nodes(), ["sqlite:a.db", "sqlite:b.db", "sqlite:c.db"]);
/// assert!(QuorumUrl::parse("quorum:?node=sqlite:a.db&node=sqlite:a.db").is_err());
/// # Ok::<(), leasehold_core::Error>(())
/// ```
#[derive(Clone)]
pub struct QuorumUrl {
    nodes: Vec<String>,
    /// For each node a name, in which no secret remains.
    names: Vec<String>,
    config: QuorumConfig,
    drift: Option<Drift>,
}

impl QuorumUrl {
    /// Parses `url`.
    ///
    /// # Errors
    /// `InvalidInput` for another scheme, no nodes, a node twice, a quorum as a node, an unknown option, or a
    /// value that is wrong or out of range.
    pub fn parse(url: &str) -> Result<Self> {
        let mut url = StoreUrl::parse(url)?;
        if url.scheme() != NAME {
            return Err(Error::invalid_input(format!(
                "the store URL begins with {}:, but the URL of a quorum begins with {NAME}:",
                url.scheme()
            )));
        }
        if url.has_server() || !url.path().is_empty() {
            return Err(Error::invalid_input(
                "the quorum URL has text between quorum: and the ?; write quorum:?node=URL&node=URL&node=URL, with \
                 each URL percent-encoded",
            ));
        }
        let nodes: Vec<_> = std::iter::from_fn(|| url.take("node")).collect();
        let mut config = QuorumConfig::new();
        if let Some(max_ttl) = url.take_duration("max_ttl")? {
            config = config.max_ttl(max_ttl);
        }
        if let Some(timeout) = url.take_duration("node_timeout")? {
            config = config.node_timeout(timeout);
        }
        if let Some(timeout) = url.take_duration("release_timeout")? {
            config = config.release_timeout(timeout);
        }
        config = config.fenced(url.take_flag("fenced")?);
        config = config.release_waits_for_all(url.take_flag("release_waits_for_all")?);
        let fraction = "a fraction from 0 to 0.5, for example 0.02";
        let permille = url.take_parsed("drift", fraction, parse_drift)?;
        let margin = url.take_duration("drift_margin")?;
        // Checked first: what is left may be the rest of a node's password.
        url.finish(&[
            "node",
            "max_ttl",
            "node_timeout",
            "release_timeout",
            "fenced",
            "release_waits_for_all",
            "drift",
            "drift_margin",
        ])?;
        let names = check_nodes(&nodes)?;
        config.limits.validate()?;
        let max_ttl = config.limits.max_ttl;
        if let Some(margin) = margin.filter(|margin| *margin >= max_ttl) {
            return Err(Error::invalid_input(format!(
                "the option drift_margin of the quorum URL is {margin:?}; it must be less than the longest term, max_ttl, \
                 which is {max_ttl:?}"
            )));
        }
        let drift = (permille.is_some() || margin.is_some()).then(|| {
            Drift::new(permille.unwrap_or(Drift::PERMILLE), margin.unwrap_or(Drift::MARGIN))
        });
        Ok(Self { nodes, names, config, drift })
    }

    /// The URLs of the nodes.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The longest term.
    pub fn max_ttl(&self) -> Duration {
        self.config.limits.max_ttl
    }

    /// What the holder must subtract from its terms, if the URL sets it.
    pub fn drift(&self) -> Option<Drift> {
        self.drift
    }

    /// Sets the clock of the time limits, for tests that do not sleep.
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.config = self.config.clock(clock);
        self
    }

    /// Opens all nodes at once and creates the store. `read` parses a node's URL.
    ///
    /// A node that cannot be opened counts as down: later requests try again. A node that is not open 500 ms (or
    /// `node_timeout`) after a majority is left for later too.
    ///
    /// # Errors
    /// `InvalidInput`, with the node's name, if `read` fails. If no majority is open within 10 s: the kind of
    /// failure that keeps a majority from opening for good, else `Unavailable`, with each node's error. Else as
    /// [`QuorumConfig::build`].
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn open(self, read: impl Fn(&str) -> Result<OpenNode>) -> Result<QuorumStore> {
        let Self { nodes, names, mut config, .. } = self;
        let read = |(url, name): (&String, &String)| {
            read(url).map_err(|error| {
                Error::invalid_input(format!("the node {name:?} of the quorum URL: {error}"))
                    .with_source(error)
            })
        };
        let opens = nodes.iter().zip(&names).map(read).collect::<Result<Vec<_>>>()?;
        let opened = open_all(&opens, &*config.clock, config.limits.of_term(None)).await;
        let (count, like) = (open_ones(&opened).count(), alike(open_ones(&opened)));
        let Some(like) = like.filter(|_| count >= majority(nodes.len())) else {
            let kind = lasting_failure(&opened);
            let reports = names.into_iter().zip(opened).map(|(name, answer)| match answer {
                Some(Ok(_)) => NodeReport::new(name),
                Some(Err(error)) => NodeReport::failed(name, error),
                None => {
                    let message = format!("it was not open within {OPEN_LIMIT:?}");
                    NodeReport::failed(name, Error::unavailable(Effect::NotApplied, message))
                }
            });
            return Err(failure("connect", kind, Effect::NotApplied, reports.collect()));
        };
        let servers = Arc::<Servers>::default();
        for ((name, open), opened) in names.into_iter().zip(opens).zip(opened) {
            config = match opened {
                Some(Ok(store)) => config.node(name, store),
                _ => {
                    let late = Late::new(Inner {
                        open,
                        name: name.clone(),
                        like,
                        limits: config.limits,
                        fenced: config.fenced,
                        clock: Arc::clone(&config.clock),
                        servers: Arc::clone(&servers),
                        state: State::default(),
                    });
                    config.node(name, late)
                }
            };
        }
        for node in &mut config.nodes {
            node.servers = Arc::clone(&servers);
        }
        config.build()
    }
}

/// The capabilities of the first of these nodes, with the largest margin of all.
fn alike<'a>(nodes: impl Iterator<Item = &'a AnyStore>) -> Option<Capabilities> {
    nodes.map(Store::capabilities).reduce(|mut like, other| {
        like.margin = like.margin.max(other.margin);
        like
    })
}

impl fmt::Debug for QuorumUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(&self.names).finish()
    }
}

/// A name for each node: its URL without login and options, with its number if the name is not unique.
fn check_nodes(nodes: &[String]) -> Result<Vec<String>> {
    if nodes.is_empty() {
        return Err(Error::invalid_input(
            "the quorum URL has no node; write quorum:?node=URL&node=URL&node=URL, with each URL percent-encoded",
        ));
    }
    let mut bare = Vec::new();
    for (at, node) in nodes.iter().enumerate() {
        let url = StoreUrl::parse(node).map_err(|error| {
            Error::invalid_input(format!("node {} of the quorum URL: {error}", at + 1))
                .with_source(error)
        })?;
        if nodes[..at].contains(node) {
            return Err(Error::invalid_input(format!(
                "the quorum URL has the node \"{url}\" twice; give each node once"
            )));
        }
        if url.scheme() == NAME {
            return Err(Error::invalid_input(
                "a node of the quorum URL is itself a quorum; give the stores themselves",
            ));
        }
        bare.push(url.to_string());
    }
    let is_unique = |name: &String| bare.iter().filter(|other| *other == name).count() == 1;
    let number = |(at, name): (usize, &String)| {
        if is_unique(name) { name.clone() } else { format!("{name} (node {})", at + 1) }
    };
    Ok(bare.iter().enumerate().map(number).collect())
}

/// A fraction such as 0.02, in thousandths, rounded up.
fn parse_drift(text: &str) -> Option<u32> {
    let drift = text.parse::<f64>().ok().filter(|drift| (0.0..=0.5).contains(drift))?;
    (0..=500).find(|permille| f64::from(*permille) >= drift * 1e3 - 1e-9)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(url: &str) -> String {
        QuorumUrl::parse(url).unwrap_err().to_string()
    }

    #[test]
    fn every_part_of_a_url_is_read() {
        let url = QuorumUrl::parse(
            "quorum:?node=sqlite%3Aa.db%3Ftimeout%3D1s&max_ttl=30s&node=local:&drift=0.02&node_timeout=50ms",
        )
        .unwrap();
        assert_eq!(url.nodes(), ["sqlite:a.db?timeout=1s", "local:"]);
        assert_eq!(url.drift(), Some(Drift::new(20, Duration::from_millis(2))));
        assert_eq!(url.config.limits.max_ttl, Duration::from_secs(30));
        assert_eq!(url.config.limits.node, Some(Duration::from_millis(50)));
        assert!(!url.config.fenced);
        let url = QuorumUrl::parse(
            "quorum:?node=local:&release_timeout=7s&release_waits_for_all=1&drift_margin=50ms",
        )
        .unwrap();
        assert_eq!(url.config.limits.release, Duration::from_secs(7));
        assert!(url.config.limits.release_waits);
        assert_eq!(url.drift(), Some(Drift::new(10, Duration::from_millis(50))));
        assert_eq!(QuorumUrl::parse("quorum:?node=local:").unwrap().drift(), None);
    }

    #[test]
    fn drift_is_a_fraction_rounded_up_to_thousandths() {
        for (text, permille) in [("0", 0), ("0.01", 10), ("0.0101", 11), ("0.07", 70), ("0.5", 500)]
        {
            assert_eq!(parse_drift(text).unwrap(), permille, "{text}");
        }
        for bad in ["", "1%", "-0.1", "0.51", "NaN", "inf"] {
            assert_eq!(parse_drift(bad), None, "{bad}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (url, fragment) in [
            ("quorum:", "has no node"),
            ("quorum:?max_ttl=5s", "has no node"),
            ("quorum:a?node=local:", "has text between"),
            ("quorum:?node=local:&node=local:", "twice"),
            ("quorum:?node=quorum%3A%3Fnode%3Dlocal%3A", "itself a quorum"),
            ("quorum:?node=local:&fenced=yes", "0 or 1"),
            ("quorum:?node=local:&ttl=1s", "\"ttl\""),
            ("quorum:?node=local:&max_ttl=1", "max_ttl"),
            ("quorum:?node=local:&max_ttl=9ms", "max_ttl is 9ms"),
            ("quorum:?node=local:&node_timeout=9ms", "node_timeout is 9ms"),
            ("quorum:?node=local:&release_timeout=9ms", "release_timeout is 9ms"),
            ("quorum:?node=local:&release_waits_for_all=yes", "0 or 1"),
            ("quorum:?node=local:&drift=51%25", "a fraction from 0 to 0.5, for example 0.02"),
            ("quorum:?node=local:&drift_margin=60s", "max_ttl, which is 60s"),
            ("quorum:?node=local:&node=%FF", "not UTF-8"),
            ("sqlite:?node=local:", "begins with sqlite:"),
        ] {
            assert!(error(url).contains(fragment), "{url}: {}", error(url));
        }
    }

    #[test]
    fn no_secret_is_shown() {
        let split = error("quorum:?node=redis://u:hunter&two@h/0&node=redis://u:hunter&two@h/0");
        assert!(split.contains("unknown option;") && !split.contains("hunter"), "{split}");
        assert!(!split.contains("two@"), "{split}");
        let node = "redis://user:hunter2@host:6379/0?password=hunter3";
        let encoded: String = node.bytes().map(|byte| format!("%{byte:02X}")).collect();
        let twice = error(&format!("quorum:?node={encoded}&node={encoded}"));
        assert!(twice.contains("redis://host:6379/0") && !twice.contains("hunter"), "{twice}");
        let url = QuorumUrl::parse(&format!("quorum:?node={encoded}")).unwrap();
        assert!(!format!("{url:?}").contains("hunter"), "{url:?}");
        let url = QuorumUrl::parse("quorum:?node=sqlite:a?prefix=x&node=sqlite:a?prefix=y");
        assert_eq!(url.unwrap().names, ["sqlite:a (node 1)", "sqlite:a (node 2)"]);
    }
}
