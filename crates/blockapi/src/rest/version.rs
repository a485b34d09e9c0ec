//! Microversions: one model, many views.

use std::fmt;

use super::fault::Fault;

/// A microversion: the minor number; the major one is 3.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Version(pub(crate) u32);

impl Version {
    pub(crate) const MIN: Self = Self(0);
    /// The newest, and the first with `backup_status`.
    pub(crate) const MAX: Self = Self(72);
    pub(crate) const BACKUP_STATUS: Self = Self(72);

    pub(crate) const fn has(self, minor: u32) -> bool {
        self.0 >= minor
    }

    /// Whether both status fields are known to the client.
    pub(crate) const fn has_backup_status(self) -> bool {
        self.0 >= Self::BACKUP_STATUS.0
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "3.{}", self.0)
    }
}

const NO_VOLUME: &str = "The OpenStack-API-Version header names no version of the volume service.";

/// The version a request asks for.
pub(crate) fn negotiate(header: Option<&str>) -> Result<Version, Fault> {
    let Some(header) = header else { return Ok(Version::MIN) };
    let element = header.split(',').find(|it| it.contains("volume"));
    let element = element.ok_or_else(|| Fault::bad(NO_VOLUME))?;
    let mut words = element.split_whitespace();
    let (Some("volume"), Some(text), None) = (words.next(), words.next(), words.next()) else {
        return Err(Fault::bad(NO_VOLUME));
    };
    if text == "latest" {
        return Ok(Version::MAX);
    }
    let Some((major, minor)) = parse(text) else {
        return Err(Fault::bad(format!(
            "API Version String {text} is of invalid format. Must be of format MajorNum.MinorNum."
        )));
    };
    match u32::try_from(minor) {
        Ok(minor) if major == 3 && minor <= Version::MAX.0 => Ok(Version(minor)),
        _ => Err(Fault::new(
            406,
            format!(
                "Version {text} is not supported by the API. Minimum is {} and maximum is {}.",
                Version::MIN,
                Version::MAX
            ),
        )),
    }
}

fn parse(text: &str) -> Option<(u64, u64)> {
    let (major, minor) = text.split_once('.')?;
    let number = |it: &str, zero: bool| -> Option<u64> {
        let digits = !it.is_empty() && it.bytes().all(|byte| byte.is_ascii_digit());
        let plain = digits && (!it.starts_with('0') || (zero && it == "0"));
        // A number too long for us is too new, not misspelt.
        plain.then(|| it.parse().unwrap_or(u64::MAX))
    };
    Some((number(major, false)?, number(minor, true)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negotiation() {
        let code = |header: &str| negotiate(Some(header)).map_err(|fault| fault.code);
        assert_eq!(negotiate(None).unwrap(), Version(0));
        assert_eq!(code("volume 3.71"), Ok(Version(71)));
        assert_eq!(code("volume latest"), Ok(Version(72)));
        assert_eq!(code("compute 2.1, volume 3.10"), Ok(Version(10)));
        assert_eq!(code("volume 3.10,volume 3.20"), Ok(Version(10)));
        for newer in ["volume 3.999", "volume 4.0", "volume 2.0", "volume 3.99999999999999999999"] {
            assert_eq!(code(newer), Err(406), "{newer}");
        }
        for wrong in
            ["volume 3", "volume abc", "volume 3.01", "compute 2.1", "", "Volume 3.5", "volume"]
        {
            assert_eq!(code(wrong), Err(400), "{wrong}");
        }
    }
}
