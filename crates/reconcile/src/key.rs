//! The name of one object, which is all a pass is given.

use std::fmt;
use std::sync::Arc;

use kube::ResourceExt;

/// Namespace and name of an object. Cheap to clone.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key {
    /// Empty for what lives in no namespace.
    pub namespace: Arc<str>,
    pub name: Arc<str>,
}

impl Key {
    pub fn new(namespace: &str, name: &str) -> Self {
        Self { namespace: namespace.into(), name: name.into() }
    }

    pub fn of(object: &impl ResourceExt) -> Self {
        let namespace = object.meta().namespace.as_deref().unwrap_or_default();
        Self::new(namespace, object.meta().name.as_deref().unwrap_or_default())
    }

    /// The object of this name in the same namespace.
    #[must_use]
    pub fn beside(&self, name: &str) -> Self {
        Self { namespace: Arc::clone(&self.namespace), name: name.into() }
    }
}

impl fmt::Display for Key {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.namespace.is_empty() {
            return out.write_str(&self.name);
        }
        write!(out, "{}/{}", self.namespace, self.name)
    }
}
