//! The negotiation of a connection, from the greeting to the transmission phase.
//!
//! Owns: the order of the options, what each is answered with, and the limits on them.
//! Never: waits, or touches the connection: its owner sends `output`, reads into `input`, and does
//! the TLS handshake when asked to.
//! Start reading at [`Negotiation::feed`].

use super::numbers::{
    EXPORT_NAME_PADDING, FIXED_NEWSTYLE, INFO_BLOCK_SIZE, INFO_DESCRIPTION, INFO_EXPORT, INFO_NAME,
    INIT_MAGIC, MAX_OPTION_LEN, MAX_SKIPPED_OPTION_LEN, NO_ZEROES, OPT_ABORT, OPT_EXPORT_NAME,
    OPT_GO, OPT_INFO, OPT_LIST, OPT_LIST_META_CONTEXT, OPT_SET_META_CONTEXT, OPT_STARTTLS,
    OPT_STRUCTURED_REPLY, OPTION_LEN, OPTION_MAGIC, OPTION_REPLY_MAGIC, REP_ACK,
    REP_ERR_BLOCK_SIZE_REQD, REP_ERR_INVALID, REP_ERR_POLICY, REP_ERR_TLS_REQD, REP_ERR_TOO_BIG,
    REP_ERR_UNKNOWN, REP_ERR_UNSUP, REP_INFO, REP_META_CONTEXT, REP_SERVER,
};
use super::options::{BadOption, ContextRequest, InfoRequest, string};
use super::{Context, Export, Session, TransmissionFlags};
use bytes::{Buf, BufMut, BytesMut};

#[cfg(test)]
mod tests;

/// Most options in one negotiation. Listing everything a server has takes a handful.
pub const MAX_OPTIONS: u32 = 1024;

/// A client that does not ask for block sizes is taken to keep to sectors of this size.
const ASSUMED_BLOCK_SIZE: u32 = 512;

/// What the server has to offer.
pub trait Exports {
    /// The export of that name. The empty name asks for the default export.
    fn find(&self, name: &str) -> Option<Export>;

    /// All exports, or `None` where the server does not tell.
    fn list(&self) -> Option<Vec<Export>>;
}

/// Whether connections are encrypted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Tls {
    #[default]
    Off,
    Offered,
    Required,
}

/// What the server's owner decided for all its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Policy {
    pub tls: Tls,
}

/// What to do next. Whatever it is, send `output` first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Read more into `input`, then feed again.
    NeedMore,
    /// Feed again at once: there may be more to do with the bytes at hand.
    Again,
    /// Do the TLS handshake as the server, call [`Negotiation::encrypted`], then feed again.
    StartTls,
    /// The rest of `input` is the beginning of the transmission phase.
    Done(Session),
    /// Close the connection.
    Close(CloseReason),
}

/// Why a negotiation ended without a session.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CloseReason {
    #[error("the client ended the negotiation")]
    Aborted,
    #[error("the client set unknown handshake flags {0:#x}")]
    ClientFlags(u32),
    #[error("an option begins with {0:#018x}, which is not the option magic")]
    OptionMagic(u64),
    #[error("option {option} has {len} bytes")]
    OptionTooLong { option: u32, len: u32 },
    #[error("the client sent more than {MAX_OPTIONS} options")]
    TooManyOptions,
    #[error("the client asked for an export that is not here, in a way that allows no answer")]
    NoSuchExport,
    #[error("the client asked for an export without the required encryption")]
    NotEncrypted,
    #[error("the client sent option {0} without having agreed to fixed newstyle")]
    NotFixedNewstyle(u32),
    #[error("the client sent bytes between asking for TLS and starting it")]
    BytesBeforeTls,
    #[error("the negotiation had ended already")]
    Ended,
}

/// Where in the conversation we are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Phase {
    ClientFlags,
    Options,
    /// Stepping over an option that is too long to look into.
    Skipping {
        option: u32,
        left: u32,
    },
    /// Waiting for [`Negotiation::encrypted`].
    Handshake,
    Ended,
}

/// One connection's negotiation.
#[derive(Debug)]
pub struct Negotiation {
    policy: Policy,
    phase: Phase,
    encrypted: bool,
    /// The handshake flags the client agreed to.
    client_flags: u32,
    structured: bool,
    /// The contexts selected, and the export name, as asked for, they were selected for.
    selected: Option<(String, Vec<Context>)>,
    options: u32,
}

impl Negotiation {
    /// Begins a negotiation and puts the greeting into `output`.
    pub fn new(policy: Policy, output: &mut BytesMut) -> Self {
        output.put_u64(INIT_MAGIC);
        output.put_u64(OPTION_MAGIC);
        output.put_u16(FIXED_NEWSTYLE | NO_ZEROES);
        Self {
            policy,
            phase: Phase::ClientFlags,
            encrypted: false,
            client_flags: 0,
            structured: false,
            selected: None,
            options: 0,
        }
    }

    /// Takes at most one message off `input` and puts the answer into `output`.
    ///
    /// One at a time, so that a client that sends many options at once cannot make the answers pile
    /// up: send `output` before feeding again.
    pub fn feed(
        &mut self,
        input: &mut BytesMut,
        exports: &impl Exports,
        output: &mut BytesMut,
    ) -> Step {
        let step = match self.phase {
            Phase::ClientFlags => self.client_flags(input),
            Phase::Options => self.option(input, exports, output),
            Phase::Skipping { option, left } => self.skip(input, option, left, output),
            Phase::Handshake if input.is_empty() => Step::StartTls,
            // They were not encrypted: someone between us and the client may have put them there.
            Phase::Handshake => Step::Close(CloseReason::BytesBeforeTls),
            Phase::Ended => Step::Close(CloseReason::Ended),
        };
        if matches!(step, Step::Done(_) | Step::Close(_)) {
            self.phase = Phase::Ended;
        }
        step
    }

    /// The TLS handshake is done. What was said before it is forgotten: it could have been forged.
    pub fn encrypted(&mut self) {
        if self.phase == Phase::Handshake {
            self.phase = Phase::Options;
            self.encrypted = true;
            self.structured = false;
            self.selected = None;
        }
    }

    fn client_flags(&mut self, input: &mut BytesMut) -> Step {
        let Ok(flags) = input.as_ref().try_get_u32() else {
            return Step::NeedMore;
        };
        if flags & !u32::from(FIXED_NEWSTYLE | NO_ZEROES) != 0 {
            return Step::Close(CloseReason::ClientFlags(flags));
        }
        input.advance(4);
        self.client_flags = flags;
        self.phase = Phase::Options;
        Step::Again
    }

    fn agreed_to(&self, flag: u16) -> bool {
        self.client_flags & u32::from(flag) != 0
    }

    fn option(
        &mut self,
        input: &mut BytesMut,
        exports: &impl Exports,
        output: &mut BytesMut,
    ) -> Step {
        let Some(mut head) = input.get(..OPTION_LEN) else {
            return Step::NeedMore;
        };
        let (magic, option, len) = (head.get_u64(), head.get_u32(), head.get_u32());
        if magic != OPTION_MAGIC {
            return Step::Close(CloseReason::OptionMagic(magic));
        }
        if self.options >= MAX_OPTIONS {
            return Step::Close(CloseReason::TooManyOptions);
        }
        if !self.agreed_to(FIXED_NEWSTYLE) && option != OPT_EXPORT_NAME {
            return Step::Close(CloseReason::NotFixedNewstyle(option));
        }
        if len > MAX_OPTION_LEN {
            // An export name cannot be answered with an error, nor is it worth reading so much.
            if len > MAX_SKIPPED_OPTION_LEN || option == OPT_EXPORT_NAME {
                return Step::Close(CloseReason::OptionTooLong { option, len });
            }
            input.advance(OPTION_LEN);
            self.options = self.options.saturating_add(1);
            self.phase = Phase::Skipping { option, left: len };
            return Step::Again;
        }
        let whole = OPTION_LEN.saturating_add(len as usize);
        if input.len() < whole {
            input.reserve(whole.saturating_sub(input.len()));
            return Step::NeedMore;
        }
        self.options = self.options.saturating_add(1);
        input.advance(OPTION_LEN);
        let data = input.split_to(len as usize);
        self.answer(option, &data, exports, &mut Answers { output, option })
    }

    fn skip(
        &mut self,
        input: &mut BytesMut,
        option: u32,
        left: u32,
        output: &mut BytesMut,
    ) -> Step {
        let here = u32::try_from(input.len()).unwrap_or(u32::MAX).min(left);
        input.advance(here as usize);
        let left = left.saturating_sub(here);
        if left > 0 {
            self.phase = Phase::Skipping { option, left };
            return Step::NeedMore;
        }
        self.phase = Phase::Options;
        Answers { output, option }.error(REP_ERR_TOO_BIG, "the option is too long")
    }

    fn answer(
        &mut self,
        option: u32,
        data: &[u8],
        exports: &impl Exports,
        answers: &mut Answers<'_>,
    ) -> Step {
        if self.policy.tls == Tls::Required && !self.encrypted {
            match option {
                OPT_STARTTLS | OPT_ABORT => {}
                OPT_EXPORT_NAME => return Step::Close(CloseReason::NotEncrypted),
                _ => return answers.error(REP_ERR_TLS_REQD, "start TLS first"),
            }
        }
        match option {
            OPT_EXPORT_NAME => self.export_name(data, exports, answers.output),
            OPT_ABORT => {
                answers.ack();
                Step::Close(CloseReason::Aborted)
            }
            OPT_LIST => list(data, exports, answers),
            OPT_STARTTLS => self.start_tls(data, answers),
            OPT_INFO | OPT_GO => self.info(data, exports, answers),
            OPT_STRUCTURED_REPLY => self.structured_reply(data, answers),
            OPT_LIST_META_CONTEXT | OPT_SET_META_CONTEXT => self.contexts(data, exports, answers),
            _ => answers.error(REP_ERR_UNSUP, "this server does not know the option"),
        }
    }

    fn export_name(&mut self, data: &[u8], exports: &impl Exports, output: &mut BytesMut) -> Step {
        let found = string(data).ok().and_then(|name| Some((name, exports.find(name)?)));
        let Some((name, export)) = found else {
            return Step::Close(CloseReason::NoSuchExport);
        };
        let session = self.session(name, export);
        output.put_u64(session.export.size_bytes());
        output.put_u16(session.export.flags().bits());
        if !self.agreed_to(NO_ZEROES) {
            output.put_bytes(0, EXPORT_NAME_PADDING);
        }
        Step::Done(session)
    }

    fn start_tls(&mut self, data: &[u8], answers: &mut Answers<'_>) -> Step {
        match (self.policy.tls, self.encrypted) {
            (Tls::Off, _) => answers.error(REP_ERR_POLICY, "this server does not use TLS"),
            (Tls::Offered | Tls::Required, true) => {
                answers.error(REP_ERR_INVALID, "the connection is encrypted already")
            }
            (Tls::Offered | Tls::Required, false) if !data.is_empty() => answers.unexpected_data(),
            (Tls::Offered | Tls::Required, false) => {
                answers.ack();
                self.phase = Phase::Handshake;
                // The next feed asks for the handshake, after it has seen that nothing followed.
                Step::Again
            }
        }
    }

    fn info(&mut self, data: &[u8], exports: &impl Exports, answers: &mut Answers<'_>) -> Step {
        let request = match InfoRequest::parse(data) {
            Ok(request) => request,
            Err(bad) => return answers.bad(bad),
        };
        let Some(export) = exports.find(request.name) else {
            return answers.error(REP_ERR_UNKNOWN, "there is no such export");
        };
        if export.block_size().minimum() > ASSUMED_BLOCK_SIZE && !request.wants_block_size {
            return answers.error(REP_ERR_BLOCK_SIZE_REQD, "this export needs larger blocks");
        }
        let session = self.session(request.name, export);
        let export = &session.export;
        answers.put(REP_INFO, |out| {
            out.put_u16(INFO_EXPORT);
            out.put_u64(export.size_bytes());
            out.put_u16(export.flags().bits());
        });
        if request.wants_name {
            answers.put(REP_INFO, |out| {
                out.put_u16(INFO_NAME);
                out.put_slice(export.name().as_bytes());
            });
        }
        if request.wants_description && !export.description().is_empty() {
            answers.put(REP_INFO, |out| {
                out.put_u16(INFO_DESCRIPTION);
                out.put_slice(export.description().as_bytes());
            });
        }
        if request.wants_block_size {
            answers.put(REP_INFO, |out| {
                out.put_u16(INFO_BLOCK_SIZE);
                out.put_u32(export.block_size().minimum());
                out.put_u32(export.block_size().preferred());
                out.put_u32(export.block_size().maximum());
            });
        }
        let step = answers.ack();
        if answers.option == OPT_GO { Step::Done(session) } else { step }
    }

    fn structured_reply(&mut self, data: &[u8], answers: &mut Answers<'_>) -> Step {
        if !data.is_empty() {
            return answers.unexpected_data();
        }
        if self.structured {
            return answers.error(REP_ERR_INVALID, "structured replies are agreed on already");
        }
        self.structured = true;
        answers.ack()
    }

    fn contexts(&mut self, data: &[u8], exports: &impl Exports, answers: &mut Answers<'_>) -> Step {
        let sets = answers.option == OPT_SET_META_CONTEXT;
        if sets {
            // Also a selection that fails replaces the one before it.
            self.selected = None;
        }
        if !self.structured {
            return answers.error(REP_ERR_INVALID, "agree on structured replies first");
        }
        let request = match ContextRequest::parse(data) {
            Ok(request) => request,
            Err(bad) => return answers.bad(bad),
        };
        if exports.find(request.name).is_none() {
            return answers.error(REP_ERR_UNKNOWN, "there is no such export");
        }
        let matches = |context: &Context| {
            let names_it = request.queries.iter().any(|query| *query == context.name());
            // Whoever lists may ask for everything, or for all of the namespace.
            let lists_it = request.queries.is_empty() || request.queries.contains(&"base:");
            names_it || (!sets && lists_it)
        };
        let chosen: Vec<Context> = Context::ALL.into_iter().filter(matches).collect();
        for context in &chosen {
            answers.put(REP_META_CONTEXT, |out| {
                // The number means something only once the context is selected.
                out.put_u32(if sets { context.id() } else { 0 });
                out.put_slice(context.name().as_bytes());
            });
        }
        if sets {
            self.selected = Some((request.name.to_owned(), chosen));
        }
        answers.ack()
    }

    /// What this client would get if it chose `export` now, under the name it asked for.
    fn session(&self, name: &str, export: Export) -> Session {
        let contexts = match &self.selected {
            Some((set_for, contexts)) if self.structured && set_for == name => contexts.clone(),
            Some(_) | None => Vec::new(),
        };
        let export =
            if self.structured { export } else { export.without(TransmissionFlags::SEND_DF) };
        Session { export, structured: self.structured, contexts, encrypted: self.encrypted }
    }
}

fn list(data: &[u8], exports: &impl Exports, answers: &mut Answers<'_>) -> Step {
    if !data.is_empty() {
        return answers.unexpected_data();
    }
    let Some(exports) = exports.list() else {
        return answers.error(REP_ERR_POLICY, "this server does not list its exports");
    };
    for export in exports {
        answers.put(REP_SERVER, |out| {
            // At most MAX_STRING_LEN, by construction of the export.
            out.put_u32(u32::try_from(export.name().len()).unwrap_or_default());
            out.put_slice(export.name().as_bytes());
            out.put_slice(export.description().as_bytes());
        });
    }
    answers.ack()
}

/// Where the answers to one option go.
struct Answers<'a> {
    output: &'a mut BytesMut,
    option: u32,
}

impl Answers<'_> {
    fn put(&mut self, kind: u32, body: impl FnOnce(&mut BytesMut)) {
        let mut bytes = BytesMut::new();
        body(&mut bytes);
        self.output.put_u64(OPTION_REPLY_MAGIC);
        self.output.put_u32(self.option);
        self.output.put_u32(kind);
        // Two texts and a few numbers at most.
        self.output.put_u32(u32::try_from(bytes.len()).unwrap_or_default());
        self.output.put_slice(&bytes);
    }

    fn ack(&mut self) -> Step {
        self.put(REP_ACK, |_| ());
        Step::Again
    }

    fn error(&mut self, kind: u32, message: &'static str) -> Step {
        self.put(kind, |out| out.put_slice(message.as_bytes()));
        Step::Again
    }

    fn unexpected_data(&mut self) -> Step {
        self.error(REP_ERR_INVALID, "the option carries no data")
    }

    fn bad(&mut self, bad: BadOption) -> Step {
        match bad {
            BadOption::Invalid => self.error(REP_ERR_INVALID, "the option is malformed"),
            BadOption::TooBig => self.error(REP_ERR_TOO_BIG, "a name is too long"),
        }
    }
}
