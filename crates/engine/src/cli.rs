//! The command line of the engine dialect.
