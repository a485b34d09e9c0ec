//! Where in an object something is, built without allocating until somebody wants to print it.
//!
//! Owns: the spelling of field paths (`spec.ports[1].name`, `spec.labels[key]`).
//! Never: parses a path back.

use std::fmt;

/// A path as a chain of borrowed steps, one per stack frame of a walk.
#[derive(Debug, Clone, Copy)]
pub enum Path<'a> {
    /// Everything above the walk; empty at the root of an object.
    Root(&'a str),
    /// A named field.
    Field(&'a Path<'a>, &'a str),
    /// A member of a map whose keys are data.
    Key(&'a Path<'a>, &'a str),
    Index(&'a Path<'a>, usize),
}

impl<'a> Path<'a> {
    #[must_use]
    pub const fn field(&'a self, name: &'a str) -> Self {
        Self::Field(self, name)
    }

    #[must_use]
    pub const fn key(&'a self, key: &'a str) -> Self {
        Self::Key(self, key)
    }

    #[must_use]
    pub const fn index(&'a self, index: usize) -> Self {
        Self::Index(self, index)
    }
}

impl fmt::Display for Path<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Root(prefix) => f.write_str(prefix),
            Self::Field(Path::Root(""), name) => f.write_str(name),
            Self::Field(parent, name) => write!(f, "{parent}.{name}"),
            Self::Key(parent, key) => write!(f, "{parent}[{key}]"),
            Self::Index(parent, index) => write!(f, "{parent}[{index}]"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Path;

    #[test]
    fn paths_read_as_clients_print_them() {
        let root = Path::Root("");
        let spec = root.field("spec");
        let ports = spec.field("ports");
        let second = ports.index(1);
        assert_eq!(second.field("name").to_string(), "spec.ports[1].name");
        let labels = spec.field("labels");
        assert_eq!(labels.key("a.b/c").to_string(), "spec.labels[a.b/c]");
        let prefixed = Path::Root("spec.versions[0]");
        assert_eq!(prefixed.field("schema").to_string(), "spec.versions[0].schema");
    }
}
