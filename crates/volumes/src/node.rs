//! A node: its disks, and what runs on it.
