//! Reading what `tgtadm` and `iscsiadm` print.

/// `Target 3: iqn...` lines: number and name.
fn targets(shown: &str) -> impl Iterator<Item = (u32, &str)> {
    shown.lines().filter_map(|line| {
        let (number, name) = line.strip_prefix("Target ")?.split_once(':')?;
        Some((number.parse().ok()?, name.trim()))
    })
}

/// The number of the target of that name.
pub(super) fn target_id(shown: &str, iqn: &str) -> Option<u32> {
    targets(shown).find_map(|(number, name)| (name == iqn).then_some(number))
}

/// The lowest number no target has.
pub(super) fn free_target_id(shown: &str) -> u32 {
    let used: std::collections::BTreeSet<u32> = targets(shown).map(|(number, _)| number).collect();
    (1..=u32::MAX).find(|number| !used.contains(number)).unwrap_or(u32::MAX)
}

/// The lines about one target in the list of sessions.
fn about<'a>(sessions: &'a str, iqn: &'a str) -> impl Iterator<Item = &'a str> {
    let heading = |line: &str| line.trim_start().starts_with("Target: ");
    let ours = move |line: &str| {
        let rest = line.trim_start().strip_prefix("Target: ");
        rest.and_then(|rest| rest.split_whitespace().next()) == Some(iqn)
    };
    sessions
        .lines()
        .skip_while(move |line| !ours(line))
        .enumerate()
        .take_while(move |(index, line)| *index == 0 || !heading(line))
        .map(|(_, line)| line)
}

pub(super) fn has_session(sessions: &str, iqn: &str) -> bool {
    about(sessions, iqn).next().is_some()
}

/// The disk that a session made of a unit of the target.
pub(super) fn disk_of_session(sessions: &str, iqn: &str, lun: &str) -> Option<String> {
    let unit = |line: &str| line.split_whitespace().last().map(str::to_owned);
    about(sessions, iqn)
        .skip_while(|line| !(line.contains(" Lun: ") && unit(line).as_deref() == Some(lun)))
        .take_while({
            let mut units = 0;
            move |line| {
                units += u32::from(line.contains(" Lun: "));
                units < 2
            }
        })
        .find_map(|line| {
            let mut words = line.trim().strip_prefix("Attached scsi disk ")?.split_whitespace();
            words.next().map(str::to_owned)
        })
}

/// `8:16` as the kernel writes it.
pub(super) fn device_number(text: &str) -> Option<(u32, u32)> {
    let (major, minor) = text.trim().split_once(':')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGETS: &str = "Target 1: iqn.2019-10.io.longhorn:other\n    System information:\n\
        Target 3: iqn.2019-10.io.longhorn:vol\n";

    const SESSIONS: &str = "iSCSI Transport Class version 2.0-870\n\
        Target: iqn.2019-10.io.longhorn:vol-1 (non-flash)\n\
        \t\tscsi2 Channel 00 Id 0 Lun: 1\n\t\t\tAttached scsi disk sda\t\tState: running\n\
        Target: iqn.2019-10.io.longhorn:vol (non-flash)\n\
        \tCurrent Portal: 127.0.0.1:3260,1\n\
        \t\tscsi3 Channel 00 Id 0 Lun: 0\n\
        \t\tscsi3 Channel 00 Id 0 Lun: 1\n\t\t\tAttached scsi disk sdb\t\tState: running\n";

    #[test]
    fn targets_are_found_by_their_whole_name() {
        assert_eq!(target_id(TARGETS, "iqn.2019-10.io.longhorn:vol"), Some(3));
        assert_eq!(target_id(TARGETS, "iqn.2019-10.io.longhorn:vo"), None);
        assert_eq!(free_target_id(TARGETS), 2);
        assert_eq!(free_target_id(""), 1);
    }

    #[test]
    fn the_disk_is_that_of_the_target_and_unit() {
        let disk = |iqn| disk_of_session(SESSIONS, iqn, "1");
        assert_eq!(disk("iqn.2019-10.io.longhorn:vol").as_deref(), Some("sdb"));
        assert_eq!(disk("iqn.2019-10.io.longhorn:vol-1").as_deref(), Some("sda"));
        assert_eq!(disk("iqn.2019-10.io.longhorn:none"), None);
        assert_eq!(disk_of_session(SESSIONS, "iqn.2019-10.io.longhorn:vol", "0"), None);
        assert!(has_session(SESSIONS, "iqn.2019-10.io.longhorn:vol"));
        assert!(!has_session(SESSIONS, "iqn.2019-10.io.longhorn:v"));
    }

    #[test]
    fn device_numbers_are_read() {
        assert_eq!(device_number("8:16\n"), Some((8, 16)));
        assert_eq!(device_number("x"), None);
    }
}
