//! Speaking to an etcd: the calls we make, and what its state is.
