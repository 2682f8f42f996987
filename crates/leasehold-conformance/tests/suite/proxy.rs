//! The proxy, before a server that answers each byte with the next one.
#![expect(clippy::disallowed_methods, reason = "the server's tasks are its own")]

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use leasehold_conformance::{Fault, Proxy};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;

/// The server, and the bytes that it received.
async fn server() -> (SocketAddr, mpsc::UnboundedReceiver<u8>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    let (sent, seen) = mpsc::unbounded_channel();
    tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let sent = sent.clone();
            tokio::spawn(async move {
                while let Ok(byte) = client.read_u8().await {
                    sent.send(byte).unwrap();
                    client.write_u8(byte + 1).await.unwrap();
                }
            });
        }
    });
    (address, seen)
}

const SOON: Duration = Duration::from_millis(100);

#[tokio::test]
async fn each_fault_does_what_its_name_states() {
    let (address, mut seen) = server().await;
    let proxy = Proxy::before(address).await.unwrap();
    let connect = async || TcpStream::connect(proxy.address()).await.unwrap();

    let mut client = connect().await;
    client.write_u8(1).await.unwrap();
    assert_eq!((client.read_u8().await.unwrap(), seen.recv().await), (2, Some(1)));
    client.write_u8(3).await.unwrap();
    assert_eq!((client.read_u8().await.unwrap(), seen.recv().await), (4, Some(3)));
    assert_eq!(proxy.exchanges(), 2);

    proxy.once(Fault::CutBefore);
    client.write_u8(5).await.unwrap();
    assert!(client.read_u8().await.is_err());
    assert!(seen.try_recv().is_err());

    let mut client = connect().await;
    proxy.once(Fault::CutAfter);
    client.write_u8(7).await.unwrap();
    assert!(client.read_u8().await.is_err());
    assert_eq!(seen.recv().await, Some(7));

    for (fault, arrives) in
        [(Fault::SwallowAnswers, true), (Fault::BlackHole, false), (Fault::HalfOpen, false)]
    {
        let mut client = connect().await;
        proxy.once(fault);
        client.write_u8(9).await.unwrap();
        assert!(tokio::time::timeout(SOON, client.read_u8()).await.is_err(), "{fault:?}");
        assert_eq!(seen.try_recv().is_ok(), arrives, "{fault:?}");
    }

    let mut present = connect().await;
    present.write_u8(1).await.unwrap();
    assert_eq!(present.read_u8().await.unwrap(), 2);
    proxy.set_present(Fault::BlackHole);
    let mut later = connect().await;
    for client in [&mut present, &mut later] {
        client.write_u8(1).await.unwrap();
    }
    assert_eq!(later.read_u8().await.unwrap(), 2);
    assert!(tokio::time::timeout(SOON, present.read_u8()).await.is_err());
    proxy.set_present(Fault::None);
    present.write_u8(1).await.unwrap();
    assert_eq!(present.read_u8().await.unwrap(), 2);

    let mut client = connect().await;
    proxy.set(Fault::Delay(SOON));
    client.write_u8(11).await.unwrap();
    assert!(tokio::time::timeout(SOON, client.read_u8()).await.is_err());
    assert_eq!(client.read_u8().await.unwrap(), 12);

    proxy.set(Fault::None);
    proxy.cut();
    assert!(client.read_u8().await.is_err());
    proxy.set(Fault::Refuse);
    assert!(connect().await.read_u8().await.is_err());
}

#[tokio::test]
async fn only_new_connections_lead_to_another_server() {
    let ((old, mut seen_by_old), (new, mut seen_by_new)) = (server().await, server().await);
    let proxy = Proxy::before(old).await.unwrap();
    let mut before = TcpStream::connect(proxy.address()).await.unwrap();
    before.write_u8(1).await.unwrap();
    assert_eq!(seen_by_old.recv().await, Some(1));
    proxy.lead_to(new);
    before.write_u8(3).await.unwrap();
    assert_eq!(seen_by_old.recv().await, Some(3));
    let mut after = TcpStream::connect(proxy.address()).await.unwrap();
    after.write_u8(5).await.unwrap();
    assert_eq!(seen_by_new.recv().await, Some(5));
}

#[tokio::test]
async fn a_delay_delays_nothing_behind_it() {
    let (address, _seen) = server().await;
    let proxy = Proxy::before(address).await.unwrap();
    let late = Duration::from_secs(2);
    proxy.set(Fault::Delay(late));
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.set_nodelay(true).unwrap();
    client.write_u8(1).await.unwrap();
    while proxy.exchanges() == 0 {
        tokio::task::yield_now().await;
    }
    client.write_u8(3).await.unwrap();
    assert_eq!(client.read_u8().await.unwrap(), 2);
    let second = tokio::time::timeout(late / 2, client.read_u8());
    assert_eq!(second.await.expect("both were under way together").unwrap(), 4);
}

#[tokio::test]
async fn what_a_driver_sends_by_itself_is_no_exchange_and_has_no_fault_of_once() {
    let (address, mut seen) = server().await;
    let proxy = Proxy::before(address).await.unwrap();
    proxy.ignore(|sent| sent.starts_with(&[50]));
    let (mut driver, mut client) = (
        TcpStream::connect(proxy.address()).await.unwrap(),
        TcpStream::connect(proxy.address()).await.unwrap(),
    );
    proxy.once(Fault::CutBefore);
    driver.write_u8(50).await.unwrap();
    assert_eq!((driver.read_u8().await.unwrap(), seen.recv().await), (51, Some(50)));
    assert_eq!(proxy.exchanges(), 0);
    client.write_u8(1).await.unwrap();
    assert!(client.read_u8().await.is_err());
    assert_eq!(proxy.exchanges(), 1);
    // Of a fault that lasts it has its part.
    proxy.set(Fault::CutBefore);
    driver.write_u8(50).await.unwrap();
    assert!(driver.read_u8().await.is_err());
    assert!(seen.try_recv().is_err());
}

/// While something is done the time of the test does not pass, however busy the machine is.
#[tokio::test(start_paused = true)]
async fn a_fault_of_once_is_that_of_both_parts_of_a_request() {
    static HAS_FIRST: AtomicBool = AtomicBool::new(false);
    let (address, mut seen) = server().await;
    let proxy = Proxy::before(address).await.unwrap();
    proxy.ignore(|sent| {
        HAS_FIRST.fetch_or(sent == [1], Ordering::SeqCst);
        false
    });
    let mut client = TcpStream::connect(proxy.address()).await.unwrap();
    client.set_nodelay(true).unwrap();
    proxy.once(Fault::BlackHole);
    client.write_u8(1).await.unwrap();
    while !HAS_FIRST.load(Ordering::SeqCst) {
        tokio::task::yield_now().await;
    }
    client.write_u8(3).await.unwrap();
    while proxy.exchanges() == 0 {
        tokio::task::yield_now().await;
    }
    client.write_u8(5).await.unwrap();
    assert_eq!((client.read_u8().await.unwrap(), seen.recv().await), (6, Some(5)));
}
