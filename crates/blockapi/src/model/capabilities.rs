//! What types ask of the place their volumes are made at, and what there is: pure.

use std::collections::BTreeMap;

/// What the one backend says of itself. Others have it under the same names.
const OFFERED: &[(&str, &str)] = &[
    ("volume_backend_name", "holdfast"),
    ("vendor_name", "Holdfast"),
    ("storage_protocol", "nbd"),
    ("multiattach", "True"),
    ("thin_provisioning_support", "True"),
    ("thick_provisioning_support", "False"),
    ("QoS_support", "False"),
    ("replication_enabled", "False"),
];

/// Why no volume of a type with these extra specs can be made here. A key with a scope is meant for
/// somebody else, unless the scope is `capabilities`.
pub(crate) fn unmet(specs: &BTreeMap<String, String>) -> Option<String> {
    specs.iter().find_map(|(key, wanted)| {
        let name = match key.split_once(':') {
            None => key.as_str(),
            Some(("capabilities", name)) => name,
            Some(_) => return None,
        };
        let offered = OFFERED.iter().find(|(known, _)| *known == name).map(|(_, value)| *value);
        match offered {
            Some(offered) if fits(wanted, offered) => None,
            Some(offered) => {
                Some(format!("its type asks for {key} {wanted}, and here it is {offered}"))
            }
            None => Some(format!("its type asks for {key} {wanted}, which nothing here offers")),
        }
    })
}

/// A value alone is the one wanted; `<is>` asks for a truth, `<in>` for a part, `<or>` for any of some.
fn fits(wanted: &str, offered: &str) -> bool {
    let wanted = wanted.trim();
    if let Some(truth) = wanted.strip_prefix("<is>") {
        return truth.trim().eq_ignore_ascii_case(offered);
    }
    if let Some(part) = wanted.strip_prefix("<in>") {
        return offered.contains(part.trim());
    }
    if wanted.starts_with("<or>") {
        return wanted.split("<or>").map(str::trim).any(|it| it == offered);
    }
    wanted.strip_prefix("s==").map_or(wanted, str::trim) == offered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_for_is_there_or_not() {
        let of =
            |key: &str, value: &str| unmet(&BTreeMap::from([(key.to_owned(), value.to_owned())]));
        for (key, value) in [
            ("volume_backend_name", "holdfast"),
            ("capabilities:storage_protocol", "<or> iscsi <or> nbd"),
            ("storage_protocol", "s== nbd"),
            ("multiattach", "<is> True"),
            ("vendor_name", "<in> Hold"),
            // Somebody else's.
            ("holdfast:replicas", "3"),
            ("RESKEY:availability_zones", "nova"),
        ] {
            assert_eq!(of(key, value), None, "{key}");
        }
        for (key, value) in [
            ("volume_backend_name", "ceph"),
            ("replication_enabled", "<is> True"),
            ("capabilities:compression", "<is> True"),
            ("vendor_name", "<or> A <or> B"),
        ] {
            assert!(of(key, value).is_some(), "{key}");
        }
    }
}
