//! Which of its hosts a connection is made to.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use futures_util::stream::{FuturesUnordered, StreamExt as _};
use tokio_postgres::config::{Host, LoadBalanceHosts};
use tokio_postgres::tls::MakeTlsConnect;
use tokio_postgres::{Client, Config, Connection, Error, Socket};

use crate::tls::Tls;

type Session = (Client, Connection<Socket, <Tls as MakeTlsConnect<Socket>>::Stream>);

/// Connects to the first host, in their order, that answers as `target_session_attrs` wants. The driver would wait for a
/// host that hangs and never come to the next: here each has a share of `limit`, then the next is tried too.
pub(crate) async fn connect(config: &Config, tls: &Tls, limit: Duration) -> Result<Session, Error> {
    let hosts = each_host(config);
    let share = limit / u32::try_from(hosts.len() + 1).unwrap_or(u32::MAX);
    let mut connecting = FuturesUnordered::new();
    let mut failed = None;
    // Behind the last one, for as long as it takes.
    for host in hosts.into_iter().map(Some).chain([None]) {
        let pause = if host.is_some() { share } else { Duration::MAX };
        connecting.extend(host.map(|host| async move { host.connect(tls.clone()).await }));
        let mut pause = pin!(tokio::time::sleep(pause));
        while let Either::Left((Some(connected), _)) =
            select(connecting.next(), pause.as_mut()).await
        {
            match connected {
                Ok(session) => return Ok(session),
                Err(error) => failed = Some(error),
            }
        }
    }
    match failed {
        Some(error) => Err(error),
        // It has no host, and the driver reports it.
        None => config.connect(tls.clone()).await,
    }
}

/// The same with each of its hosts alone, in the order in which they are tried.
fn each_host(config: &Config) -> Vec<Config> {
    let (names, addresses, ports) =
        (config.get_hosts(), config.get_hostaddrs(), config.get_ports());
    let count = names.len().max(addresses.len());
    let is_whole = |given: usize| given <= 1 || given == count;
    if count <= 1 || ![names.len(), addresses.len(), ports.len()].into_iter().all(is_whole) {
        // The driver states what is wrong, if anything is.
        return vec![config.clone()];
    }
    let mut hosts: Vec<_> = (0..count)
        .map(|at| {
            let mut host = without_hosts(config);
            match names.get(at) {
                Some(Host::Tcp(name)) => drop(host.host(name)),
                #[cfg(unix)]
                Some(Host::Unix(path)) => drop(host.host_path(path)),
                None => {}
            }
            addresses.get(at).map(|address| host.hostaddr(*address));
            ports.get(at).or(ports.first()).map(|port| host.port(*port));
            host
        })
        .collect();
    if config.get_load_balance_hosts() == LoadBalanceHosts::Random {
        fastrand::shuffle(&mut hosts);
    }
    hosts
}

fn without_hosts(config: &Config) -> Config {
    let mut same = Config::new();
    config.get_user().map(|user| same.user(user));
    config.get_password().map(|password| same.password(password));
    config.get_dbname().map(|name| same.dbname(name));
    config.get_options().map(|options| same.options(options));
    config.get_application_name().map(|name| same.application_name(name));
    config.get_connect_timeout().map(|limit| same.connect_timeout(*limit));
    config.get_tcp_user_timeout().map(|limit| same.tcp_user_timeout(*limit));
    config.get_keepalives_interval().map(|interval| same.keepalives_interval(interval));
    config.get_keepalives_retries().map(|retries| same.keepalives_retries(retries));
    same.ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .target_session_attrs(config.get_target_session_attrs())
        .channel_binding(config.get_channel_binding())
        .load_balance_hosts(config.get_load_balance_hosts());
    same
}

#[cfg(test)]
mod tests {
    use std::str::FromStr as _;

    use super::*;

    #[test]
    fn each_host_has_every_other_setting() {
        let options = "user=u password=p dbname=d options=-cx=1 application_name=a sslmode=require \
                       sslnegotiation=direct connect_timeout=3 tcp_user_timeout=4 keepalives=1 keepalives_idle=5 \
                       keepalives_interval=6 keepalives_retries=7 target_session_attrs=read-write \
                       channel_binding=require load_balance_hosts=disable";
        let of = |hosts: &str| Config::from_str(&format!("{options} {hosts}")).unwrap();
        let both = of("host=h1,h2 hostaddr=10.0.0.1,10.0.0.2 port=1,2");
        let each = ["host=h1 hostaddr=10.0.0.1 port=1", "host=h2 hostaddr=10.0.0.2 port=2"];
        assert_eq!(each_host(&both), each.map(of));
        let one_port = of("host=h1,/run port=3");
        assert_eq!(each_host(&one_port), ["host=h1 port=3", "host=/run port=3"].map(of));
    }
}
