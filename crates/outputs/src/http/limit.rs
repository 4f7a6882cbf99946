//! How much is too much: requests of a client, so many a second and some more at once; and answers that are on their way,
//! all together.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use crate::Refusal;

/// What may come at once, in seconds' worth.
const BURST_S: f64 = 4.0;
/// Clients that are told apart. Beyond them, those that have been quiet longest are forgotten.
const MOST_CLIENTS: usize = 4096;

pub struct Rate {
    per_second: f64,
    clients: Mutex<HashMap<Client, Bucket>>,
}

/// Those who know the token are not held up by those who guess it.
type Client = (IpAddr, bool);

struct Bucket {
    left: f64,
    at: Instant,
}

impl Rate {
    pub fn new(per_second: u32) -> Self {
        Self { per_second: f64::from(per_second.max(1)), clients: Mutex::default() }
    }

    pub fn take(&self, address: IpAddr, is_known: bool, now: Instant) -> Result<(), Refusal> {
        let most = self.per_second * BURST_S;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if clients.len() >= MOST_CLIENTS {
            forget_quiet(&mut clients);
        }
        let bucket = clients.entry((network(address), is_known)).or_insert(Bucket { left: most, at: now });
        let passed = now.saturating_duration_since(bucket.at).as_secs_f64();
        (bucket.left, bucket.at) = (most.min(bucket.left + passed * self.per_second), now);
        if bucket.left < 1.0 {
            let retry_after_s = ((1.0 - bucket.left) / self.per_second).ceil().max(1.0) as u64;
            return Err(Refusal::TooManyRequests { retry_after_s });
        }
        bucket.left -= 1.0;
        Ok(())
    }
}

/// Somebody with IPv6 has as many addresses as they like, all of one network.
fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() & (u128::MAX << 64))),
        address => address,
    }
}

fn forget_quiet(clients: &mut HashMap<Client, Bucket>) {
    let mut times: Vec<Instant> = clients.values().map(|bucket| bucket.at).collect();
    times.sort_unstable();
    if let Some(&median) = times.get(times.len() / 2) {
        clients.retain(|_, bucket| bucket.at > median);
    }
}

/// Memory for answers that clients have yet to take.
pub struct Rooms(Arc<Semaphore>);

/// The room that one answer takes up.
#[derive(Clone)]
pub struct Room(#[allow(dead_code, reason = "held until it is dropped")] Arc<OwnedSemaphorePermit>);

impl Rooms {
    const MOST_BYTES: usize = 64 << 20;
    const UNIT: usize = 1 << 10;

    pub fn new() -> Self {
        Self(Arc::new(Semaphore::new(Self::MOST_BYTES / Self::UNIT)))
    }

    pub fn take(&self, bytes: usize) -> Result<Room, Refusal> {
        let units = u32::try_from(bytes.div_ceil(Self::UNIT)).unwrap_or(u32::MAX);
        let permit = Arc::clone(&self.0).try_acquire_many_owned(units).map_err(|_| Refusal::Busy)?;
        Ok(Room(Arc::new(permit)))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_burst_passes_and_then_so_many_a_second() {
        let (rate, start) = (Rate::new(50), Instant::now());
        let address = "10.0.0.1".parse().unwrap();
        let passed = (0..1000).filter(|_| rate.take(address, true, start).is_ok()).count();
        assert_eq!(passed, 200);
        let later = start + Duration::from_secs(1);
        let passed = (0..1000).filter(|_| rate.take(address, true, later).is_ok()).count();
        assert_eq!(passed, 50);
    }

    #[test]
    fn clients_do_not_hold_each_other_up_but_a_network_counts_as_one() {
        let (rate, now) = (Rate::new(1), Instant::now());
        let take = |address: &str, is_known| rate.take(address.parse().unwrap(), is_known, now).is_ok();
        let passed = (0..100).filter(|at| take(&format!("2001:db8::{at:x}"), false)).count();
        assert_eq!(passed, 4);
        assert!(take("2001:db8::1", true));
        assert!(take("2001:db8:0:1::1", false));
        assert!(take("10.0.0.2", false));
    }

    #[test]
    fn answers_on_their_way_take_only_so_much_room() {
        let rooms = Rooms::new();
        let eight: Vec<Room> = (0..8).map(|_| rooms.take(8 << 20).unwrap()).collect();
        assert!(rooms.take(1).is_err());
        drop(eight);
        assert!(rooms.take(8 << 20).is_ok());
        assert!(rooms.take(usize::MAX).is_err());
    }

    #[test]
    fn any_number_of_clients_takes_only_so_much_memory() {
        let (rate, start) = (Rate::new(50), Instant::now());
        for at in 0..20_000u32 {
            let address = IpAddr::from(at.to_be_bytes());
            assert!(rate.take(address, false, start + Duration::from_micros(at.into())).is_ok());
        }
        assert!(rate.clients.lock().unwrap().len() <= MOST_CLIENTS);
    }
}
