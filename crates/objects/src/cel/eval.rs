//! Evaluation within a budget of steps.

use std::collections::HashMap;
use std::sync::Arc;

use kube_cel::cel::Value;
use kube_cel::cel::objects::{Key, Map, OptionalValue};

use super::delegate;
use super::expr::{Cost, Expr, Loop, LoopKind, Native, Op, Variables};
use super::ops::{self, key_of};
use super::value::{as_optional, optional};

/// Why an evaluation ended without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Stop {
    /// An error of the language: `||` and `&&` may absorb it.
    Error(String),
    /// The budget is used up; nothing absorbs this.
    Spent,
}

pub(super) type Outcome = Result<Value, Stop>;

pub(super) fn error(text: impl Into<String>) -> Stop {
    Stop::Error(text.into())
}

/// Steps that the rules of one object may still take.
#[derive(Debug, Clone)]
pub struct Budget(u64);

/// A step is some tens of nanoseconds; a whole object may cost a fraction of a second.
const STEPS: u64 = 5_000_000;

impl Default for Budget {
    fn default() -> Self {
        Self(STEPS)
    }
}

impl Budget {
    pub(super) fn spend(&mut self, steps: usize) -> Result<(), Stop> {
        self.0 = self.0.saturating_sub(steps as u64);
        if self.0 == 0 { Err(Stop::Spent) } else { Ok(()) }
    }
}

/// Evaluates `expr` on `self` and `oldSelf`.
pub(super) fn run(
    expr: &Expr,
    this: &Value,
    old: Option<&Value>,
    optional_old: bool,
    budget: &mut Budget,
) -> Outcome {
    let old = match (optional_old, old) {
        (true, old) => optional(old.cloned()),
        (false, Some(old)) => old.clone(),
        (false, None) => Value::Null,
    };
    Evaluation { scope: vec![this.clone(), old], budget }.eval(expr)
}

struct Evaluation<'a> {
    scope: Vec<Value>,
    budget: &'a mut Budget,
}

impl Evaluation<'_> {
    fn eval(&mut self, expr: &Expr) -> Outcome {
        self.budget.spend(1)?;
        match expr {
            Expr::Const(value) => Ok(value.clone()),
            Expr::Var(position) => {
                self.scope.get(*position).cloned().ok_or_else(|| error("undeclared variable"))
            }
            Expr::Field(operand, name) => ops::field(&self.eval(operand)?, name),
            Expr::Has(operand, name) => ops::has(&self.eval(operand)?, name),
            Expr::Index(operand, key) => {
                let (operand, key) = (self.eval(operand)?, self.eval(key)?);
                ops::index(&operand, &key)
            }
            Expr::OptIndex(operand, key) => self.optional_index(operand, key),
            Expr::And(a, b) => self.logical(a, b, false),
            Expr::Or(a, b) => self.logical(a, b, true),
            Expr::Not(operand) => Ok(Value::Bool(!self.boolean(operand)?)),
            Expr::Negate(operand) => ops::negate(&self.eval(operand)?),
            Expr::Choose(parts) => {
                let (test, yes, no) = parts.as_ref();
                if self.boolean(test)? { self.eval(yes) } else { self.eval(no) }
            }
            Expr::Binary(op, a, b) => {
                let (a, b) = (self.eval(a)?, self.eval(b)?);
                self.binary(*op, a, b)
            }
            Expr::List(items) => self.list(items),
            Expr::Map(entries) => self.map(entries),
            Expr::Loop(each) => self.each(each),
            Expr::Bind(value, body) => {
                let value = self.eval(value)?;
                self.within(value, body)
            }
            Expr::OptMap(operand, body, flat) => self.optional_map(operand, body, *flat),
            Expr::Matches(text, regex) => match self.eval(text)? {
                Value::String(text) => {
                    self.budget.spend(ops::search(&text, regex.as_str()))?;
                    Ok(Value::Bool(regex.is_match(&text)))
                }
                _ => Err(error("'matches' needs a string")),
            },
            Expr::Native(native, args) => self.native(*native, args),
            Expr::Delegate(call, cost, args) => {
                let args = self.all(args)?;
                self.charge(*cost, &args)?;
                let value = delegate::run(call, args)?;
                self.budget.spend(ops::size(&value))?;
                Ok(value)
            }
        }
    }

    fn boolean(&mut self, expr: &Expr) -> Result<bool, Stop> {
        match self.eval(expr)? {
            Value::Bool(value) => Ok(value),
            _ => Err(error("expected true or false")),
        }
    }

    /// `&&` and `||`: the side that decides wins over an error of the other.
    fn logical(&mut self, a: &Expr, b: &Expr, deciding: bool) -> Outcome {
        let first = match self.boolean(a) {
            Ok(value) if value == deciding => return Ok(Value::Bool(deciding)),
            Err(Stop::Spent) => return Err(Stop::Spent),
            other => other,
        };
        match self.boolean(b) {
            Ok(value) if value == deciding => Ok(Value::Bool(deciding)),
            Err(Stop::Spent) => Err(Stop::Spent),
            second => first.and(second).map(Value::Bool),
        }
    }

    fn binary(&mut self, op: Op, a: Value, b: Value) -> Outcome {
        Ok(Value::Bool(match op {
            Op::Equal => ops::equal(&a, &b, self.budget)?,
            Op::NotEqual => !ops::equal(&a, &b, self.budget)?,
            Op::In => ops::contains(&b, &a, self.budget)?,
            Op::Less => ops::compare(&a, &b, self.budget)?.is_lt(),
            Op::LessEqual => ops::compare(&a, &b, self.budget)?.is_le(),
            Op::Greater => ops::compare(&a, &b, self.budget)?.is_gt(),
            Op::GreaterEqual => ops::compare(&a, &b, self.budget)?.is_ge(),
            Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo => {
                return ops::arithmetic(op, a, b, self.budget);
            }
        }))
    }

    fn all(&mut self, exprs: &[Expr]) -> Result<Vec<Value>, Stop> {
        exprs.iter().map(|expr| self.eval(expr)).collect()
    }

    fn list(&mut self, items: &[(Expr, bool)]) -> Outcome {
        let mut list = Vec::with_capacity(items.len());
        for (expr, is_optional) in items {
            list.extend(self.entry(expr, *is_optional)?);
        }
        Ok(Value::List(Arc::new(list)))
    }

    fn map(&mut self, entries: &[(Expr, Expr, bool)]) -> Outcome {
        let mut map = HashMap::with_capacity(entries.len());
        for (key, value, is_optional) in entries {
            let key: Key = key_of(&self.eval(key)?)?;
            if let Some(value) = self.entry(value, *is_optional)? {
                map.insert(key, value);
            }
        }
        Ok(Value::Map(Map { map: Arc::new(map) }))
    }

    /// A value of a list or map literal; `?x` leaves out what is absent.
    fn entry(&mut self, expr: &Expr, is_optional: bool) -> Result<Option<Value>, Stop> {
        let value = self.eval(expr)?;
        if !is_optional {
            return Ok(Some(value));
        }
        let inner = as_optional(&value).ok_or_else(|| error("expected an optional"))?;
        Ok(inner.value().cloned())
    }

    fn optional_index(&mut self, operand: &Expr, key: &Expr) -> Outcome {
        let operand = self.eval(operand)?;
        let operand = match as_optional(&operand).map(OptionalValue::value) {
            Some(None) => return Ok(optional(None)),
            Some(Some(inner)) => inner.clone(),
            None => operand,
        };
        let key = self.eval(key)?;
        Ok(optional(ops::index(&operand, &key).ok()))
    }

    fn optional_map(&mut self, operand: &Expr, body: &Expr, flat: bool) -> Outcome {
        let operand = self.eval(operand)?;
        let Some(inner) = as_optional(&operand) else {
            return Err(error("expected an optional"));
        };
        let Some(inner) = inner.value() else { return Ok(optional(None)) };
        let value = self.within(inner.clone(), body)?;
        if flat {
            return as_optional(&value)
                .map(|inner| optional(inner.value().cloned()))
                .ok_or_else(|| error("expected an optional"));
        }
        Ok(optional(Some(value)))
    }

    /// Evaluates `body` with one more variable.
    fn within(&mut self, value: Value, body: &Expr) -> Outcome {
        self.scope.push(value);
        let value = self.eval(body);
        self.scope.pop();
        value
    }

    fn each(&mut self, each: &Loop) -> Outcome {
        let range = self.eval(&each.range)?;
        let position = self.scope.len();
        let two = each.variables == Variables::Two;
        self.scope.extend([Value::Null, Value::Null].into_iter().take(1 + usize::from(two)));
        let value = match &range {
            Value::List(items) => {
                let place = |at: usize| Value::Int(i64::try_from(at).unwrap_or(i64::MAX));
                let items = items.iter().cloned().enumerate();
                let items = items
                    .map(|(at, item)| if two { (place(at), item) } else { (item, Value::Null) });
                self.run_loop(each, position, items)
            }
            Value::Map(map) => {
                let items = map.map.iter().map(|(key, value)| (Value::from(key), value.clone()));
                self.run_loop(each, position, items)
            }
            _ => Err(error("this value cannot be iterated over")),
        };
        self.scope.truncate(position);
        value
    }

    fn run_loop(
        &mut self,
        each: &Loop,
        position: usize,
        items: impl Iterator<Item = (Value, Value)>,
    ) -> Outcome {
        let (mut failed, mut count) = (None, 0_usize);
        let (mut collected, mut entries) = (Vec::new(), HashMap::new());
        for (item, second) in items {
            if let Some([slot, rest @ ..]) = self.scope.get_mut(position..) {
                *slot = item.clone();
                if let Some(slot) = rest.first_mut() {
                    *slot = second;
                }
            }
            let test = match &each.test {
                Some(test) => self.boolean(test),
                None => Ok(true),
            };
            match (each.kind, test) {
                (_, Err(Stop::Spent)) => return Err(Stop::Spent),
                (LoopKind::All, Ok(false)) => return Ok(Value::Bool(false)),
                (LoopKind::Exists, Ok(true)) => return Ok(Value::Bool(true)),
                // Another item may still decide.
                (LoopKind::All | LoopKind::Exists, Err(stop)) => failed = Some(stop),
                (LoopKind::All | LoopKind::Exists, Ok(_)) => {}
                (_, Err(stop)) => return Err(stop),
                (LoopKind::ExistsOne, Ok(holds)) => count += usize::from(holds),
                (_, Ok(false)) => {}
                (LoopKind::Collect, Ok(true)) => collected.push(self.made(each, item)?),
                (LoopKind::CollectMap, Ok(true)) => {
                    let key = key_of(&item)?;
                    entries.insert(key, self.made(each, item)?);
                }
                (LoopKind::CollectEntries, Ok(true)) => {
                    let made = self.made(each, item)?;
                    self.add_entries(&made, &mut entries)?;
                }
            }
        }
        match (each.kind, failed) {
            (_, Some(stop)) => Err(stop),
            (LoopKind::All, None) => Ok(Value::Bool(true)),
            (LoopKind::Exists, None) => Ok(Value::Bool(false)),
            (LoopKind::ExistsOne, None) => Ok(Value::Bool(count == 1)),
            (LoopKind::Collect, None) => Ok(Value::List(Arc::new(collected))),
            (LoopKind::CollectMap | LoopKind::CollectEntries, None) => {
                Ok(Value::Map(Map { map: Arc::new(entries) }))
            }
        }
    }

    /// What a loop makes of one item.
    fn made(&mut self, each: &Loop, item: Value) -> Outcome {
        each.body.as_ref().map_or(Ok(item), |body| self.eval(body))
    }

    /// Two items that make the same key would hide one another.
    fn add_entries(&mut self, made: &Value, entries: &mut HashMap<Key, Value>) -> Result<(), Stop> {
        let Value::Map(made) = made else { return Err(error("expected a map")) };
        self.budget.spend(made.map.len())?;
        for (key, value) in made.map.iter() {
            if entries.insert(key.clone(), value.clone()).is_some() {
                return Err(error(format!("a loop made the key {key:?} twice")));
            }
        }
        Ok(())
    }

    fn native(&mut self, native: Native, args: &[Expr]) -> Outcome {
        let args = self.all(args)?;
        ops::native(native, &args, self.budget)
    }

    fn charge(&mut self, cost: Cost, args: &[Value]) -> Result<(), Stop> {
        let total = args.iter().map(ops::size).fold(0_usize, usize::saturating_add);
        self.budget.spend(match cost {
            Cost::Linear => total.saturating_add(20),
            Cost::Quadratic => total.saturating_mul(total).saturating_add(20),
            Cost::Regex => total.saturating_add(20_000),
            Cost::Format => {
                if args.first().is_some_and(asks_for_padding) {
                    return Err(error("the precision of a format is too large"));
                }
                total.saturating_add(20)
            }
        })
    }
}

/// A precision of more than two digits could make output of any length.
fn asks_for_padding(pattern: &Value) -> bool {
    let Value::String(pattern) = pattern else { return false };
    pattern.split('%').skip(1).any(|spec| {
        spec.trim_start_matches('.').chars().take_while(char::is_ascii_digit).count() > 2
    })
}
