//! Roles and bindings, indexed the way requests ask for them.
//!
//! Bindings lie by namespace and there by subject, so a request costs one lookup for the user and
//! one for each group, in two scopes. Aggregated `ClusterRoles` get their rules here, at the moment a
//! role changes; the stored copy that clients read is written by a controller from
//! [`RbacIndex::stale_aggregations`].

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use serde_json::Value;

use super::rule::PolicyRule;
use super::selector::{Labels, Selector, labels};
use super::{Attributes, Decision};
use crate::auth::user::{MASTERS, User, service_account_user};

/// The four kinds the index holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    Role,
    ClusterRole,
    RoleBinding,
    ClusterRoleBinding,
}

impl Kind {
    pub const ALL: [Self; 4] =
        [Self::Role, Self::ClusterRole, Self::RoleBinding, Self::ClusterRoleBinding];

    pub fn parse(kind: &str) -> Option<Self> {
        match kind {
            "Role" => Some(Self::Role),
            "ClusterRole" => Some(Self::ClusterRole),
            "RoleBinding" => Some(Self::RoleBinding),
            "ClusterRoleBinding" => Some(Self::ClusterRoleBinding),
            _ => None,
        }
    }

    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Role => "Role",
            Self::ClusterRole => "ClusterRole",
            Self::RoleBinding => "RoleBinding",
            Self::ClusterRoleBinding => "ClusterRoleBinding",
        }
    }

    /// The plural, as paths and rules have it.
    pub const fn resource(self) -> &'static str {
        match self {
            Self::Role => "roles",
            Self::ClusterRole => "clusterroles",
            Self::RoleBinding => "rolebindings",
            Self::ClusterRoleBinding => "clusterrolebindings",
        }
    }
}

/// Which role a binding grants.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RoleName {
    /// `Role` (in the binding's own namespace) or `ClusterRole`.
    pub kind: Kind,
    pub name: String,
}

impl RoleName {
    /// Reads `roleRef` of a binding.
    pub fn of_binding(binding: &Value) -> Option<Self> {
        let text = |key| binding.pointer(key).and_then(Value::as_str);
        let kind = Kind::parse(text("/roleRef/kind")?)?;
        let is_role = matches!(kind, Kind::Role | Kind::ClusterRole);
        let name = text("/roleRef/name")?.to_owned();
        is_role.then_some(Self { kind, name })
    }
}

/// Who is named by a binding. Service accounts are users with a longer name.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Subject {
    User(String),
    Group(String),
}

impl Subject {
    /// `home` is the binding's namespace: a service account without one is from there.
    fn parse(value: &Value, home: &str) -> Option<Self> {
        let text = |key| value.get(key).and_then(Value::as_str).unwrap_or_default();
        let name = text("name");
        match text("kind") {
            "User" => Some(Self::User(name.to_owned())),
            "Group" => Some(Self::Group(name.to_owned())),
            "ServiceAccount" => {
                let namespace = Some(text("namespace")).filter(|it| !it.is_empty());
                let namespace = namespace.unwrap_or(home);
                (!namespace.is_empty()).then(|| Self::User(service_account_user(namespace, name)))
            }
            _ => None,
        }
    }
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Binding {
    role: RoleName,
    subjects: Vec<Subject>,
}

/// The bindings of one namespace, or of the cluster.
#[derive(Debug, Clone, Default)]
struct Scope {
    bindings: HashMap<String, Binding>,
    by_user: HashMap<String, BTreeSet<String>>,
    by_group: HashMap<String, BTreeSet<String>>,
}

impl Scope {
    fn insert(&mut self, name: &str, binding: Binding) {
        self.remove(name);
        for subject in &binding.subjects {
            let (map, key) = self.side(subject);
            map.entry(key).or_default().insert(name.to_owned());
        }
        self.bindings.insert(name.to_owned(), binding);
    }

    fn remove(&mut self, name: &str) {
        let Some(binding) = self.bindings.remove(name) else { return };
        for subject in &binding.subjects {
            let (map, key) = self.side(subject);
            if let Some(names) = map.get_mut(&key) {
                names.remove(name);
                if names.is_empty() {
                    map.remove(&key);
                }
            }
        }
    }

    fn side(&mut self, subject: &Subject) -> (&mut HashMap<String, BTreeSet<String>>, String) {
        match subject {
            Subject::User(name) => (&mut self.by_user, name.clone()),
            Subject::Group(name) => (&mut self.by_group, name.clone()),
        }
    }

    /// Bindings that name the user or one of the user's groups.
    fn of<'a>(
        &'a self,
        user: &'a User,
    ) -> impl Iterator<Item = (&'a String, &'a Binding, Matched<'a>)> {
        let own = self.by_user.get(&user.name).map(|names| (names, Matched::User(&user.name)));
        let groups = user.groups.iter().filter_map(|group| {
            self.by_group.get(group).map(|names| (names, Matched::Group(group)))
        });
        own.into_iter().chain(groups).flat_map(move |(names, matched)| {
            names.iter().filter_map(move |name| Some((name, self.bindings.get(name)?, matched)))
        })
    }
}

/// By which name a binding reached the user.
#[derive(Debug, Clone, Copy)]
enum Matched<'a> {
    User(&'a str),
    Group(&'a str),
}

#[derive(Debug, Clone)]
struct ClusterRole {
    labels: Labels,
    stored: Arc<[PolicyRule]>,
    /// `None`: a role with rules of its own.
    selectors: Option<Vec<Selector>>,
    effective: Arc<[PolicyRule]>,
}

impl ClusterRole {
    /// Whether the same is stored; what follows from others may differ.
    fn is_written_as(&self, other: &Self) -> bool {
        self.labels == other.labels
            && self.stored == other.stored
            && self.selectors == other.selectors
    }
}

/// All rules that count for one user in one namespace.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rules {
    pub resource: Vec<PolicyRule>,
    pub non_resource: Vec<PolicyRule>,
    /// False where the namespace has more than is looked at.
    pub is_whole: bool,
}

impl Rules {
    pub fn iter(&self) -> impl Iterator<Item = &PolicyRule> {
        self.resource.iter().chain(&self.non_resource)
    }
}

/// A snapshot of all roles and bindings, changed object by object.
#[derive(Debug, Clone, Default)]
pub struct RbacIndex {
    roles: HashMap<String, HashMap<String, Arc<[PolicyRule]>>>,
    cluster_roles: BTreeMap<String, ClusterRole>,
    cluster: Scope,
    namespaces: HashMap<String, Scope>,
    /// Namespaces with bindings that are not there. What was left in one grants nothing.
    absent: HashSet<String>,
}

/// Most bindings and entries of rules that one question looks at in a namespace. Whoever may write them
/// there may write as many as it likes, and every question of anybody about the namespace would pay for
/// them; what lies beyond grants nothing.
const MAX_LOOKS: usize = 1 << 16;
/// Most text in the rules of a namespace that anybody is told: a rule is as long as an object may be.
const MAX_TOLD_BYTES: usize = 4 << 20;

/// What is left of them for one question.
struct Looks(usize);

impl Looks {
    /// What the whole cluster grants is not counted: only its administrators write there.
    fn take(&mut self, namespace: Option<&str>, wanted: usize) -> bool {
        let left = if namespace.is_some() { self.0.checked_sub(wanted) } else { Some(self.0) };
        self.0 = left.unwrap_or_default();
        left.is_some()
    }
}

impl RbacIndex {
    /// The namespace has gone.
    pub fn leave(&mut self, namespace: &str) {
        if self.namespaces.contains_key(namespace) {
            self.absent.insert(namespace.to_owned());
        }
    }

    /// The namespace is there.
    pub fn enter(&mut self, namespace: &str) {
        self.absent.remove(namespace);
    }

    /// Lets only the bindings of these namespaces count.
    pub fn only_in(&mut self, is_there: impl Fn(&str) -> bool) {
        let absent = self.namespaces.keys().filter(|namespace| !is_there(namespace));
        self.absent = absent.cloned().collect();
    }

    /// Takes a stored object, new or changed. One without a name, or a binding without a readable
    /// role, grants nothing.
    ///
    /// Says whether that changes what anybody may do: what is noted beside the rules does not.
    pub fn upsert(&mut self, kind: Kind, object: &Value) -> bool {
        let is_changed = self.insert(kind, object);
        if is_changed && kind == Kind::ClusterRole {
            self.aggregate_all();
        }
        is_changed
    }

    fn insert(&mut self, kind: Kind, object: &Value) -> bool {
        let text = |key| object.pointer(key).and_then(Value::as_str).unwrap_or_default();
        let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
        // What lost its namespace must not count everywhere instead.
        let is_namespaced = matches!(kind, Kind::Role | Kind::RoleBinding);
        if name.is_empty() || (is_namespaced && namespace.is_empty()) {
            return false;
        }
        match kind {
            Kind::Role => {
                let rules: Arc<[PolicyRule]> = PolicyRule::list(object.get("rules")).into();
                let own = self.roles.entry(namespace.to_owned()).or_default();
                if own.get(name) == Some(&rules) {
                    return false;
                }
                own.insert(name.to_owned(), rules);
                true
            }
            Kind::ClusterRole => {
                let role = cluster_role(object);
                if self.cluster_roles.get(name).is_some_and(|known| known.is_written_as(&role)) {
                    return false;
                }
                self.cluster_roles.insert(name.to_owned(), role);
                true
            }
            Kind::RoleBinding => self.bind(namespace, name, object),
            Kind::ClusterRoleBinding => self.bind("", name, object),
        }
    }

    pub fn remove(&mut self, kind: Kind, namespace: &str, name: &str) {
        match kind {
            Kind::Role => {
                if let Some(roles) = self.roles.get_mut(namespace) {
                    roles.remove(name);
                    if roles.is_empty() {
                        self.roles.remove(namespace);
                    }
                }
            }
            Kind::ClusterRole => {
                self.cluster_roles.remove(name);
                self.aggregate_all();
            }
            Kind::RoleBinding => {
                if let Some(scope) = self.namespaces.get_mut(namespace) {
                    scope.remove(name);
                    if scope.bindings.is_empty() {
                        self.namespaces.remove(namespace);
                        self.absent.remove(namespace);
                    }
                }
            }
            Kind::ClusterRoleBinding => self.cluster.remove(name),
        }
    }

    fn bind(&mut self, namespace: &str, name: &str, object: &Value) -> bool {
        let kind = if namespace.is_empty() { Kind::ClusterRoleBinding } else { Kind::RoleBinding };
        let Some(role) = RoleName::of_binding(object) else {
            self.remove(kind, namespace, name);
            return true;
        };
        let subjects = object.get("subjects").and_then(Value::as_array).map(Vec::as_slice);
        let subjects = subjects.unwrap_or_default().iter();
        let subjects = subjects.filter_map(|it| Subject::parse(it, namespace)).collect();
        let scope = match kind {
            Kind::ClusterRoleBinding => &mut self.cluster,
            _ => self.namespaces.entry(namespace.to_owned()).or_default(),
        };
        let binding = Binding { role, subjects };
        if scope.bindings.get(name) == Some(&binding) {
            return false;
        }
        scope.insert(name, binding);
        true
    }

    /// Whether some binding allows the request.
    pub fn authorize(&self, wanted: &Attributes<'_>) -> Decision {
        if wanted.user.in_group(MASTERS) {
            // Before any role is looked at: without this, one bad edit locks everyone out.
            let reason = format!("RBAC: group {MASTERS:?} has every right");
            return Decision { allowed: true, reason };
        }
        let too_many = || {
            let reason = "RBAC: the namespace has more rules than are looked at".to_owned();
            Decision { allowed: false, reason }
        };
        let mut looks = Looks(MAX_LOOKS);
        for (namespace, granted) in self.bound(wanted.user, wanted.namespace) {
            if !looks.take(namespace, 1) {
                return too_many();
            }
            let Some(granted) = granted else { continue };
            if namespace.is_some() && wanted.path.is_some() {
                continue;
            }
            for rule in granted.rules.iter() {
                if !looks.take(namespace, rule.entries()) {
                    return too_many();
                }
                if rule.allows(wanted) {
                    return Decision { allowed: true, reason: granted.reason() };
                }
            }
        }
        Decision { allowed: false, reason: String::new() }
    }

    /// Everything the user may do in a namespace (empty: in the cluster).
    pub fn rules_for(&self, user: &User, namespace: &str) -> Rules {
        if user.in_group(MASTERS) {
            return Rules {
                resource: vec![PolicyRule::all_resources()],
                non_resource: vec![PolicyRule::all_paths()],
                is_whole: true,
            };
        }
        let mut seen = HashSet::new();
        let mut rules = Rules { resource: Vec::new(), non_resource: Vec::new(), is_whole: true };
        let (mut looks, mut bytes) = (Looks(MAX_LOOKS), Looks(MAX_TOLD_BYTES));
        for (home, granted) in self.bound(user, namespace) {
            if !looks.take(home, 1) {
                return Rules { is_whole: false, ..rules };
            }
            let Some(granted) = granted else { continue };
            for rule in granted.rules.iter() {
                if !looks.take(home, rule.entries()) || !bytes.take(home, rule.bytes()) {
                    return Rules { is_whole: false, ..rules };
                }
                // A path lies in no namespace, so a RoleBinding cannot grant it.
                let list = match (rule.is_for_paths(), granted.namespace) {
                    (false, _) => &mut rules.resource,
                    (true, None) => &mut rules.non_resource,
                    (true, Some(_)) => continue,
                };
                if seen.insert(rule) {
                    list.push(rule.clone());
                }
            }
        }
        rules
    }

    /// The rules of a role as they count now; `None` if there is no such role.
    pub fn role_rules(&self, role: &RoleName, namespace: &str) -> Option<Arc<[PolicyRule]>> {
        self.rules_of(role, namespace).cloned()
    }

    fn rules_of(&self, role: &RoleName, namespace: &str) -> Option<&Arc<[PolicyRule]>> {
        match role.kind {
            Kind::Role => self.roles.get(namespace)?.get(&role.name),
            Kind::ClusterRole => self.cluster_roles.get(&role.name).map(|role| &role.effective),
            Kind::RoleBinding | Kind::ClusterRoleBinding => None,
        }
    }

    /// All bindings that reach a user, by the namespace they lie in; what they grant, where no other
    /// before them has.
    fn bound<'a>(
        &'a self,
        user: &'a User,
        namespace: &'a str,
    ) -> impl Iterator<Item = (Option<&'a str>, Option<Granted<'a>>)> {
        let cluster = self.cluster.of(user).map(|it| (None, it));
        let own = self.namespaces.get(namespace);
        let own = own.filter(|_| !namespace.is_empty() && !self.absent.contains(namespace));
        let mut seen = HashSet::new();
        let own =
            own.into_iter().flat_map(|scope| scope.of(user)).map(move |it| (Some(namespace), it));
        cluster.chain(own).map(move |(namespace, (name, binding, matched))| {
            // A ClusterRoleBinding cannot reach a Role: roles have a namespace, it has none.
            let rules = self.rules_of(&binding.role, namespace.unwrap_or_default());
            // However often it is bound, a role says the same; those of the cluster come first.
            let rules = rules.filter(|it| seen.insert(Arc::as_ptr(it).cast::<()>().addr()));
            let role = &binding.role;
            (namespace, rules.map(|rules| Granted { namespace, name, role, matched, rules }))
        })
    }

    /// Aggregated `ClusterRoles` whose stored rules are not what they should be, with the rules to
    /// write.
    pub fn stale_aggregations(&self) -> Vec<(String, Vec<PolicyRule>)> {
        let aggregated = self.cluster_roles.iter().filter(|(_, role)| role.selectors.is_some());
        let stale = aggregated.filter(|(_, role)| role.stored != role.effective);
        stale.map(|(name, role)| (name.clone(), role.effective.to_vec())).collect()
    }

    fn aggregate_all(&mut self) {
        let aggregated: Vec<_> = self
            .cluster_roles
            .iter()
            .filter(|(_, role)| role.selectors.is_some())
            .map(|(name, _)| (name.clone(), self.aggregate(name)))
            .collect();
        for (name, rules) in aggregated {
            if let Some(role) = self.cluster_roles.get_mut(&name)
                && role.effective[..] != rules[..]
            {
                role.effective = rules.into();
            }
        }
    }

    /// The rules of all plain roles that the selectors reach, through other aggregated roles too.
    /// Stored rules of aggregated roles do not count: they are what we wrote there ourselves.
    fn aggregate(&self, name: &str) -> Vec<PolicyRule> {
        let (mut reached, mut waiting) = (BTreeSet::from([name]), vec![name]);
        let mut rules = Vec::new();
        let mut seen = HashSet::new();
        while let Some(role) = waiting.pop().and_then(|name| self.cluster_roles.get(name)) {
            let Some(selectors) = &role.selectors else {
                rules.extend(role.stored.iter().filter(|rule| seen.insert(*rule)).cloned());
                continue;
            };
            for (name, other) in &self.cluster_roles {
                if selectors.iter().any(|it| it.matches(&other.labels)) && reached.insert(name) {
                    waiting.push(name);
                }
            }
        }
        rules
    }
}

fn cluster_role(object: &Value) -> ClusterRole {
    let stored: Arc<[PolicyRule]> = PolicyRule::list(object.get("rules")).into();
    let aggregation = object.get("aggregationRule").filter(|rule| !rule.is_null());
    let selectors = aggregation.map(|rule| {
        let list = rule.get("clusterRoleSelectors").and_then(Value::as_array);
        list.into_iter().flatten().filter_map(Selector::parse).collect()
    });
    ClusterRole { labels: labels(object), effective: Arc::clone(&stored), stored, selectors }
}

/// One binding that reaches a user, with the rules it grants.
struct Granted<'a> {
    /// `None`: by a `ClusterRoleBinding`.
    namespace: Option<&'a str>,
    name: &'a str,
    role: &'a RoleName,
    matched: Matched<'a>,
    rules: &'a Arc<[PolicyRule]>,
}

impl Granted<'_> {
    fn reason(&self) -> String {
        let binding = match self.namespace {
            None => format!("ClusterRoleBinding {:?}", self.name),
            Some(namespace) => format!("RoleBinding \"{}/{namespace}\"", self.name),
        };
        let (kind, role) = (self.role.kind.as_str(), &self.role.name);
        let (subject, name) = match self.matched {
            Matched::User(name) => ("User", name),
            Matched::Group(name) => ("Group", name),
        };
        format!("RBAC: allowed by {binding} of {kind} {role:?} to {subject} {name:?}")
    }
}
