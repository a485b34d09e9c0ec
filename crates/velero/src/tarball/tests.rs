use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::*;

#[derive(Debug, Default, PartialEq)]
struct Kept(Vec<(String, Vec<u8>)>, Vec<String>);

impl Sink for Kept {
    fn begin(&mut self, path: &str, _: u64) -> io::Result<bool> {
        self.0.push((path.to_owned(), Vec::new()));
        Ok(true)
    }
    fn bytes(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.0.last_mut().unwrap().1.extend_from_slice(bytes);
        Ok(())
    }
    fn end(&mut self) -> io::Result<()> {
        Ok(())
    }
    fn left_out(&mut self, path: &str, _: &'static str) {
        self.1.push(path.to_owned());
    }
}

fn archive(members: &[(&str, &[u8])]) -> Vec<u8> {
    let mut out = Vec::new();
    for (path, bytes) in members {
        write_member(&mut out, path, bytes, 1_700_000_000).unwrap();
    }
    write_end(&mut out).unwrap();
    out
}

fn gzip(bytes: &[u8]) -> Vec<u8> {
    let mut out = GzEncoder::new(Vec::new(), Compression::fast());
    out.write_all(bytes).unwrap();
    out.finish().unwrap()
}

fn read(archive: &[u8]) -> Result<Kept, TarError> {
    let mut members = Members::new(Kept::default(), Limits::default());
    members.push(archive)?;
    members.finish()
}

fn unpack(packed: &[u8]) -> Result<Kept, TarError> {
    let mut unpacker = Unpacker::new(Kept::default(), Limits::default());
    for piece in packed.chunks(7) {
        unpacker.push(piece)?;
    }
    unpacker.finish()
}

#[test]
fn what_was_written_is_read_back_however_long_its_name() {
    let long = format!("resources/x/namespaces/{}/{}.json", "n".repeat(63), "o".repeat(200));
    let longer = format!("resources/{}", "p".repeat(300));
    let members: Vec<(&str, &[u8])> = vec![
        ("metadata/version", b"1.1.0\n"),
        ("resources/pods/namespaces/a/b.json", b"{}"),
        (&long, b"x"),
        (&longer, &[7; 512]),
        ("empty", b""),
    ];
    let kept = unpack(&gzip(&archive(&members))).unwrap();
    let wanted: Vec<_> = members.iter().map(|(p, b)| ((*p).to_owned(), b.to_vec())).collect();
    assert_eq!(kept.0, wanted);
}

#[test]
fn paths_that_climb_and_what_is_no_file_are_refused() {
    for path in ["/a", "a/../b", "./a", "a//b", "a\\/../b", "a/.", ".."] {
        let result = read(&archive(&[(path, b"x")]));
        assert!(matches!(result, Err(TarError::Path { .. })), "{path}: {result:?}");
    }
    for kind in *b"1234567" {
        let mut out = header("", "resources/a", 0, 0, kind).to_vec();
        write_end(&mut out).unwrap();
        let result = read(&out);
        if kind == b'5' {
            assert_eq!(result.unwrap(), Kept::default());
        } else {
            assert!(matches!(result, Err(TarError::Kind { .. })), "{kind}: {result:?}");
        }
    }
}

#[test]
fn a_member_that_has_an_odd_name_is_left_out_and_the_others_are_read() {
    let (long, longer) = ("a".repeat(1200), "b".repeat(100_000));
    let odd = ["a\nb", "r\\1", "\u{7f}", "\u{fffd}", "z\0q", "z\0r", &long, &longer];
    let paths: Vec<String> =
        odd.iter().map(|it| format!("resources/roles/namespaces/n/{it}.json")).collect();
    let mut members: Vec<(&str, &[u8])> = vec![("resources/first", b"1")];
    members.extend(paths.iter().map(|it| (it.as_str(), [7; 700].as_slice())));
    members.push(("resources/last", b"2"));
    let kept = unpack(&gzip(&archive(&members))).unwrap();
    let read: Vec<&str> = kept.0.iter().map(|(path, _)| path.as_str()).collect();
    assert_eq!(read, ["resources/first", "resources/last"]);
    assert_eq!(kept.1, paths);
}

#[test]
fn what_an_archive_may_hold_is_known_before_it_is_written() {
    let limits = Limits { members_max: 3, member_max_bytes: 700, ..Limits::default() };
    let mut account = Account::new(limits);
    assert!(matches!(account.admit("a", 701), Err(TarError::TooLong { .. })));
    assert!(matches!(account.admit("a\nb", 1), Err(TarError::Path { .. })));
    assert!(matches!(account.admit("a/../b", 1), Err(TarError::Path { .. })));
    for path in ["a", "b", "c"] {
        account.admit(path, 700).unwrap();
    }
    assert!(matches!(account.admit("d", 1), Err(TarError::TooMuch { .. })));
    // Whatever is admitted is read back, to the last byte.
    let long = "p".repeat(300);
    let members = [("a", [1; 700].as_slice()), (&long, &[2; 512]), ("b", &[])];
    let whole = archive(&members).len() as u64;
    let reads = |total_max_bytes| {
        let limits = Limits { total_max_bytes, ..Limits::default() };
        let mut account = Account::new(limits);
        members.iter().all(|(path, bytes)| account.admit(path, bytes.len() as u64).is_ok())
    };
    assert!(reads(whole) && !reads(whole - 1));
}

#[test]
fn a_member_twice_is_refused() {
    let result = read(&archive(&[("a", b"x"), ("a", b"y")]));
    assert!(matches!(result, Err(TarError::Twice { .. })), "{result:?}");
}

#[test]
fn lengths_beyond_the_limits_are_refused_before_anything_is_held() {
    let mut out = header("", "a", u64::MAX >> 28, 0, b'0').to_vec();
    assert!(matches!(read(&out), Err(TarError::TooLong { .. })));
    out = header("", "a", 1 << 30, 0, b'x').to_vec();
    assert!(matches!(read(&out), Err(TarError::TooLong { .. })));
    let limits = Limits { paths_max_bytes: 600, ..Limits::default() };
    let paths: Vec<String> = (0..8).map(|n| format!("{}{n}", "a".repeat(99))).collect();
    let many: Vec<(&str, &[u8])> = paths.iter().map(|it| (it.as_str(), b"".as_slice())).collect();
    let mut members = Members::new(Kept::default(), limits);
    let result = members.push(&archive(&many));
    assert!(matches!(result, Err(TarError::TooMuch { max: 600, .. })), "{result:?}");
    let limits = Limits { total_max_bytes: 4096, ..Limits::default() };
    let mut unpacker = Unpacker::new(Kept::default(), limits);
    let result = unpacker.push(&gzip(&vec![0; 1 << 20]));
    assert!(matches!(result, Err(TarError::TooMuch { .. })), "{result:?}");
}

#[test]
fn damage_is_told() {
    let whole = gzip(&archive(&[("a", &[1; 4000]), ("b", &[2; 4000])]));
    assert!(unpack(&whole).is_ok());
    for len in 0..whole.len() {
        assert!(unpack(&whole[..len]).is_err(), "cut to {len}");
    }
    for at in 0..whole.len() {
        // These bytes of the header of gzip say nothing.
        if (4..10).contains(&at) || at == 3 {
            continue;
        }
        let mut flipped = whole.clone();
        flipped[at] ^= 0xff;
        // Some streams of bits say the same in other words.
        let read = unpack(&flipped);
        assert!(
            read.as_ref().is_err() || read.as_ref().ok() == unpack(&whole).ok().as_ref(),
            "flipped at {at}"
        );
    }
    assert!(unpack(b"not gzip at all").is_err());
    assert!(unpack(&gzip(&b"garbage".repeat(1000))).is_err());
}

proptest! {
    #[test]
    fn any_split_reads_alike(cut in 0_usize..4096, body in prop::collection::vec(any::<u8>(), 0..1500)) {
        let whole = archive(&[("a/b", &body), ("c", b"z")]);
        let cut = cut.min(whole.len());
        let mut members = Members::new(Kept::default(), Limits::default());
        members.push(&whole[..cut]).unwrap();
        members.push(&whole[cut..]).unwrap();
        let kept = members.finish().unwrap();
        prop_assert_eq!(&kept.0[0].1, &body);
        prop_assert_eq!(&kept.0[1].0, "c");
    }

    #[test]
    fn noise_never_panics(noise in prop::collection::vec(any::<u8>(), 0..3000)) {
        let _ = read(&noise);
        let _ = unpack(&noise);
    }

    #[test]
    fn noise_in_a_header_never_panics(at in 0_usize..512, byte in any::<u8>()) {
        let mut whole = archive(&[("resources/a", b"x")]);
        whole[at] = byte;
        let _ = read(&whole);
    }
}
