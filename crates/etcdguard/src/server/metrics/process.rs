//! What the operating system tells about this process and its network, read from `/proc`. What
//! cannot be read is left out.

use std::fs;

use rustix::process::{Resource, getrlimit};

/// Name, help, kind, value.
type Sample = (&'static str, &'static str, &'static str, f64);

const PAGE_BYTES: f64 = 4096.0;
/// Clock ticks in a second, as Linux tells them to programs.
const TICKS: f64 = 100.0;

pub(super) fn read() -> Vec<Sample> {
    let mut samples = Vec::new();
    if let Some((received, transmitted)) = network(&text("/proc/net/dev")) {
        samples.push((
            "etcdbr_network_received_bytes",
            "Bytes received by all interfaces.",
            "counter",
            received,
        ));
        samples.push((
            "etcdbr_network_transmitted_bytes",
            "Bytes transmitted by all interfaces.",
            "counter",
            transmitted,
        ));
    }
    let stat = text("/proc/self/stat");
    if let Some(stat) = Stat::parse(&stat) {
        let boot = boot_time(&text("/proc/stat")).unwrap_or_default();
        samples.extend([
            (
                "process_cpu_seconds_total",
                "Total user and system CPU time spent in seconds.",
                "counter",
                stat.cpu_ticks / TICKS,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                "gauge",
                stat.resident_pages * PAGE_BYTES,
            ),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                "gauge",
                boot + stat.start_ticks / TICKS,
            ),
            (
                "process_virtual_memory_bytes",
                "Virtual memory size in bytes.",
                "gauge",
                stat.virtual_bytes,
            ),
        ]);
    }
    samples.extend(limits());
    if let Some((received, transmitted)) = octets(&text("/proc/self/net/netstat")) {
        samples.push((
            "process_network_receive_bytes_total",
            "Number of bytes received by the process over the network.",
            "counter",
            received,
        ));
        samples.push((
            "process_network_transmit_bytes_total",
            "Number of bytes sent by the process over the network.",
            "counter",
            transmitted,
        ));
    }
    if let Ok(open) = fs::read_dir("/proc/self/fd") {
        let open = u32::try_from(open.count()).unwrap_or(u32::MAX);
        samples.push((
            "process_open_fds",
            "Number of open file descriptors.",
            "gauge",
            f64::from(open),
        ));
    }
    samples
}

/// How much of what this process may have. No limit is the largest number.
fn limits() -> [Sample; 2] {
    let of = |resource| getrlimit(resource).current.unwrap_or(u64::MAX);
    [
        (
            "process_max_fds",
            "Maximum number of open file descriptors.",
            "gauge",
            float(of(Resource::Nofile)),
        ),
        (
            "process_virtual_memory_max_bytes",
            "Maximum amount of virtual memory available in bytes.",
            "gauge",
            float(of(Resource::As)),
        ),
    ]
}

#[expect(clippy::cast_precision_loss, reason = "the text format has no better number")]
fn float(number: u64) -> f64 {
    number as f64
}

/// Bytes that the network namespace received and sent as IP, by the names in the line above them.
fn octets(text: &str) -> Option<(f64, f64)> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix("IpExt:"));
    let (names, numbers) = (lines.next()?, lines.next()?);
    let of = |wanted: &str| {
        let mut pairs = names.split_ascii_whitespace().zip(numbers.split_ascii_whitespace());
        pairs.find(|(name, _)| *name == wanted)?.1.parse::<f64>().ok()
    };
    Some((of("InOctets")?, of("OutOctets")?))
}

fn text(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Received and transmitted bytes, summed.
fn network(text: &str) -> Option<(f64, f64)> {
    let mut sums = None;
    for line in text.lines() {
        let Some((_, numbers)) = line.split_once(':') else { continue };
        let numbers: Vec<f64> =
            numbers.split_ascii_whitespace().filter_map(|it| it.parse().ok()).collect();
        let (Some(received), Some(transmitted)) = (numbers.first(), numbers.get(8)) else {
            continue;
        };
        let (all_received, all_transmitted) = sums.unwrap_or_default();
        sums = Some((all_received + received, all_transmitted + transmitted));
    }
    sums
}

struct Stat {
    cpu_ticks: f64,
    start_ticks: f64,
    virtual_bytes: f64,
    resident_pages: f64,
}

impl Stat {
    fn parse(text: &str) -> Option<Self> {
        // The name may hold blanks and parentheses; the fields follow the last one.
        let (_, rest) = text.rsplit_once(')')?;
        let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
        // The first of them is the third of the whole.
        let field = |number: usize| fields.get(number - 3)?.parse::<f64>().ok();
        Some(Self {
            cpu_ticks: field(14)? + field(15)?,
            start_ticks: field(22)?,
            virtual_bytes: field(23)?,
            resident_pages: field(24)?,
        })
    }
}

fn boot_time(text: &str) -> Option<f64> {
    text.lines().find_map(|line| line.strip_prefix("btime ")?.trim().parse().ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_is_read() {
        let samples = read();
        for name in [
            "etcdbr_network_received_bytes",
            "process_open_fds",
            "process_cpu_seconds_total",
            "process_max_fds",
            "process_virtual_memory_max_bytes",
            "process_network_receive_bytes_total",
            "process_network_transmit_bytes_total",
        ] {
            assert!(samples.iter().any(|(found, ..)| *found == name), "{name}");
        }
    }

    #[test]
    fn interfaces_are_summed() {
        let text = "Inter-| Receive\n face |bytes\n  lo: 10 1 0 0 0 0 0 0 20 1 0 0 0 0 0 0\n\
                    eth0: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n";
        assert_eq!(network(text), Some((15.0, 26.0)));
        assert_eq!(network(""), None);
        let text = "TcpExt: A\nTcpExt: 1\nIpExt: InNoRoutes InOctets OutOctets\nIpExt: 0 7 9\n";
        assert_eq!(octets(text), Some((7.0, 9.0)));
        assert_eq!(octets("IpExt: InOctets\n"), None);
    }
}
