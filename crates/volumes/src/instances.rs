//! The processes of a node: each engine and each replica is one.
