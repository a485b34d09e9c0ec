//! The entries of the two levels of tables. Pure: what a number means for one cluster.

use super::header::Header;
use super::{Qcow2Error, damaged};

/// The bits of an entry that are an offset in the file.
const OFFSET: u64 = 0x00ff_ffff_ffff_fe00;
const PACKED: u64 = 1 << 62;
const ZEROS: u64 = 1;
const FILE_SECTOR_BYTES: u64 = 512;

/// Where the contents of a cluster are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cluster {
    /// Nowhere: never written, or zeros.
    Zeros,
    Plain {
        offset: u64,
    },
    /// Compressed; `entry` tells it from all others.
    Packed {
        entry: u64,
        offset: u64,
        /// At most; the stream ends where it ends.
        len_bytes: u64,
    },
}

impl Cluster {
    pub(super) fn parse(entry: u64, header: &Header) -> Result<Self, Qcow2Error> {
        if entry & PACKED != 0 {
            // Below the flags: a count of sectors of the file, then an offset to the byte.
            let bits = 62 - (header.cluster_bits - 8);
            let offset = entry & ((1 << bits) - 1);
            let more = (entry >> bits) & ((1 << (header.cluster_bits - 8)) - 1);
            let len_bytes = (more + 1) * FILE_SECTOR_BYTES - offset % FILE_SECTOR_BYTES;
            return Ok(Self::Packed { entry, offset, len_bytes });
        }
        let offset = entry & OFFSET;
        if entry & ZEROS != 0 {
            // Older images do not know this.
            let is_known = header.version > 2;
            return if is_known { Ok(Self::Zeros) } else { Err(damaged("a table")) };
        }
        if !offset.is_multiple_of(header.cluster_bytes()) {
            return Err(damaged("the place of a cluster"));
        }
        Ok(if offset == 0 { Self::Zeros } else { Self::Plain { offset } })
    }
}

/// Where a second-level table is, if there is one.
pub(super) fn table_offset(entry: u64, header: &Header) -> Result<Option<u64>, Qcow2Error> {
    let offset = entry & OFFSET;
    if !offset.is_multiple_of(header.cluster_bytes()) {
        return Err(damaged("the place of a table"));
    }
    Ok((offset != 0).then_some(offset))
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: Header =
        Header { version: 3, cluster_bits: 16, size_bytes: 1 << 30, table_offset: 0 };
    const IN_USE_ONCE: u64 = 1 << 63;

    #[test]
    fn an_entry_says_where_a_cluster_is() {
        let parse = |entry| Cluster::parse(entry, &HEADER);
        assert_eq!(parse(0).unwrap(), Cluster::Zeros);
        assert_eq!(parse(IN_USE_ONCE | 0x5_0000).unwrap(), Cluster::Plain { offset: 0x5_0000 });
        assert_eq!(parse(IN_USE_ONCE | 0x5_0001).unwrap(), Cluster::Zeros);
        assert!(parse(0x5_0200).is_err());
        let old = Header { version: 2, ..HEADER };
        assert!(Cluster::parse(1, &old).is_err());
        let entry = PACKED | 3 << 54 | 0x5_0123;
        let packed = Cluster::Packed { entry, offset: 0x5_0123, len_bytes: 4 * 512 - 0x123 };
        assert_eq!(parse(entry).unwrap(), packed);
    }

    #[test]
    fn no_entry_asks_for_more_than_two_clusters_of_input() {
        for cluster_bits in 9..=21 {
            let header = Header { cluster_bits, ..HEADER };
            match Cluster::parse(u64::MAX, &header).unwrap() {
                Cluster::Packed { len_bytes, .. } => {
                    assert!(len_bytes <= 2 * header.cluster_bytes());
                }
                other @ (Cluster::Zeros | Cluster::Plain { .. }) => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn a_table_is_where_a_cluster_can_be() {
        assert_eq!(table_offset(0, &HEADER).unwrap(), None);
        assert_eq!(table_offset(IN_USE_ONCE | 0x3_0000, &HEADER).unwrap(), Some(0x3_0000));
        assert!(table_offset(0x3_0200, &HEADER).is_err());
    }
}
