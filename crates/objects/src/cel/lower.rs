//! From the parser's tree to the typed form, refusing what cannot work.

mod pairs;

use std::sync::Arc;

use kube_cel::cel::common::ast::{
    CallExpr, ComprehensionExpr, EntryExpr, Expr as Ast, LiteralValue, MapExpr, operators,
};
use kube_cel::cel::{IdedExpr, Value};
use regex::RegexBuilder;

use super::call::{self, How};
use super::expr::{Compiled, Expr, Loop, LoopKind, Native, Op, Variables};
use super::shape::Type;
use super::value::type_value;
use super::{CompileError, MAX_DEPTH, MAX_LOOPS, delegate, text};
use crate::node::{Node, Rule};

type Lowered<'a> = Result<(Expr, Type<'a>), String>;

/// Compiled patterns larger than this are refused.
pub(super) const MAX_REGEX: usize = 1 << 20;

pub(super) fn compile(node: &Node, rule: &Rule, resource: bool) -> Result<Compiled, CompileError> {
    let at = |member| move |text| CompileError { member, text };
    let this = Type::of(node, resource).unwrap_or(Type::Dyn);
    let (expr, found, mut uses_old) =
        lower(&rule.rule, &this, rule.optional_old_self).map_err(at("rule"))?;
    if !matches!(found, Type::Bool | Type::Dyn) {
        return Err(at("rule")(format!("must yield bool, not {found}")));
    }
    let mut message = None;
    if let Some(source) = &rule.message_expression {
        let member = "messageExpression";
        let (expr, found, old) =
            lower(source, &this, rule.optional_old_self).map_err(at(member))?;
        if !matches!(found, Type::String | Type::Dyn) {
            return Err(at(member)(format!("must yield string, not {found}")));
        }
        uses_old |= old;
        message = Some(expr);
    }
    Ok(Compiled { rule: expr, message, uses_old, optional_old: rule.optional_old_self })
}

fn lower<'a>(
    source: &str,
    this: &Type<'a>,
    optional_old: bool,
) -> Result<(Expr, Type<'a>, bool), String> {
    let ast = text::parse(source)?;
    let old = if optional_old { this.clone().optional() } else { this.clone() };
    let mut lowering = Lowering {
        scope: vec![("self".to_owned(), this.clone()), ("oldSelf".to_owned(), old)],
        uses_old: false,
        loops: 0,
    };
    let (expr, found) = lowering.expr(&ast, 0)?;
    Ok((expr, found, lowering.uses_old))
}

struct Lowering<'a> {
    scope: Vec<(String, Type<'a>)>,
    uses_old: bool,
    loops: usize,
}

impl<'a> Lowering<'a> {
    fn expr(&mut self, ast: &IdedExpr, depth: usize) -> Lowered<'a> {
        if depth >= MAX_DEPTH {
            return Err(format!("is nested more than {MAX_DEPTH} levels deep"));
        }
        let depth = depth + 1;
        match &ast.expr {
            Ast::Literal(literal) => Ok(constant(literal)),
            Ast::Ident(name) => self.ident(name),
            Ast::Select(select) => {
                let (operand, found) = self.expr(&select.operand, depth)?;
                let (field, real) = found.field(&select.field)?;
                let real = Arc::new(real);
                if select.test {
                    return Ok((Expr::Has(Box::new(operand), real), Type::Bool));
                }
                Ok((Expr::Field(Box::new(operand), real), field))
            }
            Ast::Call(call) => self.call(call, depth),
            Ast::List(list) => {
                let mut items = Vec::with_capacity(list.elements.len());
                let mut item: Option<Type<'a>> = None;
                for (index, element) in list.elements.iter().enumerate() {
                    let (expr, found) = self.expr(element, depth)?;
                    item = Some(item.map_or(found.clone(), |item| item.either(found)));
                    items.push((expr, list.optional_indices.contains(&index)));
                }
                Ok((Expr::List(items), Type::List(Box::new(item.unwrap_or(Type::Dyn)))))
            }
            Ast::Map(map) => self.map(map, depth),
            Ast::Comprehension(comprehension) => self.comprehension(comprehension, depth),
            Ast::Struct(_) => Err("messages cannot be constructed".to_owned()),
            Ast::Unspecified => Err("the expression is incomplete".to_owned()),
        }
    }

    fn ident(&mut self, name: &str) -> Lowered<'a> {
        if let Some(position) = self.scope.iter().rposition(|(known, _)| known == name) {
            self.uses_old |= position == 1;
            let found = self.scope.get(position).map_or(Type::Dyn, |(_, found)| found.clone());
            return Ok((Expr::Var(position), found));
        }
        match type_value(name) {
            Some(value) => Ok((Expr::Const(value), Type::Meta)),
            None => Err(format!("undeclared reference to '{name}'")),
        }
    }

    fn map(&mut self, map: &MapExpr, depth: usize) -> Lowered<'a> {
        let mut entries = Vec::with_capacity(map.entries.len());
        for entry in &map.entries {
            let EntryExpr::MapEntry(entry) = &entry.expr else {
                return Err("messages cannot be constructed".to_owned());
            };
            let (key, _) = self.expr(&entry.key, depth)?;
            let (value, _) = self.expr(&entry.value, depth)?;
            entries.push((key, value, entry.optional));
        }
        Ok((Expr::Map(entries), Type::Map(Box::new(Type::Dyn))))
    }

    fn call(&mut self, call: &CallExpr, depth: usize) -> Lowered<'a> {
        if call.target.is_none()
            && let Some(lowered) = self.operator(call, depth)
        {
            return lowered;
        }
        let Some(target) = call.target.as_deref() else {
            return self.function(&call.func_name, None, &call.args, depth);
        };
        if let (Ast::Ident(space), "bind") = (&target.expr, call.func_name.as_str())
            && space == "cel"
        {
            return self.bind(call, depth);
        }
        if let Ast::Ident(space) = &target.expr
            && !self.scope.iter().any(|(known, _)| known == space)
        {
            return self.function(&format!("{space}.{}", call.func_name), None, &call.args, depth);
        }
        if matches!(call.func_name.as_str(), "optMap" | "optFlatMap") {
            return self.opt_map(call, target, depth);
        }
        if let Some(pairs) = pairs::Pairs::read(call) {
            return self.pairs(target, &pairs, depth);
        }
        self.function(&call.func_name, Some(target), &call.args, depth)
    }

    /// Operators are calls with names nobody can write; `None` if this is not one of them.
    fn operator(&mut self, call: &CallExpr, depth: usize) -> Option<Lowered<'a>> {
        let name = call.func_name.as_str();
        Some(match (name, call.args.as_slice()) {
            (operators::CONDITIONAL, [test, yes, no]) => self.choose(test, yes, no, depth),
            (operators::LOGICAL_AND, [a, b]) => self.logical(a, b, Expr::And, depth),
            (operators::LOGICAL_OR, [a, b]) => self.logical(a, b, Expr::Or, depth),
            (operators::LOGICAL_NOT, [a]) => {
                self.boolean(a, depth).map(|expr| (Expr::Not(Box::new(expr)), Type::Bool))
            }
            (operators::NEGATE, [a]) => self.negate(a, depth),
            (operators::INDEX, [a, b]) => self.index(a, b, false, depth),
            (operators::OPT_INDEX, [a, b]) => self.index(a, b, true, depth),
            (operators::OPT_SELECT, [a, b]) => self.optional_field(a, b, depth),
            (_, [a, b]) => {
                let op = binary(name)?;
                self.binary(op, a, b, depth)
            }
            _ => return None,
        })
    }

    fn boolean(&mut self, ast: &IdedExpr, depth: usize) -> Result<Expr, String> {
        match self.expr(ast, depth)? {
            (expr, Type::Bool | Type::Dyn) => Ok(expr),
            (_, found) => Err(format!("expected bool but found {found}")),
        }
    }

    fn logical(
        &mut self,
        a: &IdedExpr,
        b: &IdedExpr,
        make: fn(Box<Expr>, Box<Expr>) -> Expr,
        depth: usize,
    ) -> Lowered<'a> {
        let (a, b) = (self.boolean(a, depth)?, self.boolean(b, depth)?);
        Ok((make(Box::new(a), Box::new(b)), Type::Bool))
    }

    fn choose(
        &mut self,
        test: &IdedExpr,
        yes: &IdedExpr,
        no: &IdedExpr,
        depth: usize,
    ) -> Lowered<'a> {
        let test = self.boolean(test, depth)?;
        let (yes, one) = self.expr(yes, depth)?;
        let (no, two) = self.expr(no, depth)?;
        Ok((Expr::Choose(Box::new((test, yes, no))), one.either(two)))
    }

    fn negate(&mut self, ast: &IdedExpr, depth: usize) -> Lowered<'a> {
        let (expr, found) = self.expr(ast, depth)?;
        match found {
            Type::Int | Type::Double | Type::Duration | Type::Dyn => {
                Ok((Expr::Negate(Box::new(expr)), found))
            }
            _ => Err(format!("no matching overload for '-' applied to {found}")),
        }
    }

    fn index(&mut self, a: &IdedExpr, b: &IdedExpr, optional: bool, depth: usize) -> Lowered<'a> {
        let (operand, found) = self.expr(a, depth)?;
        let (key, key_type) = self.expr(b, depth)?;
        let chained = matches!(found, Type::Optional(_));
        let inner = match found {
            Type::Optional(inner) => *inner,
            other => other,
        };
        let refused = || Err(format!("no matching overload for indexing {inner} by {key_type}"));
        let item = match &inner {
            Type::Dyn => Type::Dyn,
            Type::List(item) => match key_type {
                Type::Int | Type::Uint | Type::Double | Type::Dyn => (**item).clone(),
                _ => return refused(),
            },
            Type::Map(value) => match key_type {
                Type::List(_) | Type::Map(_) | Type::Null => return refused(),
                _ => (**value).clone(),
            },
            _ => return refused(),
        };
        let (operand, key) = (Box::new(operand), Box::new(key));
        if optional || chained {
            return Ok((Expr::OptIndex(operand, key), item.optional()));
        }
        Ok((Expr::Index(operand, key), item))
    }

    fn optional_field(&mut self, a: &IdedExpr, b: &IdedExpr, depth: usize) -> Lowered<'a> {
        let Ast::Literal(LiteralValue::String(name)) = &b.expr else {
            return Err("the expression is incomplete".to_owned());
        };
        let (operand, found) = self.expr(a, depth)?;
        let (field, real) = found.field(name.inner())?;
        let key = Expr::Const(Value::String(Arc::new(real)));
        Ok((Expr::OptIndex(Box::new(operand), Box::new(key)), field.optional()))
    }

    fn binary(&mut self, op: Op, a: &IdedExpr, b: &IdedExpr, depth: usize) -> Lowered<'a> {
        let (left, one) = self.expr(a, depth)?;
        let (right, two) = self.expr(b, depth)?;
        let Some(found) = result_of(op, &one, &two) else {
            return Err(format!(
                "no matching overload for '{}' applied to ({one}, {two})",
                sign(op)
            ));
        };
        Ok((Expr::Binary(op, Box::new(left), Box::new(right)), found))
    }

    /// `cel.bind(name, value, body)`
    fn bind(&mut self, call: &CallExpr, depth: usize) -> Lowered<'a> {
        let [name, value, body] = call.args.as_slice() else {
            return Err("'cel.bind' takes a name, a value and an expression".to_owned());
        };
        let Ast::Ident(name) = &name.expr else {
            return Err("the first argument of 'cel.bind' must be a name".to_owned());
        };
        let (value, found) = self.expr(value, depth)?;
        self.scope.push((name.clone(), found));
        let body = self.expr(body, depth);
        self.scope.pop();
        let (body, found) = body?;
        Ok((Expr::Bind(Box::new(value), Box::new(body)), found))
    }

    fn opt_map(&mut self, call: &CallExpr, target: &IdedExpr, depth: usize) -> Lowered<'a> {
        let [name, body] = call.args.as_slice() else {
            return Err(format!("'{}' takes a name and an expression", call.func_name));
        };
        let Ast::Ident(name) = &name.expr else {
            return Err(format!("the first argument of '{}' must be a name", call.func_name));
        };
        let (operand, found) = self.expr(target, depth)?;
        let inner = match found {
            Type::Optional(inner) => *inner,
            Type::Dyn => Type::Dyn,
            other => return Err(format!("'{}' is not defined on {other}", call.func_name)),
        };
        self.scope.push((name.clone(), inner));
        let body = self.expr(body, depth);
        self.scope.pop();
        let (body, found) = body?;
        let flat = call.func_name == "optFlatMap";
        Ok((Expr::OptMap(Box::new(operand), Box::new(body), flat), found.optional()))
    }

    fn function(
        &mut self,
        name: &str,
        target: Option<&IdedExpr>,
        args: &[IdedExpr],
        depth: usize,
    ) -> Lowered<'a> {
        let known = if target.is_some() { call::method(name) } else { call::global(name) };
        let Some(function) = known else {
            return Err(format!("undeclared reference to '{name}'"));
        };
        if !(function.least..=function.most).contains(&args.len()) {
            return Err(format!("'{name}' cannot be called with {} arguments", args.len()));
        }
        let mut lowered = Vec::with_capacity(args.len() + 1);
        let mut first = None;
        for arg in target.into_iter().chain(args) {
            let (expr, found) = self.expr(arg, depth)?;
            first.get_or_insert(found);
            lowered.push(expr);
        }
        if let Some(found) = &first
            && !function.on.accepts(found)
        {
            return Err(format!("no matching overload for '{name}' applied to {found}"));
        }
        let found = function.result.apply(first.as_ref());
        let expr = match function.how {
            // A conversion to the type a value already has; the library knows text only.
            How::Library(_) if is_conversion(name) && same_type(first.as_ref(), &found) => {
                Expr::Native(Native::Same, lowered)
            }
            How::Native(Native::Matches) => matcher(lowered)?,
            How::Native(native) => Expr::Native(native, lowered),
            How::Library(cost) => {
                let call = delegate::call(name, target.is_some(), lowered.len());
                Expr::Delegate(Box::new(call), cost, lowered)
            }
        };
        Ok((expr, found))
    }

    fn comprehension(&mut self, ast: &ComprehensionExpr, depth: usize) -> Lowered<'a> {
        let Some((kind, test, body)) = loop_parts(ast) else {
            return Err("this kind of loop is not supported".to_owned());
        };
        let (range, found) = self.expr(&ast.iter_range, depth)?;
        let item = match found {
            Type::Dyn => Type::Dyn,
            Type::List(item) => *item,
            Type::Map(_) => Type::String,
            other => return Err(format!("expression of type {other} cannot be iterated over")),
        };
        self.loops += 1;
        if self.loops > MAX_LOOPS {
            return Err(format!("loops are nested more than {MAX_LOOPS} levels deep"));
        }
        self.scope.push((ast.iter_var.clone(), item.clone()));
        let test = test.map(|test| self.boolean(test, depth)).transpose();
        let body = body.map(|body| self.expr(body, depth)).transpose();
        self.scope.pop();
        self.loops -= 1;
        let (test, body) = (test?, body?);
        let found = match (kind, &body) {
            (LoopKind::Collect, Some((_, found))) => Type::List(Box::new(found.clone())),
            (LoopKind::Collect, None) => Type::List(Box::new(item)),
            _ => Type::Bool,
        };
        let body = body.map(|(body, _)| body);
        let each = Loop { range, kind, variables: Variables::One, test, body };
        Ok((Expr::Loop(Box::new(each)), found))
    }
}

fn is_conversion(name: &str) -> bool {
    matches!(name, "duration" | "timestamp" | "int" | "uint" | "double" | "bytes")
}

fn same_type(found: Option<&Type<'_>>, wanted: &Type<'_>) -> bool {
    found.is_some_and(|found| std::mem::discriminant(found) == std::mem::discriminant(wanted))
}

/// A pattern that is known now is compiled now.
fn matcher(mut args: Vec<Expr>) -> Result<Expr, String> {
    let pattern = match args.as_slice() {
        [_, Expr::Const(Value::String(pattern))] => Arc::clone(pattern),
        _ => return Ok(Expr::Native(Native::Matches, args)),
    };
    let regex = RegexBuilder::new(&pattern)
        .size_limit(MAX_REGEX)
        .build()
        .map_err(|_| format!("'{pattern}' is not a usable regular expression"))?;
    args.truncate(1);
    args.pop().map(|text| Expr::Matches(Box::new(text), regex)).ok_or_else(String::new)
}

/// The macros leave a fold behind; this reads back which of them it was, with its condition and
/// body.
fn loop_parts(ast: &ComprehensionExpr) -> Option<(LoopKind, Option<&IdedExpr>, Option<&IdedExpr>)> {
    let Ast::Call(step) = &ast.loop_step.expr else { return None };
    match (step.func_name.as_str(), step.args.as_slice()) {
        (operators::LOGICAL_AND, [_, test]) => Some((LoopKind::All, Some(test), None)),
        (operators::LOGICAL_OR, [_, test]) => Some((LoopKind::Exists, Some(test), None)),
        (operators::ADD, _) => Some((LoopKind::Collect, None, Some(collected(&ast.loop_step)?))),
        (operators::CONDITIONAL, [test, step, _]) => match &ast.accu_init.expr {
            Ast::Literal(_) => Some((LoopKind::ExistsOne, Some(test), None)),
            _ => Some((LoopKind::Collect, Some(test), Some(collected(step)?))),
        },
        _ => None,
    }
}

/// `x` of `@result + [x]`.
fn collected(ast: &IdedExpr) -> Option<&IdedExpr> {
    let Ast::Call(call) = &ast.expr else { return None };
    match call.args.get(1).map(|arg| &arg.expr) {
        Some(Ast::List(list)) => list.elements.first(),
        _ => None,
    }
}

fn constant<'a>(literal: &LiteralValue) -> (Expr, Type<'a>) {
    let (value, found) = match literal {
        LiteralValue::Boolean(value) => (Value::Bool(*value.inner()), Type::Bool),
        LiteralValue::Bytes(value) => (Value::Bytes(Arc::new(value.inner().to_vec())), Type::Bytes),
        LiteralValue::Double(value) => (Value::Float(*value.inner()), Type::Double),
        LiteralValue::Int(value) => (Value::Int(*value.inner()), Type::Int),
        LiteralValue::Null => (Value::Null, Type::Null),
        LiteralValue::String(value) => {
            (Value::String(Arc::new(value.inner().to_owned())), Type::String)
        }
        LiteralValue::UInt(value) => (Value::UInt(*value.inner()), Type::Uint),
    };
    (Expr::Const(value), found)
}

fn binary(name: &str) -> Option<Op> {
    Some(match name {
        operators::EQUALS => Op::Equal,
        operators::NOT_EQUALS => Op::NotEqual,
        operators::LESS => Op::Less,
        operators::LESS_EQUALS => Op::LessEqual,
        operators::GREATER => Op::Greater,
        operators::GREATER_EQUALS => Op::GreaterEqual,
        operators::ADD => Op::Add,
        operators::SUBSTRACT => Op::Subtract,
        operators::MULTIPLY => Op::Multiply,
        operators::DIVIDE => Op::Divide,
        operators::MODULO => Op::Modulo,
        operators::IN => Op::In,
        _ => return None,
    })
}

const fn sign(op: Op) -> &'static str {
    match op {
        Op::Equal => "==",
        Op::NotEqual => "!=",
        Op::Less => "<",
        Op::LessEqual => "<=",
        Op::Greater => ">",
        Op::GreaterEqual => ">=",
        Op::Add => "+",
        Op::Subtract => "-",
        Op::Multiply => "*",
        Op::Divide => "/",
        Op::Modulo => "%",
        Op::In => "in",
    }
}

/// The type of a binary operation; `None` if it is not defined.
fn result_of<'a>(op: Op, a: &Type<'a>, b: &Type<'a>) -> Option<Type<'a>> {
    use Type as T;
    match op {
        Op::Equal | Op::NotEqual => a.comparable(b).then_some(T::Bool),
        Op::Less | Op::LessEqual | Op::Greater | Op::GreaterEqual => {
            a.ordered(b).then_some(T::Bool)
        }
        Op::In => match b {
            T::Dyn => Some(T::Bool),
            T::List(item) => a.comparable(item).then_some(T::Bool),
            T::Map(_) => {
                matches!(a, T::String | T::Dyn | T::Int | T::Uint | T::Bool).then_some(T::Bool)
            }
            _ => None,
        },
        Op::Add | Op::Subtract => sum_of(op, a, b),
        Op::Multiply | Op::Divide | Op::Modulo => match (a, b) {
            (T::Dyn, other) | (other, T::Dyn) => is_numeric(other).then(|| other.clone()),
            (T::Int, T::Int) => Some(T::Int),
            (T::Uint, T::Uint) => Some(T::Uint),
            (T::Double, T::Double) if op != Op::Modulo => Some(T::Double),
            _ => None,
        },
    }
}

const fn is_numeric(found: &Type<'_>) -> bool {
    matches!(found, Type::Int | Type::Uint | Type::Double | Type::Dyn)
}

fn sum_of<'a>(op: Op, a: &Type<'a>, b: &Type<'a>) -> Option<Type<'a>> {
    use Type as T;
    Some(match (a, b) {
        (T::Dyn, _) | (_, T::Dyn) => T::Dyn,
        (T::Int, T::Int) => T::Int,
        (T::Uint, T::Uint) => T::Uint,
        (T::Double, T::Double) => T::Double,
        (T::Duration, T::Duration) => T::Duration,
        (T::Timestamp, T::Duration) => T::Timestamp,
        (T::Duration, T::Timestamp) if op == Op::Add => T::Timestamp,
        (T::Timestamp, T::Timestamp) if op == Op::Subtract => T::Duration,
        (T::String, T::String) if op == Op::Add => T::String,
        (T::Bytes, T::Bytes) if op == Op::Add => T::Bytes,
        (T::List(x), T::List(y)) if op == Op::Add => {
            T::List(Box::new((**x).clone().either((**y).clone())))
        }
        _ => return None,
    })
}
