//! The typed form of an expression: names resolved, functions chosen, patterns compiled.

use std::sync::Arc;

use kube_cel::cel::{IdedExpr, Value};
use regex::Regex;

/// A rule ready to run.
#[derive(Debug)]
pub struct Compiled {
    pub(super) rule: Expr,
    pub(super) message: Option<Expr>,
    pub(super) uses_old: bool,
    pub(super) optional_old: bool,
}

#[derive(Debug)]
pub(super) enum Expr {
    Const(Value),
    /// Position in the environment: 0 is `self`, 1 is `oldSelf`, the others are loop variables.
    Var(usize),
    Field(Box<Expr>, Arc<String>),
    Has(Box<Expr>, Arc<String>),
    Index(Box<Expr>, Box<Expr>),
    OptIndex(Box<Expr>, Box<Expr>),
    And(Box<Expr>, Box<Expr>),
    Or(Box<Expr>, Box<Expr>),
    Not(Box<Expr>),
    Negate(Box<Expr>),
    Choose(Box<(Expr, Expr, Expr)>),
    Binary(Op, Box<Expr>, Box<Expr>),
    /// The flag marks `?item`: an absent optional is left out.
    List(Vec<(Expr, bool)>),
    Map(Vec<(Expr, Expr, bool)>),
    Loop(Box<Loop>),
    /// `cel.bind`: the body sees the value as the next variable.
    Bind(Box<Expr>, Box<Expr>),
    /// `optMap` and `optFlatMap` (the flag): the body sees the value as the next variable.
    OptMap(Box<Expr>, Box<Expr>, bool),
    Matches(Box<Expr>, Regex),
    Native(Native, Vec<Expr>),
    /// A call into the function libraries; its arguments are bound to `a0`, `a1`, ….
    Delegate(Box<IdedExpr>, Cost, Vec<Expr>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Op {
    Equal,
    NotEqual,
    Less,
    LessEqual,
    Greater,
    GreaterEqual,
    Add,
    Subtract,
    Multiply,
    Divide,
    Modulo,
    In,
}

#[derive(Debug)]
pub(super) struct Loop {
    pub(super) range: Expr,
    pub(super) kind: LoopKind,
    pub(super) variables: Variables,
    /// Condition of all, exists, `exists_one`, filter and of map with three arguments.
    pub(super) test: Option<Expr>,
    /// What map makes of each item.
    pub(super) body: Option<Expr>,
}

/// What a loop binds for its condition and body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Variables {
    /// The item of a list, the key of a map.
    One,
    /// The position and the item, the key and the value.
    Two,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum LoopKind {
    All,
    Exists,
    ExistsOne,
    /// filter, map and `transformList`: collects the body, or the item itself.
    Collect,
    /// `transformMap`: the same keys with new values.
    CollectMap,
    /// `transformMapEntry`: the entries of all the maps that the body makes.
    CollectEntries,
}

/// Functions evaluated here: the frequent ones, and those whose result can be far larger than
/// their arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Native {
    Size,
    TypeOf,
    Same,
    ToText,
    ToBool,
    StartsWith,
    EndsWith,
    Contains,
    Matches,
    Replace,
    Join,
    Range,
    OptionalNone,
    OptionalOf,
    OptionalOfNonZero,
    OptionalValue,
    OptionalHasValue,
    OptionalOr,
    OptionalOrValue,
}

/// How the cost of a library call grows with its arguments.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cost {
    Linear,
    /// Every item is compared with every other.
    Quadratic,
    /// Compiles a regular expression on each call.
    Regex,
    /// `format`: the pattern may ask for long output.
    Format,
}
