//! The engine of a volume as it reports itself.
