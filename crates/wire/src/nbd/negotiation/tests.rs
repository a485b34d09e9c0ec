use super::*;
use crate::nbd::BlockSize;
use crate::nbd::client::{Agreed, Dial, DialError, Dialing, Method};
use proptest::prelude::*;

const SIZE: u64 = 64 << 20;

/// Two exports, the first also under the empty name.
struct Shelf {
    tells: bool,
    minimum: u32,
}

const SHELF: Shelf = Shelf { tells: true, minimum: 1 };

impl Exports for Shelf {
    fn find(&self, name: &str) -> Option<Export> {
        let block = BlockSize::new(self.minimum, 4096, 1 << 20).unwrap();
        let name = match name {
            "" | "one" => "one",
            "two" => "two",
            _ => return None,
        };
        let export = Export::new(name, SIZE, TransmissionFlags::VOLUME, block).unwrap();
        Some(export.described("first").unwrap())
    }

    fn list(&self) -> Option<Vec<Export>> {
        self.tells.then(|| ["one", "two"].iter().filter_map(|name| self.find(name)).collect())
    }
}

fn option(number: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    [b"IHAVEOPT", number.to_be_bytes().as_slice(), &len.to_be_bytes(), data].concat()
}

fn answer(number: u32, kind: u32, data: &[u8]) -> Vec<u8> {
    let len = u32::try_from(data.len()).unwrap();
    let magic = b"\0\x03\xe8\x89\x04\x55\x65\xa9".as_slice();
    [magic, &number.to_be_bytes(), &kind.to_be_bytes(), &len.to_be_bytes(), data].concat()
}

/// A connection that is past the client's flags, and what has been sent on it since.
struct Talk {
    negotiation: Negotiation,
    input: BytesMut,
    output: BytesMut,
}

impl Talk {
    fn begin(policy: Policy, flags: u32) -> Self {
        let mut output = BytesMut::new();
        let negotiation = Negotiation::new(policy, &mut output);
        let mut talk = Self { negotiation, input: BytesMut::new(), output };
        assert_eq!(talk.say(&flags.to_be_bytes()), Step::NeedMore);
        talk.output.clear();
        talk
    }

    fn plain() -> Self {
        Self::begin(Policy::default(), 3)
    }

    fn with_tls(tls: Tls) -> Self {
        Self::begin(Policy { tls }, 3)
    }

    /// Sends bytes and runs the machine until it wants something.
    fn say(&mut self, bytes: &[u8]) -> Step {
        self.say_to(bytes, &SHELF)
    }

    fn say_to(&mut self, bytes: &[u8], exports: &Shelf) -> Step {
        self.input.extend_from_slice(bytes);
        loop {
            match self.negotiation.feed(&mut self.input, exports, &mut self.output) {
                Step::Again => {}
                step => return step,
            }
        }
    }

    fn heard(&mut self) -> Vec<u8> {
        self.output.split().to_vec()
    }

    /// The types of the answers heard.
    fn kinds(&mut self) -> Vec<u32> {
        let mut kinds = Vec::new();
        while !self.output.is_empty() {
            assert_eq!(self.output.get_u64(), OPTION_REPLY_MAGIC);
            self.output.advance(4);
            kinds.push(self.output.get_u32());
            let len = self.output.get_u32();
            self.output.advance(len as usize);
        }
        kinds
    }
}

const INFO_ONE: &[u8] = b"\0\0\0\x03one\0\0";
const CONTEXT_ONE: &[u8] = b"\0\0\0\x03one\0\0\0\x01\0\0\0\x0fbase:allocation";
const ERR: u32 = 1 << 31;

#[test]
fn the_greeting_has_the_bytes_of_the_protocol_document() {
    let mut output = BytesMut::new();
    Negotiation::new(Policy::default(), &mut output);
    assert_eq!(output, b"NBDMAGICIHAVEOPT\0\x03".as_slice());
}

#[test]
fn go_has_the_bytes_of_the_protocol_document() {
    let mut talk = Talk::plain();
    let data = b"\0\0\0\x03one\0\x03\0\x01\0\x02\0\x03";
    let Step::Done(session) = talk.say(&option(7, data)) else {
        panic!("a session");
    };
    let golden = [
        // Without structured replies the "don't fragment" bit is not offered: 0xded less 0x80.
        answer(7, 3, b"\0\0\0\0\0\0\x04\0\0\0\x0d\x6d"),
        answer(7, 3, b"\0\x01one"),
        answer(7, 3, b"\0\x02first"),
        answer(7, 3, b"\0\x03\0\0\0\x01\0\0\x10\0\0\x10\0\0"),
        answer(7, 1, b""),
    ]
    .concat();
    assert_eq!(talk.heard(), golden);
    assert_eq!(session.export.name(), "one");
    assert!(!session.structured && session.contexts.is_empty() && !session.encrypted);
}

#[test]
fn export_name_has_the_bytes_of_the_protocol_document() {
    let short = b"\0\0\0\0\x04\0\0\0\x0d\x6d".to_vec();
    let long = [short.as_slice(), &[0; 124]].concat();
    for (flags, golden) in [(3, &short), (1, &long), (2, &short), (0, &long)] {
        let mut talk = Talk::begin(Policy::default(), flags);
        assert!(matches!(talk.say(&option(1, b"two")), Step::Done(_)));
        assert_eq!(&talk.heard(), golden);
    }
    let missing = Step::Close(CloseReason::NoSuchExport);
    assert_eq!(Talk::plain().say(&option(1, b"three")), missing);
    assert_eq!(Talk::plain().say(&option(1, b"\xff")), missing);
}

#[test]
fn the_exports_are_listed_if_the_server_tells() {
    let mut talk = Talk::plain();
    talk.say(&option(3, b""));
    let golden = [
        answer(3, 2, b"\0\0\0\x03onefirst"),
        answer(3, 2, b"\0\0\0\x03twofirst"),
        answer(3, 1, b""),
    ];
    assert_eq!(talk.heard(), golden.concat());
    talk.say(&option(3, b"?"));
    assert_eq!(talk.kinds(), [ERR | 3]);
    talk.say_to(&option(3, b""), &Shelf { tells: false, ..SHELF });
    assert_eq!(talk.kinds(), [ERR | 2]);
}

#[test]
fn the_context_is_selected_and_numbered() {
    let mut talk = Talk::plain();
    talk.say(&option(8, b""));
    talk.say(&option(10, CONTEXT_ONE));
    let golden =
        [answer(8, 1, b""), answer(10, 4, b"\0\0\0\x01base:allocation"), answer(10, 1, b"")];
    assert_eq!(talk.heard(), golden.concat());
    let Step::Done(session) = talk.say(&option(7, INFO_ONE)) else {
        panic!("a session");
    };
    assert_eq!(session.contexts, [Context::BaseAllocation]);
    assert!(session.structured);
    assert!(session.export.flags().contains(TransmissionFlags::SEND_DF));
}

#[test]
fn contexts_are_listed_by_wildcard_and_selected_by_name() {
    let none = b"\0\0\0\x03one\0\0\0\0".as_slice();
    let all = b"\0\0\0\x03one\0\0\0\x01\0\0\0\x05base:".as_slice();
    let other = b"\0\0\0\x03one\0\0\0\x01\0\0\0\x06qemu:x".as_slice();
    let twice = b"\0\0\0\x03one\0\0\0\x02\0\0\0\x0fbase:allocation\0\0\0\x0fbase:allocation";
    let missing = b"\0\0\0\x03six\0\0\0\0".as_slice();
    for (number, data, kinds) in [
        (9, none, vec![4, 1]),
        (9, all, vec![4, 1]),
        (9, CONTEXT_ONE, vec![4, 1]),
        (9, other, vec![1]),
        (9, twice.as_slice(), vec![4, 1]),
        (9, missing, vec![ERR | 6]),
        (10, none, vec![1]),
        (10, all, vec![1]),
        (10, CONTEXT_ONE, vec![4, 1]),
        (10, other, vec![1]),
        (10, twice.as_slice(), vec![4, 1]),
        (10, missing, vec![ERR | 6]),
        (10, b"junk", vec![ERR | 3]),
    ] {
        let mut talk = Talk::plain();
        talk.say(&option(8, b""));
        talk.heard();
        talk.say(&option(number, data));
        assert_eq!(talk.kinds(), kinds, "option {number}, {data:?}");
    }
}

#[test]
fn a_selection_counts_only_for_the_export_it_names_and_only_the_last_one() {
    let contexts = |options: &[Vec<u8>]| {
        let mut talk = Talk::plain();
        match talk.say(&options.concat()) {
            Step::Done(session) => session.contexts.len(),
            step => panic!("{step:?}"),
        }
    };
    let structured = option(8, b"");
    let select = option(10, CONTEXT_ONE);
    let go = |name: &[u8]| option(7, &[b"\0\0\0\x03", name, b"\0\0"].concat());
    assert_eq!(contexts(&[structured.clone(), select.clone(), go(b"one")]), 1);
    assert_eq!(contexts(&[structured.clone(), select.clone(), go(b"two")]), 0);
    let failed = option(10, b"junk");
    assert_eq!(contexts(&[structured, select.clone(), failed, go(b"one")]), 0);
    assert_eq!(contexts(&[select, go(b"one")]), 0);
}

#[test]
fn bad_options_are_refused_and_the_talk_goes_on() {
    let mut talk = Talk::plain();
    let too_long = vec![b'a'; MAX_OPTION_LEN as usize + 1];
    let long_name = [4097u32.to_be_bytes().as_slice(), &[b'a'; 4097], b"\0\0"].concat();
    for (number, data, kind) in [
        (4, b"".as_slice(), ERR | 1),
        (11, b"", ERR | 1),
        (0, b"", ERR | 1),
        (u32::MAX, b"data", ERR | 1),
        (6, b"\0\0\0\x05three\0\0", ERR | 6),
        (7, b"\0\0\0\x05three\0\0", ERR | 6),
        (6, b"junk", ERR | 3),
        (7, b"", ERR | 3),
        (7, long_name.as_slice(), ERR | 9),
        (5, b"", ERR | 2),
        (8, b"data", ERR | 3),
        (9, CONTEXT_ONE, ERR | 3),
        (6, too_long.as_slice(), ERR | 9),
    ] {
        assert_eq!(talk.say(&option(number, data)), Step::NeedMore, "option {number}");
        assert_eq!(talk.kinds(), [kind], "option {number}");
    }
    talk.say(&option(8, b""));
    talk.say(&option(8, b""));
    assert_eq!(talk.kinds(), [1, ERR | 3]);
    talk.say(&option(6, INFO_ONE));
    assert_eq!(talk.kinds(), [3, 1]);
    assert!(matches!(talk.say(&option(7, INFO_ONE)), Step::Done(_)));
}

#[test]
fn an_export_with_large_blocks_is_for_clients_that_ask_for_them() {
    let shelf = Shelf { minimum: 4096, ..SHELF };
    let mut talk = Talk::plain();
    assert_eq!(talk.say_to(&option(7, INFO_ONE), &shelf), Step::NeedMore);
    assert_eq!(talk.kinds(), [ERR | 8]);
    let asks = option(7, b"\0\0\0\x03one\0\x01\0\x03");
    assert!(matches!(talk.say_to(&asks, &shelf), Step::Done(_)));
}

#[test]
fn what_breaks_the_protocol_ends_the_connection() {
    use CloseReason as R;
    let close = |bytes: &[u8]| match Talk::plain().say(bytes) {
        Step::Close(reason) => reason,
        step => panic!("{step:?}"),
    };
    assert_eq!(close(b"IHAVEOPS\0\0\0\x01\0\0\0\0"), R::OptionMagic(0x4948_4156_454f_5053));
    let huge = R::OptionTooLong { option: 6, len: u32::MAX };
    assert_eq!(close(b"IHAVEOPT\0\0\0\x06\xff\xff\xff\xff"), huge);
    let name = R::OptionTooLong { option: 1, len: 0x10000 };
    assert_eq!(close(b"IHAVEOPT\0\0\0\x01\0\x01\0\0"), name);
    assert_eq!(close(&option(3, b"").repeat(MAX_OPTIONS as usize + 1)), R::TooManyOptions);
    let mut talk = Talk::plain();
    assert_eq!(talk.say(&option(2, b"")), Step::Close(R::Aborted));
    assert_eq!(talk.kinds(), [1]);
    assert_eq!(talk.say(&option(2, b"")), Step::Close(R::Ended));
    let mut old = Talk::begin(Policy::default(), 0);
    assert_eq!(old.say(&option(3, b"")), Step::Close(R::NotFixedNewstyle(3)));
    let (mut output, mut input) = (BytesMut::new(), BytesMut::from(&[0, 0, 0, 7][..]));
    let mut fresh = Negotiation::new(Policy::default(), &mut output);
    let unknown = Step::Close(R::ClientFlags(7));
    assert_eq!(fresh.feed(&mut input, &SHELF, &mut output), unknown);
}

#[test]
fn required_encryption_comes_before_everything() {
    let mut talk = Talk::with_tls(Tls::Required);
    for number in [3, 6, 7, 8, 9, 10, 11] {
        talk.say(&option(number, b""));
        assert_eq!(talk.kinds(), [ERR | 5], "option {number}");
    }
    assert_eq!(talk.say(&option(5, b"data")), Step::NeedMore);
    assert_eq!(talk.kinds(), [ERR | 3]);
    assert_eq!(talk.say(&option(5, b"")), Step::StartTls);
    assert_eq!(talk.kinds(), [1]);
    talk.negotiation.encrypted();
    talk.say(&option(5, b""));
    assert_eq!(talk.kinds(), [ERR | 3]);
    assert!(matches!(talk.say(&option(7, INFO_ONE)), Step::Done(s) if s.encrypted));
    let refused = Step::Close(CloseReason::NotEncrypted);
    assert_eq!(Talk::with_tls(Tls::Required).say(&option(1, b"one")), refused);
    let aborted = Step::Close(CloseReason::Aborted);
    assert_eq!(Talk::with_tls(Tls::Required).say(&option(2, b"")), aborted);
}

#[test]
fn nothing_said_before_encryption_counts_after_it() {
    let mut talk = Talk::with_tls(Tls::Offered);
    talk.say(&[option(8, b""), option(10, CONTEXT_ONE)].concat());
    assert_eq!(talk.say(&option(5, b"")), Step::StartTls);
    talk.negotiation.encrypted();
    let Step::Done(session) = talk.say(&option(7, INFO_ONE)) else {
        panic!("a session");
    };
    assert!(session.encrypted && !session.structured && session.contexts.is_empty());
}

#[test]
fn bytes_smuggled_in_before_encryption_end_the_connection() {
    let mut talk = Talk::with_tls(Tls::Offered);
    let smuggled = [option(5, b""), option(7, INFO_ONE)].concat();
    assert_eq!(talk.say(&smuggled), Step::Close(CloseReason::BytesBeforeTls));
    // Without a handshake asked for, the word of the owner changes nothing.
    let mut talk = Talk::with_tls(Tls::Required);
    talk.negotiation.encrypted();
    talk.say(&option(7, INFO_ONE));
    assert_eq!(talk.kinds(), [ERR | 5]);
}

#[test]
fn options_that_come_at_once_are_answered_one_at_a_time() {
    let mut talk = Talk::plain();
    talk.input.extend_from_slice(&option(3, b"").repeat(3));
    for _ in 0..3 {
        assert_eq!(talk.negotiation.feed(&mut talk.input, &SHELF, &mut talk.output), Step::Again);
        assert_eq!(talk.kinds(), [2, 2, 1]);
    }
}

/// Both ends of a negotiation, bytes passed to and fro.
fn meet(dial: Dial) -> Result<(Agreed, Session), (DialError, BytesMut)> {
    let (mut to_client, mut to_server) = (BytesMut::new(), BytesMut::new());
    let mut server = Negotiation::new(Policy::default(), &mut to_client);
    let mut client = Dialing::new(dial);
    let mut session = None;
    for _ in 0..32 {
        match client.feed(&mut to_client, &mut to_server) {
            Ok(Some(agreed)) => return Ok((agreed, session.unwrap())),
            Ok(None) => {}
            Err(error) => return Err((error, to_server)),
        }
        if let Step::Done(done) = server.feed(&mut to_server, &SHELF, &mut to_client) {
            session = Some(done);
        }
    }
    panic!("the two never come to an end");
}

#[test]
fn our_client_and_our_server_agree() {
    for structured in [false, true] {
        for method in [Method::Go, Method::ExportName] {
            let dial = Dial { export: "two".into(), method, structured, allocation: structured };
            let (agreed, session) = meet(dial).unwrap();
            assert_eq!(agreed.size_bytes, SIZE);
            assert_eq!(agreed.flags, session.export.flags());
            assert_eq!((agreed.structured, session.structured), (structured, structured));
            assert_eq!(agreed.allocation, structured.then_some(1));
            assert_eq!(session.contexts.len(), usize::from(structured));
            let told = (method == Method::Go).then_some((1, 4096, 1 << 20));
            assert_eq!(agreed.block_size, told);
        }
    }
    let (error, _) = meet(Dial { export: "three".into(), ..Dial::default() }).unwrap_err();
    assert!(matches!(error, DialError::Refused { option: 7, kind, .. } if kind == ERR | 6));
}

/// Runs a whole client stream through a new negotiation, cut at `cuts`.
fn run(policy: Policy, whole: &[u8], cuts: &[usize]) -> (Step, BytesMut) {
    let (mut output, mut input) = (BytesMut::new(), BytesMut::new());
    let mut negotiation = Negotiation::new(policy, &mut output);
    for piece in crate::pieces(whole, cuts) {
        input.extend_from_slice(&piece);
        loop {
            match negotiation.feed(&mut input, &SHELF, &mut output) {
                Step::Again => {}
                Step::NeedMore => break,
                step @ (Step::Done(_) | Step::Close(_) | Step::StartTls) => return (step, output),
            }
        }
    }
    (Step::NeedMore, output)
}

fn options() -> impl Strategy<Value = Vec<u8>> {
    let data = prop_oneof![
        Just(Vec::new()),
        Just(INFO_ONE.to_vec()),
        Just(CONTEXT_ONE.to_vec()),
        prop::collection::vec(any::<u8>(), 0..64),
        Just(vec![0; MAX_OPTION_LEN as usize + 9]),
    ];
    // Without STARTTLS, whose meaning depends on what has arrived together with it.
    let number = prop::sample::select(vec![1u32, 2, 3, 6, 6, 6, 7, 8, 8, 9, 10, 11, 99]);
    (number, data).prop_map(|(number, data)| option(number, &data))
}

proptest! {
    #[test]
    fn any_split_of_a_negotiation_ends_alike(
        options in prop::collection::vec(options(), 0..8),
        flags in 0u32..5,
        cuts in prop::collection::vec(any::<usize>(), 0..12),
    ) {
        let whole = [flags.to_be_bytes().to_vec(), options.concat()].concat();
        let once = run(Policy::default(), &whole, &[]);
        prop_assert_eq!(once, run(Policy::default(), &whole, &cuts));
    }

    #[test]
    fn noise_never_panics(
        noise in prop::collection::vec(any::<u8>(), 0..300),
        tls in prop::sample::select(vec![Tls::Off, Tls::Offered, Tls::Required]),
        number in 0u32..12,
    ) {
        run(Policy { tls }, &noise, &[]);
        let framed = [b"\0\0\0\x03".as_slice(), &option(number, &noise), &noise].concat();
        run(Policy { tls }, &framed, &[]);
    }
}
