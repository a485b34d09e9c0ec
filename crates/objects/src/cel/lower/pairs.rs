//! Loops over keys and values: `all(k, v, …)`, `exists`, `existsOne`, `transformList`,
//! `transformMap` and `transformMapEntry`. The parser leaves them as calls.

use kube_cel::cel::IdedExpr;
use kube_cel::cel::common::ast::{CallExpr, Expr as Ast};

use super::{Lowered, Lowering};
use crate::cel::MAX_LOOPS;
use crate::cel::expr::{Expr, Loop, LoopKind, Variables};
use crate::cel::shape::Type;

/// A loop with two variables.
pub(super) struct Pairs<'c> {
    kind: LoopKind,
    key: &'c str,
    value: &'c str,
    test: Option<&'c IdedExpr>,
    body: Option<&'c IdedExpr>,
}

impl<'c> Pairs<'c> {
    /// Reads a call as such a loop; `None` if it is something else.
    pub(super) fn read(call: &'c CallExpr) -> Option<Self> {
        let kind = match call.func_name.as_str() {
            "all" => LoopKind::All,
            "exists" => LoopKind::Exists,
            "existsOne" | "exists_one" => LoopKind::ExistsOne,
            "transformList" => LoopKind::Collect,
            "transformMap" => LoopKind::CollectMap,
            "transformMapEntry" => LoopKind::CollectEntries,
            _ => return None,
        };
        let (names, test, body) = match (kind, call.args.as_slice()) {
            (LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne, [key, value, test]) => {
                ((key, value), Some(test), None)
            }
            (LoopKind::All | LoopKind::Exists | LoopKind::ExistsOne, _) => return None,
            (_, [key, value, body]) => ((key, value), None, Some(body)),
            (_, [key, value, test, body]) => ((key, value), Some(test), Some(body)),
            _ => return None,
        };
        let (Ast::Ident(key), Ast::Ident(value)) = (&names.0.expr, &names.1.expr) else {
            return None;
        };
        Some(Self { kind, key, value, test, body })
    }
}

impl<'a> Lowering<'a> {
    pub(super) fn pairs(&mut self, of: &IdedExpr, pairs: &Pairs<'_>, depth: usize) -> Lowered<'a> {
        let (range, found) = self.expr(of, depth)?;
        let (key, value) = match found {
            Type::Dyn => (Type::Dyn, Type::Dyn),
            Type::List(item) => (Type::Int, *item),
            Type::Map(value) => (Type::String, *value),
            other => return Err(format!("expression of type {other} cannot be iterated over")),
        };
        if pairs.key == pairs.value {
            return Err(format!("both variables of a loop are called '{}'", pairs.key));
        }
        self.loops += 1;
        if self.loops > MAX_LOOPS {
            return Err(format!("loops are nested more than {MAX_LOOPS} levels deep"));
        }
        self.scope.push((pairs.key.to_owned(), key));
        self.scope.push((pairs.value.to_owned(), value));
        let test = pairs.test.map(|test| self.boolean(test, depth)).transpose();
        let body = pairs.body.map(|body| self.expr(body, depth)).transpose();
        self.scope.truncate(self.scope.len().saturating_sub(2));
        self.loops -= 1;
        let (test, body) = (test?, body?);
        let found = match (pairs.kind, &body) {
            (LoopKind::Collect, Some((_, found))) => Type::List(Box::new(found.clone())),
            (LoopKind::CollectMap, Some((_, found))) => Type::Map(Box::new(found.clone())),
            (LoopKind::CollectEntries, Some((_, found))) => match found {
                Type::Map(_) | Type::Dyn => found.clone(),
                other => return Err(format!("'transformMapEntry' needs a map, not {other}")),
            },
            _ => Type::Bool,
        };
        let body = body.map(|(body, _)| body);
        let kind = pairs.kind;
        let each = Loop { range, kind, variables: Variables::Two, test, body };
        Ok((Expr::Loop(Box::new(each)), found))
    }
}
