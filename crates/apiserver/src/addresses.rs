//! Cluster addresses and node ports of services: each belongs to one service at a time.
//!
//! What is taken is derived from the stored services, so nothing is kept that could disagree with
//! them: a service that goes gives back what it had, and a restart knows what the last run knew. What
//! is on its way to the store is held by a [`Reservation`].

use std::collections::{BTreeSet, HashMap};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::ops::RangeInclusive;
use std::str::FromStr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use objects::cause::Cause;
use rand::Rng;
use serde_json::{Value, json};

use crate::store::{Key, Store, Stored};

pub(crate) const ID: &str = "/services";
/// After this long, a write is stored or never will be.
const WRITE_TAKES_AT_MOST: Duration = Duration::from_mins(1);

/// Addresses of services, as `10.96.0.0/12`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AddressRange {
    first: IpAddr,
    prefix: u8,
}

/// Where services get what is handed out to them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ServiceRanges {
    pub addresses: AddressRange,
    pub node_ports: RangeInclusive<u16>,
}

impl Default for ServiceRanges {
    fn default() -> Self {
        let addresses = AddressRange { first: Ipv4Addr::new(10, 96, 0, 0).into(), prefix: 12 };
        Self { addresses, node_ports: 30000..=32767 }
    }
}

impl FromStr for AddressRange {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || "is not a range of addresses such as 10.96.0.0/12".to_owned();
        let (address, prefix) = text.split_once('/').ok_or_else(wrong)?;
        let first: IpAddr = address.parse().map_err(|_| wrong())?;
        let prefix: u8 = prefix.parse().map_err(|_| wrong())?;
        let range = Self { first, prefix };
        if prefix > range.bits() - 2 || prefix < 8 {
            return Err("has no useful size: a prefix is at least 8 and leaves two bits".to_owned());
        }
        if !number(first).is_multiple_of(range.size()) {
            return Err("does not begin where its prefix ends".to_owned());
        }
        Ok(range)
    }
}

impl std::fmt::Display for AddressRange {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}", self.first, self.prefix)
    }
}

fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => u32::from(address).into(),
        IpAddr::V6(address) => address.into(),
    }
}

impl AddressRange {
    const fn bits(self) -> u8 {
        if self.first.is_ipv4() { 32 } else { 128 }
    }

    fn size(self) -> u128 {
        1 << u32::from(self.bits() - self.prefix)
    }

    fn at(self, offset: u128) -> IpAddr {
        let number = number(self.first) + offset;
        match self.first {
            IpAddr::V4(_) => Ipv4Addr::from(u32::try_from(number).unwrap_or(u32::MAX)).into(),
            IpAddr::V6(_) => Ipv6Addr::from(number).into(),
        }
    }

    fn contains(self, address: IpAddr) -> bool {
        address.is_ipv4() == self.first.is_ipv4()
            && number(address).checked_sub(number(self.first)).is_some_and(|at| at < self.size())
    }

    const fn family(self) -> &'static str {
        if self.first.is_ipv4() { "IPv4" } else { "IPv6" }
    }
}

/// What one service has.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Held {
    addresses: BTreeSet<IpAddr>,
    ports: BTreeSet<(String, u16)>,
}

impl Held {
    fn of(service: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let addresses = list(service, "/spec/clusterIPs").chain(service.pointer("/spec/clusterIP"));
        let ports = list(service, "/spec/ports").filter_map(|port| {
            let number = u16::try_from(port.get("nodePort")?.as_u64()?).ok()?;
            (number > 0).then(|| (text(&port["protocol"]), number))
        });
        Self {
            addresses: addresses.filter_map(|one| one.as_str()?.parse().ok()).collect(),
            ports: ports.collect(),
        }
    }
}

fn list<'a>(value: &'a Value, pointer: &str) -> impl Iterator<Item = &'a Value> + use<'a> {
    value.pointer(pointer).and_then(Value::as_array).into_iter().flatten()
}

/// What is taken, and by whom.
#[derive(Debug, Default)]
struct Taken {
    /// The last change of a service that is known.
    at: u64,
    known: HashMap<Key, (u64, Held)>,
    /// On their way to the store, by ticket; those whose writer has left are kept until then.
    pending: HashMap<u64, (Held, Option<Instant>)>,
    next_ticket: u64,
}

impl Taken {
    fn follow(&mut self, store: &Store) {
        let now = Instant::now();
        self.pending.retain(|_, (_, until)| until.is_none_or(|until| until > now));
        let changed_at = store.changed_at(ID);
        if self.at == changed_at {
            return;
        }
        let services = store.list(ID, None).items;
        let mut before = std::mem::take(&mut self.known);
        for service in services {
            let held = match before.remove(&service.key) {
                Some((revision, held)) if revision == service.revision => held,
                _ => held_by(&service),
            };
            self.known.insert(service.key.clone(), (service.revision, held));
        }
        self.at = changed_at;
    }

    fn others<'a>(&'a self, own: &'a Key) -> impl Iterator<Item = &'a Held> + 'a {
        let known = self.known.iter().filter(move |(key, _)| *key != own);
        known.map(|(_, (_, held))| held).chain(self.pending.values().map(|(held, _)| held))
    }
}

fn held_by(service: &Stored) -> Held {
    service.value().map(|service| Held::of(&service)).unwrap_or_default()
}

/// Hands addresses and ports out.
#[derive(Debug)]
pub(crate) struct Addresses {
    ranges: ServiceRanges,
    taken: Mutex<Taken>,
}

/// Holds what a service was given until it is stored.
#[derive(Debug)]
pub(crate) struct Reservation {
    addresses: Arc<Addresses>,
    ticket: u64,
}

impl Reservation {
    /// The write is done or was refused: the store says the rest.
    pub(crate) fn settle(self) {
        self.addresses.lock().pending.remove(&self.ticket);
    }
}

impl Drop for Reservation {
    /// A writer that left does not know whether its write will still be done.
    fn drop(&mut self) {
        if let Some((_, until)) = self.addresses.lock().pending.get_mut(&self.ticket) {
            *until = Some(Instant::now() + WRITE_TAKES_AT_MOST);
        }
    }
}

impl Addresses {
    pub(crate) fn new(ranges: ServiceRanges) -> Arc<Self> {
        Arc::new(Self { ranges, taken: Mutex::default() })
    }

    fn lock(&self) -> MutexGuard<'_, Taken> {
        self.taken.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Gives a service what it lacks and checks what it asks for.
    pub(crate) fn reserve(
        self: &Arc<Self>,
        store: &Store,
        key: &Key,
        service: &mut Value,
    ) -> Result<Reservation, Vec<Cause>> {
        let mut taken = self.lock();
        taken.follow(store);
        let mut others = Held::default();
        for held in taken.others(key) {
            others.addresses.extend(&held.addresses);
            others.ports.extend(held.ports.iter().cloned());
        }
        self.give_address(service, &others).map_err(|cause| vec![cause])?;
        self.give_ports(service, &others)?;
        let ticket = taken.next_ticket;
        taken.next_ticket += 1;
        taken.pending.insert(ticket, (Held::of(service), None));
        Ok(Reservation { addresses: self.clone(), ticket })
    }

    fn give_address(&self, service: &mut Value, others: &Held) -> Result<(), Cause> {
        let kind = service.pointer("/spec/type").and_then(Value::as_str).unwrap_or_default();
        if kind == "ExternalName" {
            return Ok(());
        }
        let range = self.ranges.addresses;
        let given = service.pointer("/spec/clusterIP").and_then(Value::as_str).unwrap_or_default();
        let address = match given {
            "None" => "None".to_owned(),
            "" => self.free_address(others)?.to_string(),
            given => {
                self.check_address(given, others)?;
                given.to_owned()
            }
        };
        let Some(spec) = service.pointer_mut("/spec").and_then(Value::as_object_mut) else {
            return Ok(());
        };
        let selects =
            spec.get("selector").and_then(Value::as_object).is_some_and(|s| !s.is_empty());
        let (families, policy) = if address == "None" && !selects {
            // Whoever keeps its endpoints may use both.
            (json!(["IPv4", "IPv6"]), "RequireDualStack")
        } else {
            (json!([range.family()]), "SingleStack")
        };
        spec.insert("clusterIPs".into(), json!([address]));
        spec.insert("clusterIP".into(), address.into());
        spec.entry("ipFamilies").or_insert(families);
        spec.entry("ipFamilyPolicy").or_insert_with(|| policy.into());
        Ok(())
    }

    fn check_address(&self, given: &str, others: &Held) -> Result<(), Cause> {
        let range = self.ranges.addresses;
        let refuse = |why: &str| {
            let detail = format!("failed to allocate IP {given}: {why}");
            Err(Cause::invalid("spec.clusterIPs", &json!([given]), &detail))
        };
        match given.parse::<IpAddr>() {
            Err(_) => Err(Cause::invalid(
                "spec.clusterIPs[0]",
                &given.into(),
                "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",
            )),
            Ok(address) if !range.contains(address) => refuse(&format!(
                "the provided IP is not in the valid range. The range of valid IPs is {range}"
            )),
            Ok(address) if others.addresses.contains(&address) => {
                refuse("provided IP is already allocated")
            }
            Ok(_) => Ok(()),
        }
    }

    /// Any address but the first two, which belong to the network and to the API itself, and the
    /// last. The search begins anywhere, so that an address given back is not given out at once.
    fn free_address(&self, others: &Held) -> Result<IpAddr, Cause> {
        let range = self.ranges.addresses;
        let count = range.size() - 3;
        let start = rand::rng().random_range(0..count);
        // One more try than there are taken addresses finds a free one if there is one.
        let tries = count.min(others.addresses.len() as u128 + 1);
        let mut all = (0..tries).map(|step| range.at(2 + (start + step) % count));
        all.find(|address| !others.addresses.contains(address)).ok_or_else(|| {
            let detail = format!("failed to allocate a serviceIP: range {range} is full");
            Cause::new(objects::cause::Reason::Invalid, "spec.clusterIPs", detail)
        })
    }

    fn give_ports(&self, service: &mut Value, others: &Held) -> Result<(), Vec<Cause>> {
        let spec = &service["spec"];
        let wanted = match spec["type"].as_str().unwrap_or_default() {
            "NodePort" => true,
            "LoadBalancer" => spec["allocateLoadBalancerNodePorts"] != json!(false),
            _ => false,
        };
        let mut own = Held::default();
        let mut causes = Vec::new();
        let ports = service.pointer_mut("/spec/ports").and_then(Value::as_array_mut);
        for (index, port) in ports.into_iter().flatten().enumerate() {
            let given = port.get("nodePort").and_then(Value::as_u64).unwrap_or_default();
            if given == 0 && !wanted {
                continue;
            }
            let protocol = port["protocol"].as_str().unwrap_or("TCP").to_owned();
            match self.port(protocol, given, others, &own) {
                Ok(held) => {
                    if let Some(port) = port.as_object_mut() {
                        port.insert("nodePort".into(), held.1.into());
                    }
                    own.ports.insert(held);
                }
                Err(why) => {
                    let field = format!("spec.ports[{index}].nodePort");
                    causes.push(Cause::invalid(field, &given.into(), &why));
                }
            }
        }
        if causes.is_empty() { Ok(()) } else { Err(causes) }
    }

    /// The port that was asked for, or any if that is 0.
    fn port(
        &self,
        protocol: String,
        given: u64,
        others: &Held,
        own: &Held,
    ) -> Result<(String, u16), String> {
        if given == 0 {
            let free = self.free_port(&protocol, others, own);
            let full = || "failed to allocate a nodePort: the range is full".to_owned();
            return free.map(|number| (protocol, number)).ok_or_else(full);
        }
        let port = (protocol, u16::try_from(given).unwrap_or(u16::MAX));
        self.port_problem(&port, others, own).map_or(Ok(port), Err)
    }

    fn port_problem(&self, port: &(String, u16), others: &Held, own: &Held) -> Option<String> {
        let range = &self.ranges.node_ports;
        if !range.contains(&port.1) {
            let (first, last) = (range.start(), range.end());
            return Some(format!(
                "provided port is not in the valid range. The range of valid ports is \
                 {first}-{last}"
            ));
        }
        (others.ports.contains(port) || own.ports.contains(port))
            .then(|| "provided port is already allocated".to_owned())
    }

    fn free_port(&self, protocol: &str, others: &Held, own: &Held) -> Option<u16> {
        let range = &self.ranges.node_ports;
        let count = u32::from(range.end() - range.start()) + 1;
        let start = rand::rng().random_range(0..count);
        let all = (0..count).filter_map(|step| {
            u16::try_from((start + step) % count).ok().map(|offset| range.start() + offset)
        });
        let free = |number: &u16| {
            let port = (protocol.to_owned(), *number);
            !others.ports.contains(&port) && !own.ports.contains(&port)
        };
        all.into_iter().find(free)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn small() -> Arc<Addresses> {
        let addresses = "10.9.0.0/29".parse().unwrap();
        Addresses::new(ServiceRanges { addresses, node_ports: 100..=101 })
    }

    fn taken(service: &Value) -> Held {
        Held::of(service)
    }

    #[test]
    fn ranges_are_checked() {
        for good in ["10.96.0.0/12", "192.168.1.0/24", "fd00::/108"] {
            assert_eq!(good.parse::<AddressRange>().unwrap().to_string(), good);
        }
        for bad in ["", "10.0.0.0", "10.0.0.1/24", "10.0.0.0/31", "10.0.0.0/4", "x/8", "10.0.0.0/x"]
        {
            assert!(bad.parse::<AddressRange>().is_err(), "{bad}");
        }
    }

    #[test]
    fn every_address_of_a_range_is_found_and_then_it_is_full() {
        let addresses = small();
        let mut others = Held::default();
        for left in (0..5).rev() {
            let found = addresses.free_address(&others).unwrap();
            assert!(addresses.ranges.addresses.contains(found));
            assert!(others.addresses.insert(found), "{found} twice, {left} left");
        }
        assert!(addresses.free_address(&others).is_err());
    }

    #[test]
    fn one_port_serves_two_protocols_and_no_more() {
        let addresses = small();
        let mut service = json!({"spec": {"type": "NodePort", "ports": [
            {"protocol": "TCP", "nodePort": 100}, {"protocol": "UDP", "nodePort": 100},
            {"protocol": "TCP"}]}});
        addresses.give_ports(&mut service, &Held::default()).unwrap();
        assert_eq!(service["spec"]["ports"][2]["nodePort"], 101);
        let mut other = json!({"spec": {"type": "NodePort", "ports": [{"protocol": "TCP"}]}});
        let causes = addresses.give_ports(&mut other, &taken(&service)).unwrap_err();
        assert!(causes[0].message.contains("full"), "{causes:?}");
    }
}
