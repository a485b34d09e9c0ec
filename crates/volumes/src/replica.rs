//! The copies of a volume: which are needed, which failed, which can be used again.
