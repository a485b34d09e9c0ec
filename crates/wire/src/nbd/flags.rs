//! Flag words: what an export can do, and how a command is to be done.

/// Declares a flag word as a type of its own, so that words of different kinds do not mix.
macro_rules! flag_word {
    ($(#[$doc:meta])* $name:ident: $word:ty { $($(#[$flag_doc:meta])* $flag:ident = $bit:literal,)+ }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
        pub struct $name($word);

        impl $name {
            pub const NONE: Self = Self(0);
            $($(#[$flag_doc])* pub const $flag: Self = Self(1 << $bit);)+

            /// Takes a word as it came; bits nobody defined are kept, so that they can be refused.
            pub const fn from_bits(bits: $word) -> Self {
                Self(bits)
            }

            pub const fn bits(self) -> $word {
                self.0
            }

            /// Whether every bit of `other` is set.
            pub const fn contains(self, other: Self) -> bool {
                self.0 & other.0 == other.0
            }

            #[must_use]
            pub const fn with(self, other: Self) -> Self {
                Self(self.0 | other.0)
            }

            #[must_use]
            pub const fn without(self, other: Self) -> Self {
                Self(self.0 & !other.0)
            }
        }
    };
}

pub(super) use flag_word;

flag_word! {
    /// What an export can do, as the client is told.
    TransmissionFlags: u16 {
        /// Always set: the other bits mean something.
        HAS_FLAGS = 0,
        READ_ONLY = 1,
        SEND_FLUSH = 2,
        SEND_FUA = 3,
        ROTATIONAL = 4,
        SEND_TRIM = 5,
        SEND_WRITE_ZEROES = 6,
        /// Only told to clients that speak structured replies.
        SEND_DF = 7,
        /// A flush on one connection covers what was acknowledged on any other.
        CAN_MULTI_CONN = 8,
        SEND_RESIZE = 9,
        SEND_CACHE = 10,
        SEND_FAST_ZERO = 11,
    }
}

flag_word! {
    /// How a command is to be done.
    CommandFlags: u16 {
        /// The reply comes after the data is on stable storage.
        FUA = 0,
        /// Written zeroes must keep their space.
        NO_HOLE = 1,
        /// The data of a read comes in one piece.
        DF = 2,
        /// Block status wants one extent that ends within the range.
        REQ_ONE = 3,
        /// Zeroes are to be written only if that is faster than writing them out.
        FAST_ZERO = 4,
    }
}

impl TransmissionFlags {
    /// Everything a volume of ours can do, short of resize.
    pub const VOLUME: Self = Self::HAS_FLAGS
        .with(Self::SEND_FLUSH)
        .with(Self::SEND_FUA)
        .with(Self::SEND_TRIM)
        .with(Self::SEND_WRITE_ZEROES)
        .with(Self::SEND_DF)
        .with(Self::CAN_MULTI_CONN)
        .with(Self::SEND_CACHE)
        .with(Self::SEND_FAST_ZERO);
}

#[cfg(test)]
mod tests {
    use super::{CommandFlags as C, TransmissionFlags as T};

    #[test]
    fn bits_are_those_of_the_protocol() {
        let table = [
            (T::HAS_FLAGS, 0x001),
            (T::READ_ONLY, 0x002),
            (T::SEND_FLUSH, 0x004),
            (T::SEND_FUA, 0x008),
            (T::ROTATIONAL, 0x010),
            (T::SEND_TRIM, 0x020),
            (T::SEND_WRITE_ZEROES, 0x040),
            (T::SEND_DF, 0x080),
            (T::CAN_MULTI_CONN, 0x100),
            (T::SEND_RESIZE, 0x200),
            (T::SEND_CACHE, 0x400),
            (T::SEND_FAST_ZERO, 0x800),
        ];
        for (flag, bits) in table {
            assert_eq!(flag.bits(), bits);
        }
        let table = [(C::FUA, 1), (C::NO_HOLE, 2), (C::DF, 4), (C::REQ_ONE, 8), (C::FAST_ZERO, 16)];
        for (flag, bits) in table {
            assert_eq!(flag.bits(), bits);
        }
        assert_eq!(T::VOLUME.bits(), 0xded);
    }
}
