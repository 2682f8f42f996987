use std::net::TcpListener;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::{Failure, Result};

/// Below the range from which the kernel assigns ports, so that no client gets one before its server listens.
const FIRST: u32 = 10_000;
const COUNT: u32 = 22_000;

/// A port of this machine on which nobody listens and that no other call returns: none in this process, and on
/// Linux none in another process while this one runs.
///
/// # Errors
/// If there is none.
pub fn free_port() -> Result<u16> {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    // Test programs that run in parallel start far from each other.
    let start = std::process::id().wrapping_mul(997);
    for _ in 0..COUNT {
        let nth = start.wrapping_add(NEXT.fetch_add(1, Ordering::Relaxed)) % COUNT;
        let port = u16::try_from(FIRST + nth)?;
        if is_reserved(port) && TcpListener::bind(("127.0.0.1", port)).is_ok() {
            return Ok(port);
        }
    }
    Err(Failure::new("no port of this machine is free"))
}

/// Reserves a port among the processes that call this, until this one ends: a name can be bound once, and a socket
/// without a file leaves nothing behind.
#[cfg(target_os = "linux")]
fn is_reserved(port: u16) -> bool {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener};

    let name = SocketAddr::from_abstract_name(format!("leasehold-port-{port}"));
    let bound = name.and_then(|name| UnixListener::bind_addr(&name));
    bound.map(std::mem::forget).is_ok()
}

#[cfg(not(target_os = "linux"))]
fn is_reserved(_: u16) -> bool {
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_port_is_given_twice_or_while_another_listens() {
        let (first, second) = (free_port().unwrap(), free_port().unwrap());
        assert_ne!(first, second);
        let taken = TcpListener::bind(("127.0.0.1", second + 1));
        let third = free_port().unwrap();
        assert!(taken.is_err() || third != second + 1);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn no_port_of_another_process_is_given() {
        let port = free_port().unwrap();
        assert!(!is_reserved(port));
    }
}
