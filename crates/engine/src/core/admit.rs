//! Which requests are taken at all, and which are answered at once.

use bytes::Bytes;
use wire::frame::Limits;

use super::op::{Kind, Op};
use super::slab::REQUESTS_MAX;
use super::{Command, Core, Done, Fault, Now, Token};

impl Core {
    /// The request to be done, or how it ends without being done.
    pub(super) fn admit(
        &self,
        now: Now,
        token: Token,
        command: Command,
    ) -> Result<Op, Result<Done, Fault>> {
        let op = Op { token: Some(token), asked: now, ..self.prepare(command)? };
        check_range(&op, self.size).map_err(Err)?;
        if self.members.rw() == 0 {
            return Err(Err(self.members.nobody_left()));
        }
        if self.ops.len() >= REQUESTS_MAX {
            let text = format!("more than {REQUESTS_MAX} requests at a time");
            return Err(Err(Fault::Refused(text)));
        }
        match op.kind {
            Kind::Flush | Kind::Record => Ok(op),
            _ if op.len > 0 => Ok(op),
            Kind::Read => Err(Ok(Done::Data(Bytes::new()))),
            Kind::Status => Err(Ok(Done::Runs(vec![]))),
            Kind::Write | Kind::Zero | Kind::Unmap | Kind::Mend => Err(Ok(Done::Count(0))),
            Kind::Mark | Kind::Round | Kind::Ping => Ok(op),
        }
    }

    fn prepare(&self, command: Command) -> Result<Op, Result<Done, Fault>> {
        let through = self.settings.write_through;
        let of = |kind, offset, len| Op { offset, len, ..Op::inner(kind) };
        Ok(match command {
            Command::Read { offset, len } => {
                check_payload(len as usize).map_err(Err)?;
                of(Kind::Read, offset, len)
            }
            Command::Write { offset, data, durable } => {
                let len = check_payload(data.len()).map_err(Err)?;
                Op { data, durable: durable || through, ..of(Kind::Write, offset, len) }
            }
            Command::Zero { offset, len, durable } => {
                Op { durable: durable || through, ..of(Kind::Zero, offset, len) }
            }
            Command::Unmap { offset, len } => {
                Op { durable: through, ..of(Kind::Unmap, offset, len) }
            }
            Command::Status { offset, len } => of(Kind::Status, offset, len),
            Command::Mend { offset, len } => of(Kind::Mend, offset, len),
            Command::Flush => of(Kind::Flush, 0, 0),
            Command::Record => of(Kind::Record, 0, 0),
        })
    }
}

fn check_payload(len: usize) -> Result<u32, Fault> {
    let max = Limits::default().max_payload;
    match u32::try_from(len) {
        Ok(len) if len <= max => Ok(len),
        Ok(_) | Err(_) => Err(Fault::Refused(format!(
            "{len} bytes in one request are more than the {max} allowed"
        ))),
    }
}

fn check_range(op: &Op, size: u64) -> Result<(), Fault> {
    let verb = match op.kind {
        Kind::Read | Kind::Status => "Read",
        Kind::Write | Kind::Zero | Kind::Mend => "Write",
        Kind::Unmap => "unmap",
        Kind::Flush | Kind::Record | Kind::Mark | Kind::Round | Kind::Ping => return Ok(()),
    };
    let len = u64::from(op.len);
    match op.offset.checked_add(len) {
        Some(end) if end <= size => Ok(()),
        Some(_) | None => Err(Fault::Beyond { verb, offset: i128::from(op.offset), len, size }),
    }
}
