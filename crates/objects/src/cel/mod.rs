//! Validation rules written in CEL: parsed and typed once per schema, evaluated on each write.
//!
//! Owns: the typed form of a rule, its evaluation and the budget that bounds it.
//! Never: lets a rule run without a budget, sees data the schema does not describe, panics on a
//! rule. The `cel` crate parses; the Kubernetes function libraries of `kube-cel` are called for the
//! functions that are rare; everything else is evaluated here, because a server needs a step count,
//! cheap field access and no panics.

mod call;
mod delegate;
mod eval;
mod expr;
mod lower;
mod names;
mod ops;
mod shape;
mod text;
mod value;

use kube_cel::cel::Value;

use crate::node::{Node, Rule};

pub use eval::Budget;
pub use expr::Compiled;
pub(crate) use value::convert;

/// Longer expressions are refused before they are parsed.
const MAX_SOURCE: usize = 10_000;
/// Nesting of the typed form; bounds the stack of every later walk over it.
const MAX_DEPTH: usize = 100;
/// Nested `all`/`exists`/`map`/…; each level multiplies the cost of the one inside.
const MAX_LOOPS: usize = 4;
/// Stack for parsing: the parser recurses over its input, within [`MAX_SOURCE`].
const PARSER_STACK: usize = 64 << 20;

/// Which part of a rule cannot be used, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct CompileError {
    /// Name of the member of the rule object.
    pub(crate) member: &'static str,
    pub(crate) text: String,
}

/// What a rule found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Verdict {
    Holds,
    Fails,
    Error(String),
    /// The budget of the object is used up.
    Spent,
}

/// Parses and types a rule of `node`. `resource`: the node is a whole object, whose identity the
/// rule may read.
pub(crate) fn compile(node: &Node, rule: &Rule, resource: bool) -> Result<Compiled, CompileError> {
    // The parser recurses deeper than the stack of a worker thread may allow.
    std::thread::scope(|scope| {
        std::thread::Builder::new()
            .name("cel-parser".to_owned())
            .stack_size(PARSER_STACK)
            .spawn_scoped(scope, || lower::compile(node, rule, resource))
            .ok()
            .and_then(|thread| thread.join().ok())
            .unwrap_or_else(|| {
                let text = "the expression cannot be parsed".to_owned();
                Err(CompileError { member: "rule", text })
            })
    })
}

impl Compiled {
    /// Whether the rule compares with the stored object.
    pub const fn uses_old(&self) -> bool {
        self.uses_old
    }

    pub(crate) fn judge(&self, this: &Value, old: Option<&Value>, budget: &mut Budget) -> Verdict {
        match eval::run(&self.rule, this, old, self.optional_old, budget) {
            Ok(Value::Bool(true)) => Verdict::Holds,
            Ok(Value::Bool(false)) => Verdict::Fails,
            Ok(_) => Verdict::Error("the rule did not yield true or false".to_owned()),
            Err(eval::Stop::Spent) => Verdict::Spent,
            Err(eval::Stop::Error(text)) => Verdict::Error(text),
        }
    }

    /// The text `messageExpression` makes, if there is one and it makes a usable line.
    pub(crate) fn message(
        &self,
        this: &Value,
        old: Option<&Value>,
        budget: &mut Budget,
    ) -> Option<String> {
        let expr = self.message.as_ref()?;
        match eval::run(expr, this, old, self.optional_old, budget) {
            Ok(Value::String(text)) if is_line(&text) => Some(text.trim().to_owned()),
            _ => None,
        }
    }
}

fn is_line(text: &str) -> bool {
    const LONGEST: usize = 5 * 1024;
    !text.trim().is_empty() && !text.contains(['\n', '\r']) && text.len() <= LONGEST
}

#[cfg(test)]
mod tests;
