//! The command line of `holdfast etcd` and of the binary called `etcdbrctl`.
