//! The clients that are served at a time: how many, and how many of one address.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::{Arc, Mutex, PoisonError};

use sluice_router::control::{PAGE_CLIENTS, PAGE_CLIENTS_OF_ADDRESS, Why};

/// The places for clients.
#[derive(Debug, Default)]
pub(super) struct Clients(Mutex<BTreeMap<Option<IpAddr>, usize>>);

/// A place that is taken until it is dropped.
pub(super) struct Place {
    clients: Arc<Clients>,
    address: Option<IpAddr>,
}

impl Clients {
    /// Takes a place for a client of this address. Users of this machine, whose address does not tell
    /// them apart, may take all places; so may those of a Unix socket.
    ///
    /// # Errors
    /// The limit that leaves no place.
    pub fn admit(self: &Arc<Self>, address: Option<IpAddr>) -> Result<Place, Why> {
        let address = address.filter(|address| !address.is_loopback());
        let mut clients = self.lock();
        let of_address = clients.get(&address).copied().unwrap_or(0);
        if clients.values().sum::<usize>() >= PAGE_CLIENTS {
            return Err(Why::HttpTooMany);
        }
        if address.is_some() && of_address >= PAGE_CLIENTS_OF_ADDRESS {
            return Err(Why::HttpAddress);
        }
        clients.insert(address, of_address + 1);
        let clients = Arc::clone(self);
        Ok(Place { clients, address })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<Option<IpAddr>, usize>> {
        // Nothing under the lock can panic halfway.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut clients = self.clients.lock();
        match clients.get_mut(&self.address) {
            Some(count) if *count > 1 => *count -= 1,
            _ => {
                clients.remove(&self.address);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_address_takes_half_of_the_places_and_this_machine_all() {
        let clients = Arc::<Clients>::default();
        let places = |address: Option<IpAddr>| -> Vec<Place> {
            std::iter::from_fn(|| clients.admit(address).ok()).collect()
        };
        let stranger = Some("192.0.2.7".parse().unwrap());
        let mut taken = places(stranger);
        assert_eq!(taken.len(), PAGE_CLIENTS / 2);
        // Another one comes in, and the places that it leaves are free again.
        assert!(clients.admit(Some("192.0.2.8".parse().unwrap())).is_ok());
        taken.pop();
        taken.extend(clients.admit(stranger));
        assert_eq!(taken.len(), PAGE_CLIENTS / 2);
        assert_eq!(clients.admit(stranger).err(), Some(Why::HttpAddress));
        let others = places(Some("::1".parse().unwrap()));
        assert_eq!(others.len(), PAGE_CLIENTS / 2);
        assert_eq!(clients.admit(None).err(), Some(Why::HttpTooMany));
        assert_eq!(clients.admit(stranger).err(), Some(Why::HttpTooMany));
        drop((taken, others));
        assert!(clients.lock().is_empty());
        assert_eq!(places(None).len(), PAGE_CLIENTS);
    }
}
