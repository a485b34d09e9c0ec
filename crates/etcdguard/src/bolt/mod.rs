//! The file format of etcd's database: reading, checking and writing it, without an etcd.
