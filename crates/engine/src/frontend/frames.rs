//! The frames of replicas, spoken by clients of the `socket` frontend.

use std::ops::ControlFlow;
use std::rc::Rc;

use bytes::BytesMut;
use wire::frame::{
    Answer, Limits, NO_SPACE_TEXT, Outcome, Reply, Request, decode_request, encode_reply,
    encode_runs,
};

use super::conn::{Conn, Protocol};
use super::parting::Told;
use crate::core::{Command, Done, Fault};
use crate::volume::outlet::Piece;
use crate::volume::pending::Asked;

pub(crate) struct Frames;

impl Protocol for Frames {
    type Request = Request;

    fn decode(&self, bytes: &mut BytesMut) -> Result<Option<Request>, String> {
        decode_request(bytes, Limits::default()).map_err(|error| error.to_string())
    }

    fn take(conn: &Rc<Conn<Self>>, request: Request) -> ControlFlow<()> {
        let size_bytes = conn.hub.size_bytes();
        match judge(request, size_bytes) {
            Judged::Submit(sequence, command) => conn.submit(u64::from(sequence), command),
            Judged::Answer(answer) => conn.send(piece(answer)),
            Judged::End => return ControlFlow::Break(()),
        }
        ControlFlow::Continue(())
    }

    fn answer(&self, asked: Asked, result: Result<Done, Fault>) -> Piece {
        let outcome = match result {
            Ok(Done::Data(data)) => Outcome::Data(data),
            Ok(Done::Count(count)) => Outcome::Count(count),
            Ok(Done::Runs(runs)) => Outcome::Data(encode_runs(&runs)),
            Err(Fault::NoSpace) => Outcome::NoSpace(NO_SPACE_TEXT.to_owned()),
            Err(fault @ (Fault::Beyond { .. } | Fault::Io(_) | Fault::Refused(_))) => {
                Outcome::Error(fault.to_string())
            }
        };
        // Sequence and offset came as these types.
        let sequence = u32::try_from(asked.tag).unwrap_or_default();
        let offset = i64::try_from(asked.offset).unwrap_or_default();
        piece(Answer { sequence, offset, outcome })
    }

    fn told(&self) -> Option<Told> {
        None
    }

    fn farewell(&self) -> Option<Piece> {
        encode_reply(&Reply::Close, Limits::default()).ok().map(Piece::from)
    }
}

/// What becomes of a request.
#[derive(Debug, PartialEq, Eq)]
enum Judged {
    Submit(u32, Command),
    Answer(Answer),
    End,
}

fn judge(request: Request, size_bytes: u64) -> Judged {
    let (sequence, offset, verb, len) = match &request {
        Request::Read { sequence, offset, size } => (*sequence, *offset, "Read", *size),
        Request::Write { sequence, offset, data } => {
            (*sequence, *offset, "Write", u32::try_from(data.len()).unwrap_or(u32::MAX))
        }
        Request::Unmap { sequence, offset, size } | Request::Discard { sequence, offset, size } => {
            (*sequence, *offset, "unmap", *size)
        }
        Request::Zero { sequence, offset, size } => (*sequence, *offset, "Write", *size),
        Request::Status { sequence, offset, size } => (*sequence, *offset, "Read", *size),
        Request::Flush { sequence } => return Judged::Submit(*sequence, Command::Flush),
        Request::Ping { sequence } => return at_once(*sequence, 0, Outcome::Count(0)),
        Request::Hello { sequence, .. } | Request::Record { sequence, .. } => {
            let text = "this is a volume, not one of its replicas".to_owned();
            return at_once(*sequence, 0, Outcome::Error(text));
        }
        Request::Close => return Judged::End,
    };
    let start = match u64::try_from(offset) {
        Ok(start) if start.checked_add(u64::from(len)).is_some_and(|end| end <= size_bytes) => {
            start
        }
        Ok(_) | Err(_) => {
            let (offset_, len, size) = (i128::from(offset), u64::from(len), size_bytes);
            let fault = Fault::Beyond { verb, offset: offset_, len, size };
            return at_once(sequence, offset, Outcome::Error(fault.to_string()));
        }
    };
    if len == 0 {
        return at_once(sequence, offset, Outcome::Count(0));
    }
    let most = Limits::default().max_payload;
    if matches!(request, Request::Read { .. }) && len > most {
        let text = format!("Read of {len} bytes is more than the {most} allowed");
        return at_once(sequence, offset, Outcome::Error(text));
    }
    Judged::Submit(sequence, command(request, start, len))
}

fn at_once(sequence: u32, offset: i64, outcome: Outcome) -> Judged {
    Judged::Answer(Answer { sequence, offset, outcome })
}

/// The command of a request that names a good range.
fn command(request: Request, offset: u64, len: u32) -> Command {
    match request {
        Request::Read { .. } => Command::Read { offset, len },
        Request::Write { data, .. } => Command::Write { offset, data, durable: false },
        Request::Unmap { .. } | Request::Discard { .. } => Command::Unmap { offset, len },
        Request::Zero { .. } => Command::Zero { offset, len, durable: false },
        Request::Status { .. } => Command::Status { offset, len },
        Request::Flush { .. }
        | Request::Ping { .. }
        | Request::Hello { .. }
        | Request::Record { .. }
        | Request::Close => Command::Flush,
    }
}

fn piece(answer: Answer) -> Piece {
    let (sequence, offset) = (answer.sequence, answer.offset);
    let encode = |answer| encode_reply(&Reply::Answer(answer), Limits::default());
    let frame = encode(answer).or_else(|error| {
        // No request is allowed to ask for as much.
        encode(Answer { sequence, offset, outcome: Outcome::Error(error.to_string()) })
    });
    match frame {
        Ok(frame) => frame.into(),
        Err(_) => Piece::empty(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;

    const SIZE: u64 = 1 << 20;

    fn text(judged: &Judged) -> &str {
        match judged {
            Judged::Answer(Answer { outcome: Outcome::Error(text), .. }) => text,
            other => panic!("an error, not {other:?}"),
        }
    }

    #[test]
    fn ranges_beyond_the_volume_are_answered_in_the_words_callers_match() {
        let read = Request::Read { sequence: 1, offset: 1 << 20, size: 512 };
        let expected = "EOF: Read of 512 bytes at offset 1048576 is beyond volume size 1048576";
        assert_eq!(text(&judge(read, SIZE)), expected);
        let data = Bytes::from(vec![0; 512]);
        let write = Request::Write { sequence: 1, offset: -512, data };
        let expected = "EOF: Write of 512 bytes at offset -512 is beyond volume size 1048576";
        assert_eq!(text(&judge(write, SIZE)), expected);
        let unmap = Request::Unmap { sequence: 1, offset: i64::MAX, size: u32::MAX };
        assert!(text(&judge(unmap, SIZE)).starts_with("EOF: unmap of 4294967295 bytes"));
    }

    #[test]
    fn requests_for_nothing_and_pings_need_no_replica() {
        let nothing = Request::Read { sequence: 7, offset: 512, size: 0 };
        let count = |offset| at_once(7, offset, Outcome::Count(0));
        assert_eq!(judge(nothing, SIZE), count(512));
        assert_eq!(judge(Request::Ping { sequence: 7 }, SIZE), count(0));
        assert_eq!(judge(Request::Close, SIZE), Judged::End);
    }

    #[test]
    fn a_read_of_more_than_a_frame_carries_is_refused() {
        let read = Request::Read { sequence: 1, offset: 0, size: (32 << 20) + 1 };
        assert!(text(&judge(read, 1 << 30)).contains("more than"));
    }
}
