//! The controllers: each one duty, each acting on the last state the monitor told.
