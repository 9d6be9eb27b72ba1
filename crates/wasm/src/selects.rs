//! A detour around an error of wasmi 2.0.0.
//!
//! Its translator merges `select` with a comparison to zero before it (`i32.eqz`, `i32.eq` or `i32.ne`).
//! If the compared value is a local variable, the merged instruction reads a register that nothing has
//! set. So the result of a comparison goes through one more instruction, which does not change it.

use std::borrow::Cow;
use std::ops::Range;

use wasmparser::{BinaryReaderError, Operator, Parser, Payload};

/// Returns a valid module with an instruction between each comparison and the `select` after it.
///
/// # Errors
/// The module cannot be read.
pub(crate) fn separated(bytes: &[u8]) -> Result<Cow<'_, [u8]>, BinaryReaderError> {
    let mut places = Vec::new();
    let mut bodies: Vec<Range<usize>> = Vec::new();
    // The sections before the code end here.
    let (mut end, mut code) = (HEADER, None);
    for payload in Parser::new(0).parse_all(bytes) {
        let payload = payload?;
        if let Payload::CodeSectionEntry(body) = &payload {
            bodies.push(body.range());
            let mut is_compared = false;
            let mut operators = body.get_operators_reader()?;
            while !operators.eof() {
                let (operator, at) = operators.read_with_offset()?;
                match operator {
                    Operator::I32Eqz | Operator::I32Eq | Operator::I32Ne => is_compared = true,
                    Operator::Nop | Operator::End => {}
                    Operator::Select | Operator::TypedSelect { .. } if is_compared => {
                        places.push(at);
                        is_compared = false;
                    }
                    _ => is_compared = false,
                }
            }
        } else if let Some((id, range)) = payload.as_section() {
            match id == CODE {
                true => code = Some((end, range)),
                false if code.is_none() => end = range.end,
                false => {}
            }
        }
    }
    let (false, Some((start, range))) = (places.is_empty(), code) else {
        return Ok(Cow::Borrowed(bytes));
    };
    let mut content = Vec::with_capacity(range.len() + SAME.len() * places.len());
    number(bodies.len(), &mut content);
    // Bodies and places are in the order of the module.
    let mut places = places.into_iter().peekable();
    for body in bodies {
        let mut changed = Vec::with_capacity(body.len());
        let mut from = body.start;
        while let Some(at) = places.next_if(|at| *at < body.end) {
            changed.extend_from_slice(&bytes[from..at]);
            changed.extend_from_slice(SAME);
            from = at;
        }
        changed.extend_from_slice(&bytes[from..body.end]);
        number(changed.len(), &mut content);
        content.append(&mut changed);
    }
    let mut module = bytes[..start].to_vec();
    module.push(CODE);
    number(content.len(), &mut module);
    module.append(&mut content);
    module.extend_from_slice(&bytes[range.end..]);
    Ok(Cow::Owned(module))
}

/// Appends a number in LEB128 (WebAssembly 2.0 section 5.2.2).
fn number(mut n: usize, to: &mut Vec<u8>) {
    while n >= 0x80 {
        to.push(n as u8 | 0x80);
        n >>= 7;
    }
    to.push(n as u8);
}

/// The bytes of the magic number and the version.
const HEADER: usize = 8;
/// The number of the section of code.
const CODE: u8 = 10;
/// `i32.const 0` and `i32.or`, which leave a value as it is.
const SAME: &[u8] = &[0x41, 0x00, 0x72];

#[cfg(test)]
mod tests {
    use wasmi::{Engine, Linker, Module, Store};
    use wasmparser::Validator;

    use super::*;

    /// Returns what `select` and `if` give for three values of the local variable 0.
    fn results(module: &[u8]) -> [(i64, i64); 3] {
        let engine = Engine::default();
        let module = Module::new(&engine, module).unwrap();
        let mut store = Store::new(&engine, ());
        let linker = Linker::<()>::new(&engine);
        let instance = linker.instantiate_and_start(&mut store, &module).unwrap();
        let mut call = |name, x| {
            let function = instance.get_typed_func::<(i32, i64, i64), i64>(&store, name);
            function.unwrap().call(&mut store, (x, 1, 5)).unwrap()
        };
        [0, 1, 2].map(|x| (call("select", x), call("if", x)))
    }

    fn module(condition: &str, [yes, no]: [&str; 2]) -> Vec<u8> {
        // The padding makes the size of the body longer than one byte.
        let padding = "(drop (i32.const 7))".repeat(40);
        let types = "(param i32 i64 i64) (result i64)";
        let text = format!(
            "(module (global $n (mut i64) (i64.const 1))
               (func (export \"select\") {types} {padding} (select {yes} {no} {condition}))
               (func (export \"if\") {types}
                 (if (result i64) {condition} (then {yes}) (else {no})))
               (@custom \"last\" \"kept\"))"
        );
        wat::parse_str(&text).unwrap()
    }

    #[test]
    fn select_and_if_agree_after_every_comparison() {
        let local = "(local.get 0)";
        let conditions = [
            format!("(i32.eqz {local})"),
            format!("(i32.eq {local} (i32.const 0))"),
            format!("(i32.ne {local} (i32.const 0))"),
            format!("(i32.eqz (i32.eqz {local}))"),
            format!("(block (result i32) (i32.eqz {local}))"),
            format!(
                "(block (result i32) (br_if 0 (i32.const 2) {local}) (drop) (i32.eqz {local}))"
            ),
            format!("(i32.lt_s {local} (i32.const 1))"),
            format!("(i32.and {local} (i32.const 1))"),
            local.to_owned(),
        ];
        let operands = [
            ["(i64.const 1)", "(i64.const 5)"],
            ["(global.get $n)", "(i64.const 5)"],
            ["(local.get 1)", "(local.get 2)"],
        ];
        let mut wrong = 0;
        for condition in &conditions {
            for operands in operands {
                let original = module(condition, operands);
                let separated = separated(&original).unwrap();
                for (select, branch) in results(&separated) {
                    assert_eq!(select, branch, "{condition} {operands:?}");
                }
                let is_kept = |module: &[u8]| module.windows(8).any(|bytes| bytes == b"lastkept");
                assert!(is_kept(&separated), "the sections after the code stay");
                wrong += results(&original).iter().filter(|(a, b)| a != b).count();
            }
        }
        assert!(wrong > 0, "wasmi has mended this: remove the detour");
    }

    #[test]
    fn each_function_gets_the_instructions_before_its_own_selects() {
        let select = "(drop (select (i32.const 1) (i32.const 2) (i32.eqz (local.get 0))))";
        let two = select.repeat(2);
        let bodies = ["", two.as_str(), "", select, ""];
        let functions = bodies.map(|body| format!("(func (param i32) {body})"));
        let original = wat::parse_str(format!("(module {})", functions.concat())).unwrap();
        let separated = separated(&original).unwrap();
        Validator::new().validate_all(&separated).unwrap();
        let lengths = |module: &[u8]| -> Vec<usize> {
            let payloads = Parser::new(0).parse_all(module);
            let bodies = payloads.filter_map(|payload| match payload.unwrap() {
                Payload::CodeSectionEntry(body) => Some(body.range().len()),
                _ => None,
            });
            bodies.collect()
        };
        let lengths = lengths(&separated).into_iter().zip(lengths(&original));
        let added: Vec<usize> = lengths.map(|(now, before)| now - before).collect();
        // Three bytes for each select.
        assert_eq!(added, [0, 6, 0, 3, 0]);
    }

    #[test]
    fn a_module_without_such_a_select_stays_as_it_is() {
        let module = module("(local.get 0)", ["(i64.const 1)", "(i64.const 5)"]);
        assert!(matches!(separated(&module), Ok(Cow::Borrowed(_))));
    }
}
