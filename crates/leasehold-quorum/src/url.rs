use std::collections::HashSet;
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
        if !url.rest().is_empty() {
            return Err(Error::invalid_input(
                "the quorum URL has text between quorum: and the ?; write quorum:?node=URL&node=URL&node=URL, with \
                 each URL percent-encoded",
            ));
        }
        let nodes = url.take_all("node");
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
        let permille = url.take("drift").map(|drift| parse_drift(&drift)).transpose()?;
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
        check_nodes(&nodes)?;
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
        Ok(Self { nodes, config, drift })
    }

    /// The URLs of the nodes.
    pub fn nodes(&self) -> &[String] {
        &self.nodes
    }

    /// The longest term.
    pub fn max_ttl(&self) -> Duration {
        self.config.limits.max_ttl
    }

    /// What the holder must subtract from its terms, if the URL says so.
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
    /// [`QuorumConfig::open`].
    ///
    /// # Cancel safety
    /// May be dropped.
    pub async fn open(self, read: impl Fn(&str) -> Result<OpenNode>) -> Result<QuorumStore> {
        let Self { nodes, mut config, .. } = self;
        let names = names(&nodes);
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
            return Err(failure("open", kind, Effect::NotApplied, reports.collect()));
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
        config.open()
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
        f.debug_list().entries(names(&self.nodes)).finish()
    }
}

fn check_nodes(nodes: &[String]) -> Result<()> {
    if nodes.is_empty() {
        return Err(Error::invalid_input(
            "the quorum URL has no node; write quorum:?node=URL&node=URL&node=URL, with each URL percent-encoded",
        ));
    }
    let mut seen = HashSet::new();
    if let Some(at) = nodes.iter().position(|node| !seen.insert(node)) {
        return Err(Error::invalid_input(format!(
            "the quorum URL has the node {:?} twice; give each node once",
            without_secrets(&nodes[at])
        )));
    }
    if nodes.iter().any(|node| StoreUrl::parse(node).is_ok_and(|url| url.scheme() == NAME)) {
        return Err(Error::invalid_input(
            "a node of the quorum URL is itself a quorum; give the stores themselves",
        ));
    }
    Ok(())
}

/// A fraction such as 0.02, in thousandths, rounded up.
fn parse_drift(text: &str) -> Result<u32> {
    let drift = text.parse::<f64>().ok().filter(|drift| (0.0..=0.5).contains(drift));
    let permille = drift.and_then(|drift| {
        (0..=500_u32).find(|permille| f64::from(*permille) >= drift * 1e3 - 1e-9)
    });
    permille.ok_or_else(|| {
        Error::invalid_input(format!(
            "the option drift of the quorum URL is {text:?}; it must be a fraction from 0 to 0.5, for \
             example 0.02"
        ))
    })
}

/// A name for each node: its URL without anything that may be secret, with its number if the name is not unique.
fn names(nodes: &[String]) -> Vec<String> {
    let bare: Vec<_> = nodes.iter().map(|node| without_secrets(node)).collect();
    let is_unique = |name: &String| bare.iter().filter(|other| *other == name).count() == 1;
    let number = |(at, name): (usize, &String)| {
        if is_unique(name) { name.clone() } else { format!("{name} (node {})", at + 1) }
    };
    bare.iter().enumerate().map(number).collect()
}

/// A URL without options and user. It hides whatever may be part of a password with a `/`, `?` or `#` in it, and
/// any text that is not a URL.
fn without_secrets(url: &str) -> String {
    let Some((scheme, rest)) = url.split_once(':').filter(|_| StoreUrl::parse(url).is_ok()) else {
        return "text that is not a URL".to_owned();
    };
    let Some(rest) = rest.strip_prefix("//") else {
        return format!("{scheme}:{}", bare(rest));
    };
    let (server, path) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
    let host = server.rsplit_once('@').map(|(_, host)| host);
    match host.or_else(|| (server.is_empty() || !path.contains('@')).then_some(server)) {
        Some(host) if is_host(host) => format!("{scheme}://{host}{}", bare(path)),
        _ => format!("{scheme}://…"),
    }
}

/// The part before options and fragment.
fn bare(text: &str) -> &str {
    text.split(['?', '#']).next().unwrap_or_default()
}

/// Whether the part after a colon is a port and not a password.
fn is_host(text: &str) -> bool {
    let port = match text.rsplit_once(']') {
        Some((_, after)) => after.strip_prefix(':'),
        None => text.split_once(':').map(|(_, port)| port),
    };
    port.is_none_or(|port| port.bytes().all(|b| b.is_ascii_digit()))
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
            assert!(parse_drift(bad).unwrap_err().to_string().contains("0.02"), "{bad}");
        }
    }

    #[test]
    fn mistakes_are_named() {
        for (url, says) in [
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
            ("quorum:?node=local:&drift_margin=60s", "max_ttl, which is 60s"),
            ("quorum:?node=local:&node=%FF", "not UTF-8"),
            ("sqlite:?node=local:", "begins with sqlite:"),
        ] {
            assert!(error(url).contains(says), "{url}: {}", error(url));
        }
    }

    #[test]
    fn a_name_is_the_url_without_its_user() {
        for (url, name) in [
            ("redis://u:hunter2@host:6379/0?a=b", "redis://host:6379/0"),
            ("redis://u:hun@ter2@host", "redis://host"),
            ("redis://host/a@b?password=hunter2@x", "redis://…"),
            ("redis://u:hun/ter2@host", "redis://…"),
            ("redis://u:hun?ter2@host", "redis://…"),
            ("redis://u:1#ter2@host", "redis://…"),
            ("redis://u:hunter", "redis://…"),
            ("redis://u:hunter2@[::1]:6379/0#x", "redis://[::1]:6379/0"),
            ("redis://[::1]", "redis://[::1]"),
            ("sqlite:/srv/a@b/x.db?timeout=1s", "sqlite:/srv/a@b/x.db"),
            ("sqlite:///srv/a:b/x.db", "sqlite:///srv/a:b/x.db"),
            ("hunter2", "text that is not a URL"),
            ("u hunter2@host:1", "text that is not a URL"),
        ] {
            assert_eq!(without_secrets(url), name, "{url}");
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
        let nodes = ["sqlite:a?prefix=x", "sqlite:a?prefix=y"].map(str::to_owned);
        assert_eq!(names(&nodes), ["sqlite:a (node 1)", "sqlite:a (node 2)"]);
    }
}
