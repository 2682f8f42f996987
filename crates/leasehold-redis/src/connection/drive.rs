//! Opens a connection, and drives it so that requests of several tasks travel together.

use std::future::{Future, poll_fn};
use std::io;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::Poll;

use futures_util::future::select_ok;
use redis::aio::{AsyncStream, MultiplexedConnection};
use redis::io::tcp::TcpSettings;
use redis::io::tcp::socket2::SockRef;
use redis::{AsyncConnectionConfig, Client, ConnectionAddr, ErrorKind, RedisResult};
use tokio::net::{TcpStream, lookup_host};
use tokio::runtime::Handle;
use tokio::task::AbortHandle;

/// With 16 requests under way a turn costs as much as it saves.
const MANY: usize = 16;

/// The task that drives a connection, with which it ends.
pub(crate) struct Driver {
    /// None where the driver's own task does it.
    task: Option<AbortHandle>,
    under_way: Arc<AtomicUsize>,
}

/// A request under way.
pub(crate) struct UnderWay<'a>(&'a AtomicUsize);

impl Driver {
    pub(crate) fn request(&self) -> UnderWay<'_> {
        self.under_way.fetch_add(1, Ordering::Relaxed);
        UnderWay(&self.under_way)
    }

    /// Drives a connection on this stream.
    async fn of_stream(
        stream: impl AsyncStream + Unpin + Send + 'static,
        client: &Client,
        config: &AsyncConnectionConfig,
    ) -> RedisResult<(MultiplexedConnection, Self)> {
        let settings = client.get_connection_info().redis_settings();
        let (connection, driver) =
            MultiplexedConnection::new_with_config(settings, stream, config.clone()).await?;
        let under_way = Arc::default();
        let driven = gathering(driver, Arc::clone(&under_way));
        let task = Some(Handle::current().spawn(driven).abort_handle());
        Ok((connection, Self { task, under_way }))
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        if let Some(task) = &self.task {
            task.abort();
        }
    }
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Opens a connection of a client. The driver opens and drives those with TLS.
pub(super) async fn open(
    client: &Client,
    config: &AsyncConnectionConfig,
) -> RedisResult<(MultiplexedConnection, Driver)> {
    let info = client.get_connection_info();
    match info.addr() {
        ConnectionAddr::Tcp(host, port) => {
            let stream = connect(host, *port, info.tcp_settings()).await?;
            Driver::of_stream(stream, client, config).await
        }
        #[cfg(unix)]
        ConnectionAddr::Unix(path) => {
            let stream = tokio::net::UnixStream::connect(path).await?;
            Driver::of_stream(stream, client, config).await
        }
        _ => {
            let connection = client.get_multiplexed_async_connection_with_config(config).await?;
            Ok((connection, Driver { task: None, under_way: Arc::default() }))
        }
    }
}

/// Connects to the first address of the host that accepts.
async fn connect(host: &str, port: u16, settings: &TcpSettings) -> RedisResult<TcpStream> {
    let addresses: Vec<_> = lookup_host((host, port)).await?.collect();
    if addresses.is_empty() {
        return Err((ErrorKind::InvalidClientConfig, "the host has no address").into());
    }
    let connecting = addresses.into_iter().map(|address| Box::pin(connect_to(address, settings)));
    Ok(select_ok(connecting).await?.0)
}

async fn connect_to(address: SocketAddr, settings: &TcpSettings) -> io::Result<TcpStream> {
    let stream = TcpStream::connect(address).await?;
    let socket = SockRef::from(&stream);
    socket.set_tcp_nodelay(settings.nodelay())?;
    if let Some(keepalive) = settings.keepalive() {
        socket.set_tcp_keepalive(keepalive)?;
    }
    #[cfg(any(target_os = "android", target_os = "fuchsia", target_os = "linux"))]
    socket.set_tcp_user_timeout(settings.user_timeout())?;
    Ok(stream)
}

/// Polls the driver one turn after it was woken while [`MANY`] requests are under way. What the tasks that are ready send meanwhile
/// goes out in one write.
async fn gathering(driver: impl Future<Output = ()>, under_way: Arc<AtomicUsize>) {
    let mut driver = pin!(driver);
    let mut waits = false;
    poll_fn(|cx| {
        waits = !waits && under_way.load(Ordering::Relaxed) >= MANY;
        if waits {
            cx.waker().wake_by_ref();
            return Poll::Pending;
        }
        driver.as_mut().poll(cx)
    })
    .await;
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Wake, Waker};

    use futures_util::task::noop_waker;

    use super::*;

    #[test]
    fn the_driver_waits_a_turn_while_many_requests_are_under_way() {
        let driver = Driver { task: None, under_way: Arc::default() };
        let polls = AtomicUsize::new(0);
        let counting = poll_fn(|_| {
            polls.fetch_add(1, Ordering::Relaxed);
            Poll::<()>::Pending
        });
        let mut driven = pin!(gathering(counting, Arc::clone(&driver.under_way)));
        let mut polls_after_a_turn = || {
            assert!(driven.as_mut().poll(&mut Context::from_waker(&noop_waker())).is_pending());
            polls.load(Ordering::Relaxed)
        };
        let few: Vec<_> = (1..MANY).map(|_| driver.request()).collect();
        assert_eq!([(); 2].map(|()| polls_after_a_turn()), [1, 2]);
        let one_more = driver.request();
        assert_eq!([(); 4].map(|()| polls_after_a_turn()), [2, 3, 3, 4]);
        drop(one_more);
        assert_eq!([(); 2].map(|()| polls_after_a_turn()), [5, 6]);
        drop(few);
        assert_eq!(driver.under_way.load(Ordering::Relaxed), 0);
    }

    #[derive(Default)]
    struct Woken(AtomicUsize);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn the_driver_wakes_itself_for_the_next_turn() {
        let woken = Arc::<Woken>::default();
        let waker = Waker::from(Arc::clone(&woken));
        let mut driven = pin!(gathering(async {}, Arc::new(AtomicUsize::new(MANY))));
        let mut turn = || driven.as_mut().poll(&mut Context::from_waker(&waker));
        assert!(turn().is_pending());
        assert_eq!(woken.0.load(Ordering::Relaxed), 1);
        assert!(turn().is_ready());
    }

    #[cfg(target_os = "linux")]
    #[tokio::test]
    async fn a_connection_has_the_settings_of_its_client() {
        use std::time::Duration;

        use redis::io::tcp::socket2::TcpKeepalive;
        use tokio::net::TcpListener;

        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let limit = Duration::from_secs(7);
        let settings = TcpSettings::default()
            .set_nodelay(true)
            .set_keepalive(TcpKeepalive::new().with_time(limit))
            .set_user_timeout(limit);
        let stream = connect("localhost", port, &settings).await.unwrap();
        let socket = SockRef::from(&stream);
        assert!(socket.tcp_nodelay().unwrap() && socket.keepalive().unwrap());
        assert_eq!(socket.tcp_user_timeout().unwrap(), Some(limit));
        let plain = connect("localhost", port, &TcpSettings::default()).await.unwrap();
        assert!(!SockRef::from(&plain).tcp_nodelay().unwrap());
    }
}
