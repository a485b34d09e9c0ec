//! NBD negotiation: a stranger as the client of our server, and as the server of our client.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use wire::nbd::client::{Dial, Dialing, Method};
use wire::nbd::{BlockSize, Export, Exports, Negotiation, Policy, Step, Tls, TransmissionFlags};

struct One;

impl Exports for One {
    fn find(&self, name: &str) -> Option<Export> {
        let block = BlockSize::default();
        (name.len() < 2)
            .then(|| Export::new(name, 1 << 20, TransmissionFlags::VOLUME, block).ok())?
    }

    fn list(&self) -> Option<Vec<Export>> {
        Some(self.find("v").into_iter().collect())
    }
}

fn serve(tls: Tls, bytes: &[u8]) {
    let (mut input, mut output) = (BytesMut::from(bytes), BytesMut::new());
    let mut negotiation = Negotiation::new(Policy { tls }, &mut output);
    loop {
        output.clear();
        let before = input.len();
        match negotiation.feed(&mut input, &One, &mut output) {
            Step::Again => assert!(input.len() < before, "every step takes something"),
            Step::StartTls => return,
            Step::NeedMore | Step::Close(_) => break,
            Step::Done(session) => {
                assert!(session.structured || session.contexts.is_empty());
                assert!(tls != Tls::Required, "no session without encryption");
                break;
            }
        }
        assert!(output.len() < 64 << 10, "an answer is bounded");
    }
}

fuzz_target!(|input: (u8, &[u8])| {
    let (choice, bytes) = input;
    let tls = match choice % 3 {
        0 => Tls::Off,
        1 => Tls::Offered,
        _ => Tls::Required,
    };
    serve(tls, bytes);
    let with_flags = [b"\0\0\0\x03".as_slice(), bytes].concat();
    serve(tls, &with_flags);
    let asks = choice % 2 == 0;
    let method = if choice % 5 == 0 { Method::ExportName } else { Method::Go };
    let dial = Dial { export: "v".into(), method, structured: asks, allocation: asks };
    let greeted = [b"NBDMAGICIHAVEOPT\0\x03".as_slice(), bytes].concat();
    let _ = Dialing::new(dial).feed(&mut BytesMut::from(&greeted[..]), &mut BytesMut::new());
});
