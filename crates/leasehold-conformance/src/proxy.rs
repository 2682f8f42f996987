#![expect(clippy::disallowed_methods, reason = "for tests, whose tasks are their own")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

use crate::Result;

/// A TCP proxy in front of a server, which does to the traffic what networks do. It ends when it is dropped.
#[derive(Debug)]
pub struct Proxy {
    address: SocketAddr,
    shared: Arc<Shared>,
    accepting: JoinHandle<()>,
}

#[derive(Debug)]
struct Shared {
    server: SocketAddr,
    fault: Mutex<Fault>,
    once: Mutex<Option<Fault>>,
    exchanges: AtomicUsize,
    /// Sent when all connections are to be cut.
    cuts: watch::Sender<()>,
}

/// What happens to the traffic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// Everything passes.
    None,
    /// Requests and answers take so much longer, each.
    Delay(Duration),
    /// Whoever sends a request is cut off, and the server never sees it.
    CutBefore,
    /// The server gets the request and answers; then the connection is cut, and nobody sees the answer.
    CutAfter,
    /// Requests reach the server, answers reach nobody, and connections stay open.
    SwallowAnswers,
    /// Nothing passes, and connections stay open.
    BlackHole,
    /// The server is told that the client went away, and the client is not told: what it sends is lost.
    HalfOpen,
    /// Connections are cut as soon as they are made, and those that there are with the next request.
    Refuse,
}

impl Proxy {
    /// Stands before `server`, on a free port of this machine.
    ///
    /// # Errors
    /// If there is no free port.
    pub async fn before(server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            server,
            fault: Mutex::new(Fault::None),
            once: Mutex::default(),
            exchanges: AtomicUsize::new(0),
            cuts: watch::Sender::new(()),
        });
        let accepting = tokio::spawn(accept(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, accepting })
    }

    /// Where clients connect.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// What happens from now on.
    pub fn set(&self, fault: Fault) {
        *lock(&self.shared.fault) = fault;
    }

    /// What happens to the next request, or its answer, and then no more.
    pub fn once(&self, fault: Fault) {
        *lock(&self.shared.once) = Some(fault);
    }

    /// Cuts every connection.
    pub fn cut(&self) {
        self.shared.cuts.send_replace(());
    }

    /// How many times a client has sent something after the server had answered all before.
    pub fn exchanges(&self) -> usize {
        self.shared.exchanges.load(Ordering::SeqCst)
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.accepting.abort();
        self.cut();
    }
}

impl Shared {
    fn fault(&self) -> Fault {
        *lock(&self.fault)
    }

    /// What happens to a request that comes now.
    fn next(&self) -> Fault {
        lock(&self.once).take().unwrap_or_else(|| self.fault())
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn accept(listener: TcpListener, shared: Arc<Shared>) {
    while let Ok((client, _)) = listener.accept().await {
        if shared.fault() != Fault::Refuse {
            tokio::spawn(serve(client, Arc::clone(&shared)));
        }
    }
}

/// Serves one client until either side ends the connection or it is cut.
async fn serve(client: TcpStream, shared: Arc<Shared>) {
    let mut cuts = shared.cuts.subscribe();
    let Ok(server) = TcpStream::connect(shared.server).await else { return };
    if client.set_nodelay(true).and_then(|()| server.set_nodelay(true)).is_err() {
        return;
    }
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // What happens to answers now, and whether the client spoke last.
    let link = Arc::new(Mutex::new((Fault::None, false)));
    tokio::select! {
        () = requests(from_client, to_server, &shared, &link) => {}
        () = answers(from_server, to_client, &shared, &link) => {}
        _ = cuts.changed() => {}
    }
}

type Link = Arc<Mutex<(Fault, bool)>>;

async fn requests(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, link: &Link) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut bytes).await else { return };
        let fault = shared.next();
        {
            let mut link = lock(link);
            if !link.1 {
                shared.exchanges.fetch_add(1, Ordering::SeqCst);
            }
            *link = (fault, true);
        }
        match fault {
            Fault::CutBefore | Fault::Refuse => return,
            Fault::BlackHole => continue,
            Fault::HalfOpen => {
                drop(to);
                // The client may say what it likes.
                while let Ok(1..) = from.read(&mut bytes).await {}
                return;
            }
            Fault::Delay(pause) => tokio::time::sleep(pause).await,
            Fault::None | Fault::CutAfter | Fault::SwallowAnswers => {}
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}

async fn answers(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, shared: &Shared, link: &Link) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let Ok(length @ 1..) = from.read(&mut bytes).await else {
            if lock(link).0 == Fault::HalfOpen {
                std::future::pending::<()>().await;
            }
            return;
        };
        let fault = {
            let mut link = lock(link);
            link.1 = false;
            // What began meanwhile holds for answers too.
            if link.0 == Fault::None { shared.fault() } else { link.0 }
        };
        match fault {
            Fault::CutAfter | Fault::Refuse => return,
            Fault::SwallowAnswers | Fault::BlackHole | Fault::HalfOpen => continue,
            Fault::Delay(pause) => tokio::time::sleep(pause).await,
            Fault::None | Fault::CutBefore => {}
        }
        if to.write_all(&bytes[..length]).await.is_err() {
            return;
        }
    }
}
