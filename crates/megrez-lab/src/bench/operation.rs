//! The operations of `megrez bench op`: a plan of one step, or of the few that it takes.

use super::layer::LayerOp;
use super::options::BenchOptions;
use megrez::protocols::find;
use megrez::{Error, Result};
use megrez_graph::PoolForm;
use megrez_plan::{Gives, List, Op, Plan, PlanError, Relu, ValueId, View, Winner};
use megrez_ring::Shape;

/// The operations that `bench op` knows.
pub const OPS: &[&str] = &[
    "sign-bit",
    "msb",
    "drelu",
    "relu",
    "maxpool",
    "mul",
    "mul3",
    "mul4",
    "fixed-mul",
    "matmul",
    "fixed-matmul",
    "truncate",
    "select",
    "select-truncate",
    "mux",
    "and",
    "and2",
    "and4",
    "andn",
    "bit-to-ring",
    "bit2a",
    "a2b",
    "b2a",
    "adder",
    "compare-many",
    "winner",
    "sigmoid",
    "tanh",
    "gelu",
    "silu",
    "exp",
    "log",
    "reciprocal",
    "rsqrt",
    "softmax",
    "layernorm",
];

/// How many bits `andn` takes.
const MANY: usize = 16;

/// How many values `winner` takes.
const CONTENDERS: usize = 10;

/// The comparison of `winner`: of 8 bits unless the options say otherwise.
pub(super) fn winner_of(o: &BenchOptions) -> Winner {
    Winner { cut: o.sign.cut, bits: o.sign.bits.unwrap_or(8), gives: Gives::Value }
}

/// The operation's one name: papers have others.
pub(super) fn canonical(op: &str) -> &str {
    match op {
        "msb" | "drelu" => "sign-bit",
        "mux" => "select",
        "and2" => "and",
        "bit2a" => "bit-to-ring",
        op => op,
    }
}

/// How many factors a product has.
pub(super) fn factors_of(op: &str) -> usize {
    match op {
        "mul3" => 3,
        "mul4" => 4,
        _ => 2,
    }
}

/// The conjunction of bits, by a tree of conjunctions of up to `factors`.
fn conjunction(
    plan: &mut Plan,
    bits: Vec<ValueId>,
    factors: usize,
) -> std::result::Result<ValueId, PlanError> {
    let (mut bits, mut level) = (bits, 0);
    while bits.len() > 1 {
        let mut next = vec![];
        for (i, part) in bits.chunks(factors).enumerate() {
            next.push(match part {
                [only] => *only,
                part => plan.step(&format!("op/{level}-{i}"), Op::And, part)?,
            });
        }
        (bits, level) = (next, level + 1);
    }
    Ok(bits[0])
}

/// The plan of one operation on `batch` elements.
pub fn op_plan(op: &str, client: &str, o: &BenchOptions) -> Result<Plan> {
    if let Some(layer) = LayerOp::find(op) {
        return layer.plan(client, o);
    }
    let mut plan = Plan::new(o.ring);
    let n: Shape = [o.batch].into();
    let refuse = |e: PlanError| Error::Refused(e.to_string());
    let sign = || Op::NonNegative(o.sign.clone());
    let relu = |truncate| Op::Relu(Relu { sign: o.sign.clone(), form: o.form, truncate });
    let input =
        |plan: &mut Plan, name: &str, shape: &Shape, frac| plan.input(name, client, shape.clone(), frac);
    let z = match canonical(op) {
        "sign-bit" => {
            let x = input(&mut plan, "x", &n, o.frac);
            plan.step("op", sign(), &[x])
        }
        "relu" => {
            let x = input(&mut plan, "x", &n, o.frac + o.truncate);
            plan.step("op", relu(o.truncate), &[x])
        }
        "mul" | "fixed-mul" => {
            let (x, y) = (input(&mut plan, "x", &n, o.frac), input(&mut plan, "y", &n, o.frac));
            let z = plan.step("op", Op::Mul, &[x, y]).map_err(refuse)?;
            if op == "mul" { Ok(z) } else { plan.step("truncate", Op::Truncate { bits: o.frac }, &[z]) }
        }
        "mul3" | "mul4" => {
            let names = &["x", "y", "z", "w"][..factors_of(op)];
            let factors: Vec<_> = names.iter().map(|name| input(&mut plan, name, &n, o.frac)).collect();
            plan.step("op", Op::Mul, &factors)
        }
        "matmul" | "fixed-matmul" => {
            let [m, k, n] = o.shape;
            let x = input(&mut plan, "x", &[m, k].into(), o.frac);
            let y = input(&mut plan, "y", &[k, n].into(), o.frac);
            let z = plan.step("op", Op::MatMul, &[x, y]).map_err(refuse)?;
            if op == "matmul" { Ok(z) } else { plan.step("truncate", Op::Truncate { bits: o.frac }, &[z]) }
        }
        "truncate" => {
            let x = input(&mut plan, "x", &n, 2 * o.frac);
            plan.step("op", Op::Truncate { bits: o.frac }, &[x])
        }
        "select-truncate" => {
            let (x, y) = (input(&mut plan, "x", &n, o.frac), input(&mut plan, "y", &n, 2 * o.frac));
            let b = plan.step("bit", sign(), &[x]).map_err(refuse)?;
            plan.step("op", Op::Select { truncate: o.frac }, &[b, y])
        }
        "select" | "and" | "bit-to-ring" => {
            // The bit is a comparison's; the report separates the steps.
            let x = input(&mut plan, "x", &n, o.frac);
            let b = plan.step("bit", sign(), &[x]).map_err(refuse)?;
            match canonical(op) {
                "select" => plan.step("op", Op::SELECT, &[b, x]),
                "and" => plan.step("op", Op::And, &[b, b]),
                _ => plan.step("op", Op::BitToRing, &[b]),
            }
        }
        "and4" | "andn" => {
            let count = if op == "and4" { 4 } else { MANY };
            let factors = find(&o.run.protocol)?.factors;
            let x = input(&mut plan, "x", &[count * o.batch].into(), o.frac);
            let bits = plan.step("bit", sign(), &[x]).map_err(refuse)?;
            let part = |i: usize| Op::View(View { offset: i * o.batch, ..View::whole(n.clone()) });
            let parts = (0..count).map(|i| plan.step(&format!("part{i}"), part(i), &[bits]));
            let parts = parts.collect::<std::result::Result<Vec<_>, _>>().map_err(refuse)?;
            conjunction(&mut plan, parts, factors)
        }
        "a2b" | "b2a" | "adder" => {
            // Values in bits are made of ring values; the report separates the steps.
            let mut bits = |name: &str, step: &str| {
                let x = input(&mut plan, name, &n, o.frac);
                plan.step(step, Op::ToBits, &[x]).map_err(refuse)
            };
            match op {
                "a2b" => bits("x", "op"),
                "b2a" => {
                    let b = bits("x", "a2b")?;
                    plan.step("op", Op::FromBits, &[b]).map_err(refuse)
                }
                _ => {
                    let (a, b) = (bits("x", "a2b/x")?, bits("y", "a2b/y")?);
                    plan.step("op", Op::AddBits, &[a, b]).map_err(refuse)
                }
            }
            .map(Ok)?
        }
        "compare-many" => {
            let x = input(&mut plan, "x", &n, o.frac);
            let one = 1i64 << o.frac;
            plan.step("op", Op::CompareMany { sign: o.sign.clone(), thresholds: vec![-one, 0, one] }, &[x])
        }
        "winner" => {
            let x = input(&mut plan, "x", &[CONTENDERS, o.batch].into(), o.frac);
            plan.step("op", Op::Winner(winner_of(o)), &[x])
        }
        "maxpool" if o.pool == PoolForm::AllPairs => {
            let x = input(&mut plan, "x", &[4, o.batch].into(), o.frac);
            let tap = |plan: &mut Plan, i: usize| {
                let view = View { offset: i * o.batch, ..View::whole(n.clone()) };
                plan.step(&format!("tap{i}"), Op::View(view), &[x]).map_err(refuse)
            };
            let taps = [0, 1, 2, 3].map(|i| tap(&mut plan, i));
            let taps = taps.into_iter().collect::<Result<Vec<_>>>()?;
            plan.step("op", Op::Maximum(o.sign.clone()), &taps)
        }
        "maxpool" => {
            // `batch` outputs of 2×2 windows: a tournament of two levels.
            let mut values = input(&mut plan, "x", &[4, o.batch].into(), o.frac);
            for (level, half) in [2, 1].into_iter().enumerate() {
                let shape: Shape = [2 * half, o.batch].into();
                let part = |plan: &mut Plan, name: &str, start| {
                    let view = View::slice(&shape, 0, start, 1, half);
                    plan.step(&format!("level{level}/{name}"), Op::View(view), &[values]).map_err(refuse)
                };
                let (a, b) = (part(&mut plan, "left", 0)?, part(&mut plan, "right", half)?);
                let difference = Op::Combine { coefficients: vec![1, -1], constant: 0 };
                let d =
                    plan.step(&format!("level{level}/difference"), difference, &[a, b]).map_err(refuse)?;
                let d = plan.step(&format!("level{level}/relu"), relu(0), &[d]).map_err(refuse)?;
                let sum = Op::Combine { coefficients: vec![1, 1], constant: 0 };
                values = plan.step(&format!("level{level}/max"), sum, &[b, d]).map_err(refuse)?;
            }
            Ok(values)
        }
        other => {
            return Err(Error::Refused(format!(
                "there is no operation `{other}`; there are: {}",
                OPS.join(", ")
            )));
        }
    };
    let z = z.map_err(refuse)?;
    plan.output("z", client, z);
    if o.sign.list == List::Tree && find(&o.run.protocol)?.selects_truncated {
        megrez_passes::select_by_trees(&mut plan).map_err(refuse)?;
    }
    Ok(plan)
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez::RunOptions;
    use megrez::protocols;
    use megrez_session::Phase;

    #[test]
    fn every_operation_has_a_plan_and_a_price() {
        for (ring, frac) in [(32, 10), (64, 16)] {
            let run = RunOptions::new("mizar");
            let options = BenchOptions { ring, frac, batch: 30, shape: [2, 3, 4], ..BenchOptions::new(run) };
            for op in OPS {
                let plan = op_plan(op, "client", &options).unwrap_or_else(|e| panic!("{op}: {e}"));
                plan.validate().unwrap();
                // Mizar's conjunctions are of two bits, and trees follow the protocol.
                let protocol = match *op {
                    "a2b" | "b2a" | "adder" => "alkaid",
                    "mul3" | "mul4" => "meteor",
                    _ => "mizar",
                };
                assert!(protocols::cost(protocol, &plan).unwrap().bits(Phase::Online) > 0.0, "{op}");
            }
        }
    }
}
