//! Calls into the Kubernetes function libraries.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::LazyLock;

use kube_cel::KubeCelExt as _;
use kube_cel::cel::common::ast::{CallExpr, Expr as Ast};
use kube_cel::cel::{Context, IdedExpr, Value};

use super::eval::Stop;
use crate::quantity::Quantity;

/// The registered functions; immutable once made, and expensive to make.
static FUNCTIONS: LazyLock<Context<'static>> = LazyLock::new(|| Context::default().with_all());

fn argument(index: usize) -> String {
    format!("a{index}")
}

/// The call of `name` on bound arguments. `receiver`: the first argument is the receiver.
/// A dotted name is a namespace and a function.
pub(super) fn call(name: &str, receiver: bool, arguments: usize) -> IdedExpr {
    let ided = |expr| IdedExpr { id: 0, expr };
    let mut args = (0..arguments).map(|index| ided(Ast::Ident(argument(index))));
    let (target, func_name) = match name.split_once('.') {
        Some((space, name)) => (Some(ided(Ast::Ident(space.to_owned()))), name),
        None if receiver => (args.next(), name),
        None => (None, name),
    };
    ided(Ast::Call(CallExpr {
        func_name: func_name.to_owned(),
        target: target.map(Box::new),
        args: args.collect(),
    }))
}

/// The same amount in a form that the library can calculate with: it believes any exponent, and its
/// numbers wrap around where they are not checked.
fn bounded(text: &str) -> Result<String, Stop> {
    let refused = || Stop::Error(format!("{text:?} is not a quantity, or is beyond all bounds"));
    Quantity::normal(text).ok_or_else(refused)
}

/// Runs a call made by [`call`].
pub(super) fn run(call: &IdedExpr, mut arguments: Vec<Value>) -> Result<Value, Stop> {
    if let (Ast::Call(called), [Value::String(text)]) = (&call.expr, arguments.as_mut_slice()) {
        match called.func_name.as_str() {
            "isQuantity" => return Ok(Value::Bool(Quantity::parse(text).is_some())),
            "quantity" => *text = bounded(text)?.into(),
            _ => {}
        }
    }
    // The libraries index their arguments and do unchecked arithmetic in places; a rule must not
    // bring down the request that runs it.
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut scope = FUNCTIONS.new_inner_scope();
        for (index, value) in arguments.into_iter().enumerate() {
            scope.add_variable_from_value(argument(index), value);
        }
        scope.resolve(call)
    }));
    match outcome {
        Ok(Ok(value)) => Ok(value),
        Ok(Err(error)) => Err(Stop::Error(error.to_string())),
        Err(_) => Err(Stop::Error("a function failed on its arguments".to_owned())),
    }
}
