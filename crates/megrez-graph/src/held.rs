//! Weights that stay with the parties, for many plans of one model.

use crate::clients::ModelInput;
use crate::compile::Compiled;
use crate::tensor::hash_numbers;
use megrez_plan::{KEPT, Plan};
use std::collections::HashMap;

/// The weights that parties hold of a model, by name: a hash of their numbers and fraction bits.
#[derive(Debug, Default)]
pub struct HeldWeights(HashMap<String, [u8; 32]>);

impl HeldWeights {
    /// The plan of a model of which the parties hold these weights already: it reads them where
    /// they are, takes others from their owner, and keeps those for the next plan.
    pub fn plan(&mut self, compiled: &Compiled) -> Plan {
        let mut plan = compiled.plan.clone();
        for weights in &compiled.model_inputs {
            let hash = hash(weights);
            let held = self.0.insert(weights.name.clone(), hash) == Some(hash);
            let Some(input) = plan.inputs.iter_mut().find(|input| input.name == weights.name) else {
                continue;
            };
            if held {
                input.owner = KEPT.into();
            } else {
                let value = input.value;
                plan.output(&weights.name, KEPT, value);
            }
        }
        plan
    }
}

fn hash(weights: &ModelInput) -> [u8; 32] {
    let mut hasher = blake3::Hasher::new_derive_key("megrez 2026 kept weights");
    hasher.update(&weights.frac.to_le_bytes());
    hash_numbers(&mut hasher, &weights.values);
    *hasher.finalize().as_bytes()
}
