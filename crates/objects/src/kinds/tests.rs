//! Tables of the rules of each kind.
