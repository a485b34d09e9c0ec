//! The error numbers the protocol knows. They are fixed, whatever the host's own are.

/// Why a request failed, in the words a client understands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[repr(u32)]
pub enum Errno {
    #[error("operation not permitted")]
    Perm = 1,
    #[error("input or output error")]
    Io = 5,
    #[error("out of memory")]
    NoMem = 12,
    #[error("invalid argument")]
    Inval = 22,
    #[error("no space left on device")]
    NoSpc = 28,
    #[error("value too large")]
    Overflow = 75,
    #[error("operation not supported")]
    NotSup = 95,
    #[error("server is shutting down")]
    Shutdown = 108,
}

impl Errno {
    pub const fn code(self) -> u32 {
        self as u32
    }

    /// Reads a number off the wire. One that the protocol does not define counts as `Inval`, as the
    /// protocol document asks of clients.
    pub const fn from_code(code: u32) -> Self {
        match code {
            1 => Self::Perm,
            5 => Self::Io,
            12 => Self::NoMem,
            28 => Self::NoSpc,
            75 => Self::Overflow,
            95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Inval,
        }
    }

    /// Maps an error number of the host (Linux) to the nearest one of the protocol.
    pub const fn from_host(errno: i32) -> Self {
        match errno {
            // EPERM, EACCES, EROFS
            1 | 13 | 30 => Self::Perm,
            12 => Self::NoMem,
            // EINVAL, EDOM
            22 | 33 => Self::Inval,
            // ENOSPC, EFBIG, EDQUOT
            28 | 27 | 122 => Self::NoSpc,
            75 => Self::Overflow,
            // ENOSYS, EOPNOTSUPP
            38 | 95 => Self::NotSup,
            108 => Self::Shutdown,
            _ => Self::Io,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Errno;

    #[test]
    fn every_number_is_that_of_the_protocol_and_reads_back() {
        let table = [
            (Errno::Perm, 1),
            (Errno::Io, 5),
            (Errno::NoMem, 12),
            (Errno::Inval, 22),
            (Errno::NoSpc, 28),
            (Errno::Overflow, 75),
            (Errno::NotSup, 95),
            (Errno::Shutdown, 108),
        ];
        for (errno, code) in table {
            assert_eq!(errno.code(), code);
            assert_eq!(Errno::from_code(code), errno);
            assert_eq!(Errno::from_host(i32::try_from(code).unwrap()), errno);
        }
        assert_eq!(Errno::from_code(9999), Errno::Inval);
        assert_eq!(Errno::from_host(9999), Errno::Io);
        assert_eq!(Errno::from_host(30), Errno::Perm);
        assert_eq!(Errno::from_host(122), Errno::NoSpc);
    }
}
