//! The part of the path that a flow passes.

use super::super::error::{Problem, Problems};

use super::super::schema::Field;
use super::super::tree::{Node, Value};

/// A part of the path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hops {
    /// The first link, counted from 1 in the order of the path up.
    pub first: u64,
    /// The last link.
    pub last: u64,
}

impl Field for Hops {
    type Scalar = std::convert::Infallible;
    const KIND: &'static str = "number or pair";

    fn read(key: &str, node: &Node, problems: &mut Problems) -> Option<Self> {
        let hops = match &node.value {
            Value::Array(items) => match items.as_slice() {
                [first, last] => Hops {
                    first: u64::read(key, first, problems)?,
                    last: u64::read(key, last, problems)?,
                },
                _ => {
                    let message = format!("`{key}` has {} numbers, not 2", items.len());
                    let problem = Problem::new(node.at.clone(), message);
                    return problems.refuse(problem.hint("the first and the last, such as [1, 3]"));
                }
            },
            _ => {
                let only = u64::read(key, node, problems)?;
                Hops {
                    first: only,
                    last: only,
                }
            }
        };
        if hops.first == 0 || hops.first > hops.last {
            let message = format!("`{key}` cannot be {} to {}", hops.first, hops.last);
            let problem = Problem::new(node.at.clone(), message);
            return problems
                .refuse(problem.hint("links count from 1, the first not after the last"));
        }
        Some(hops)
    }

    fn write(&self) -> Option<Value> {
        let number = |n: u64| Value::Integer(n as i64).into();
        Some(Value::Array(vec![number(self.first), number(self.last)]))
    }
}
