//! Archives of files that are not compressed: what of the ZIP format that needs. Pure.

use flate2::Crc;

const LOCAL: u32 = 0x0403_4b50;
const CENTRAL: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
/// 1 January 1980, which is the first that can be said.
const DATE: u16 = 0x21;

/// An archive with these files, in this order.
pub(super) fn pack(files: &[(String, Vec<u8>)]) -> Result<Vec<u8>, String> {
    let (mut archive, mut central) = (Vec::new(), Vec::new());
    for (name, bytes) in files {
        let at = length(archive.len())?;
        let head = head(name, bytes)?;
        archive.extend(LOCAL.to_le_bytes());
        archive.extend(20_u16.to_le_bytes());
        archive.extend(&head);
        archive.extend(name.as_bytes());
        archive.extend(bytes);
        central.extend(CENTRAL.to_le_bytes());
        central.extend([20, 0, 20, 0]);
        central.extend(&head);
        // No comment, one disk, no attributes.
        central.extend([0; 10]);
        central.extend(at.to_le_bytes());
        central.extend(name.as_bytes());
    }
    let count = u16::try_from(files.len()).map_err(|_| "too many files for an archive")?;
    let (at, size) = (length(archive.len())?, length(central.len())?);
    archive.extend(&central);
    archive.extend(END.to_le_bytes());
    archive.extend([0; 4]);
    archive.extend(count.to_le_bytes());
    archive.extend(count.to_le_bytes());
    archive.extend(size.to_le_bytes());
    archive.extend(at.to_le_bytes());
    archive.extend([0; 2]);
    Ok(archive)
}

/// What both entries of a file say of it.
fn head(name: &str, bytes: &[u8]) -> Result<Vec<u8>, String> {
    let mut crc = Crc::new();
    crc.update(bytes);
    let size = length(bytes.len())?;
    let name = u16::try_from(name.len()).map_err(|_| "a name is too long for an archive")?;
    let mut head = Vec::new();
    // No flags, stored, and the time.
    head.extend([0; 6]);
    head.extend(DATE.to_le_bytes());
    head.extend(crc.sum().to_le_bytes());
    head.extend(size.to_le_bytes());
    head.extend(size.to_le_bytes());
    head.extend(name.to_le_bytes());
    head.extend([0; 2]);
    Ok(head)
}

fn length(bytes: usize) -> Result<u32, String> {
    u32::try_from(bytes).map_err(|_| "the archive would be larger than 4 GiB".to_owned())
}

/// The files of an archive that [`pack`] made.
pub(super) fn unpack(archive: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let mut files = Vec::new();
    let mut rest = archive;
    loop {
        let (mark, after) = number(rest)?;
        if mark != LOCAL {
            return Ok(files);
        }
        let wrong = || "the archive ends in the middle of a file".to_owned();
        let field = |at: usize| after.get(at..).ok_or_else(wrong).and_then(number).map(|it| it.0);
        let (method, sum, size) = (field(2)? >> 16, field(10)?, field(14)?);
        let names = field(22)?;
        let (name_len, extra) = (usize::from(low(names)), usize::from(low(names >> 16)));
        if method != 0 {
            return Err("the archive is compressed, and was made by another program".to_owned());
        }
        let after = after.get(26..).ok_or_else(wrong)?;
        let name = String::from_utf8(after.get(..name_len).ok_or_else(wrong)?.to_vec());
        let name = name.map_err(|_| "a name in the archive is not UTF-8".to_owned())?;
        let after = after.get(name_len + extra..).ok_or_else(wrong)?;
        let size = usize::try_from(size).map_err(|_| wrong())?;
        let bytes = after.get(..size).ok_or_else(wrong)?;
        let mut crc = Crc::new();
        crc.update(bytes);
        if crc.sum() != sum {
            return Err(format!("{name} in the archive is damaged"));
        }
        files.push((name, bytes.to_vec()));
        rest = after.get(size..).ok_or_else(wrong)?;
    }
}

fn low(number: u32) -> u16 {
    u16::try_from(number & 0xffff).unwrap_or_default()
}

fn number(bytes: &[u8]) -> Result<(u32, &[u8]), String> {
    let (head, rest) = bytes.split_first_chunk::<4>().ok_or("the archive ends too early")?;
    Ok((u32::from_le_bytes(*head), rest))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn files() -> Vec<(String, Vec<u8>)> {
        vec![("a.json".to_owned(), b"{}".to_vec()), ("b/c.json".to_owned(), vec![7; 5000])]
    }

    #[test]
    fn what_is_packed_is_unpacked() {
        assert_eq!(unpack(&pack(&files()).unwrap()).unwrap(), files());
        assert_eq!(unpack(&pack(&[]).unwrap()).unwrap(), []);
    }

    #[test]
    fn damage_is_told_and_nothing_panics() {
        let whole = pack(&files()).unwrap();
        for end in 0..whole.len().min(200) {
            let _ = unpack(&whole[..end]);
        }
        let mut flipped = whole;
        flipped[36] ^= 1;
        assert!(unpack(&flipped).is_err());
    }
}
