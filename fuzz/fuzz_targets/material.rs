//! Stored material, behind a header and a hash that are right: only then is the body read at all.
#![no_main]

use libfuzzer_sys::fuzz_target;
use megrez_engine::files;
use megrez_engine::store::{self, Binding};
use megrez_kernels::Cpu;
use megrez_plan::{Op, Plan, Relu, ReluForm, SignBit};
use megrez_protocols::mizar::Mizar;
use std::sync::LazyLock;

/// A product and a ReLU on two elements: every kind of stored value in few bytes.
static PLAN: LazyLock<Plan> = LazyLock::new(|| {
    let mut plan = Plan::new(32);
    let x = plan.input("x", "owner", [2].into(), 8);
    let product = plan.step("product", Op::Mul, &[x, x]).unwrap();
    let relu = Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 8 });
    let y = plan.step("relu", relu, &[product]).unwrap();
    plan.output("y", "owner", y);
    plan
});

fuzz_target!(|bytes: &[u8]| {
    let suite = Mizar::<u32, Cpu>::default();
    for party in 0..3usize {
        let (protocol, client) = ("mizar", "owner");
        let binding =
            Binding { batch: [7; 16], party, stock: false, protocol, client, upload: None, plan: &PLAN };
        let mut file = binding.header(&[9; 16]);
        file.extend_from_slice(bytes);
        files::seal(store::MATERIAL, &mut file);
        let _ = store::decode(&suite, &Cpu::default(), &binding, &[9; 16], &file);
    }
});
