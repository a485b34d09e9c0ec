//! How much room a disk has, and how much of it may be promised.

/// The space of a disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Room {
    pub maximum_bytes: i64,
    /// Free now.
    pub available_bytes: i64,
    /// Promised to copies, filled or not.
    pub scheduled_bytes: i64,
    /// Kept for others.
    pub reserved_bytes: i64,
}

impl Room {
    /// What may still be used, by what is free and what is promised.
    pub fn left_bytes(&self) -> i64 {
        self.available_bytes
            .saturating_sub(self.reserved_bytes)
            .saturating_sub(self.scheduled_bytes)
    }
}

/// How far a disk may be filled, and how much more than that may be promised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rules {
    pub over_provisioning_percent: i64,
    pub minimal_available_percent: i64,
}

impl Default for Rules {
    /// As settings are without being set.
    fn default() -> Self {
        Self { over_provisioning_percent: 100, minimal_available_percent: 25 }
    }
}

impl Rules {
    /// Why a copy of this size with this much data cannot go there; nothing if it can.
    pub fn refuses(&self, room: &Room, size_bytes: i64, data_bytes: i64) -> Option<String> {
        let part = |bytes: i64, percent: i64| i128::from(bytes) * i128::from(percent) / 100;
        let after = i128::from(room.available_bytes) - i128::from(data_bytes);
        let least = part(room.maximum_bytes, self.minimal_available_percent);
        if after <= least {
            return Some(format!(
                "{after} bytes would be left free, and {least} ({} % of {}) must be",
                self.minimal_available_percent, room.maximum_bytes
            ));
        }
        let promised = i128::from(size_bytes) + i128::from(room.scheduled_bytes);
        let usable = room.maximum_bytes.saturating_sub(room.reserved_bytes);
        let most = part(usable, self.over_provisioning_percent);
        (promised > most).then(|| {
            format!(
                "{promised} bytes would be promised, and {most} ({} % of {usable}) may be",
                self.over_provisioning_percent
            )
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_disk_is_neither_filled_nor_promised_beyond_its_limits() {
        let room = Room {
            maximum_bytes: 1000,
            available_bytes: 500,
            scheduled_bytes: 200,
            reserved_bytes: 300,
        };
        let rules = Rules::default();
        for (size, data, fits) in [
            (0, 0, true),
            (500, 0, true),
            (501, 0, false),
            (100, 249, true),
            (100, 250, false),
            (i64::MAX, 0, false),
            (0, i64::MAX, false),
        ] {
            assert_eq!(rules.refuses(&room, size, data).is_none(), fits, "{size} {data}");
        }
        let twice = Rules { over_provisioning_percent: 200, ..rules };
        assert!(twice.refuses(&room, 1200, 0).is_none());
        assert!(twice.refuses(&room, 1201, 0).is_some());
    }
}
