//! The numbers of the protocol, by the names the protocol document gives them.

/// The port registered for NBD.
pub const DEFAULT_PORT: u16 = 10809;

/// The payload every client may count on, and the most we take or give in one request.
pub const MAX_PAYLOAD: u32 = 32 << 20;

/// The protocol's own bound on names, descriptions and messages.
pub const MAX_STRING_LEN: usize = 4096;

/// Longest option we look into: a name and some dozens of queries with room to spare.
pub const MAX_OPTION_LEN: u32 = 32 << 10;

/// Longest option we step over to answer it with "too big"; beyond it the client is not serious.
pub(super) const MAX_SKIPPED_OPTION_LEN: u32 = 1 << 20;

pub(super) const INIT_MAGIC: u64 = 0x4e42_444d_4147_4943; // "NBDMAGIC"
pub(super) const OPTION_MAGIC: u64 = 0x4948_4156_454f_5054; // "IHAVEOPT"
pub(super) const OPTION_REPLY_MAGIC: u64 = 0x0003_e889_0455_65a9;
pub(super) const REQUEST_MAGIC: u32 = 0x2560_9513;
pub(super) const SIMPLE_REPLY_MAGIC: u32 = 0x6744_6698;
pub(super) const STRUCTURED_REPLY_MAGIC: u32 = 0x668e_33ef;

pub(super) const GREETING_LEN: usize = 18;
pub(super) const OPTION_LEN: usize = 16;
pub(super) const OPTION_REPLY_LEN: usize = 20;
pub(super) const SIMPLE_REPLY_LEN: usize = 16;
pub(super) const CHUNK_LEN: usize = 20;
/// Zeroes after the answer to `EXPORT_NAME`, unless both sides agreed to leave them out.
pub(super) const EXPORT_NAME_PADDING: usize = 124;

/// Handshake flags; the client's answer uses the same bits in a wider field.
pub(super) const FIXED_NEWSTYLE: u16 = 1;
pub(super) const NO_ZEROES: u16 = 2;

pub(super) const OPT_EXPORT_NAME: u32 = 1;
pub(super) const OPT_ABORT: u32 = 2;
pub(super) const OPT_LIST: u32 = 3;
pub(super) const OPT_STARTTLS: u32 = 5;
pub(super) const OPT_INFO: u32 = 6;
pub(super) const OPT_GO: u32 = 7;
pub(super) const OPT_STRUCTURED_REPLY: u32 = 8;
pub(super) const OPT_LIST_META_CONTEXT: u32 = 9;
pub(super) const OPT_SET_META_CONTEXT: u32 = 10;

pub(super) const REP_ACK: u32 = 1;
pub(super) const REP_SERVER: u32 = 2;
pub(super) const REP_INFO: u32 = 3;
pub(super) const REP_META_CONTEXT: u32 = 4;
pub(super) const REP_ERROR_BIT: u32 = 1 << 31;
pub(super) const REP_ERR_UNSUP: u32 = REP_ERROR_BIT | 1;
pub(super) const REP_ERR_POLICY: u32 = REP_ERROR_BIT | 2;
pub(super) const REP_ERR_INVALID: u32 = REP_ERROR_BIT | 3;
pub(super) const REP_ERR_TLS_REQD: u32 = REP_ERROR_BIT | 5;
pub(super) const REP_ERR_UNKNOWN: u32 = REP_ERROR_BIT | 6;
pub(super) const REP_ERR_BLOCK_SIZE_REQD: u32 = REP_ERROR_BIT | 8;
pub(super) const REP_ERR_TOO_BIG: u32 = REP_ERROR_BIT | 9;

pub(super) const INFO_EXPORT: u16 = 0;
pub(super) const INFO_NAME: u16 = 1;
pub(super) const INFO_DESCRIPTION: u16 = 2;
pub(super) const INFO_BLOCK_SIZE: u16 = 3;

pub(super) const CMD_READ: u16 = 0;
pub(super) const CMD_WRITE: u16 = 1;
pub(super) const CMD_DISC: u16 = 2;
pub(super) const CMD_FLUSH: u16 = 3;
pub(super) const CMD_TRIM: u16 = 4;
pub(super) const CMD_CACHE: u16 = 5;
pub(super) const CMD_WRITE_ZEROES: u16 = 6;
pub(super) const CMD_BLOCK_STATUS: u16 = 7;
pub(super) const CMD_RESIZE: u16 = 8;

pub(super) const CHUNK_DONE: u16 = 1;
pub(super) const CHUNK_NONE: u16 = 0;
pub(super) const CHUNK_OFFSET_DATA: u16 = 1;
pub(super) const CHUNK_OFFSET_HOLE: u16 = 2;
pub(super) const CHUNK_BLOCK_STATUS: u16 = 5;
pub(super) const CHUNK_ERROR: u16 = 0x8001;
pub(super) const CHUNK_ERROR_OFFSET: u16 = 0x8002;
