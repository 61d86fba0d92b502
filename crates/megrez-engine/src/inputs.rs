//! Inputs as their owners send them, and the comparison that finds an owner who sends different
//! things to parties that must hold the same.

use crate::clients::Clients;
use megrez_kernels::Device;
use megrez_plan::{Input, Plan};
use megrez_protocols::{AnyData, AnySuite, AnyValue};
use megrez_session::{Error, Party};
use std::collections::{BTreeMap, HashMap};

/// Inputs that this party already holds, by input name: an uploaded model's, and what earlier runs
/// have kept.
pub type Stored = HashMap<String, AnyValue>;

/// Inputs that arrive at one party.
#[derive(Default)]
pub struct Arrivals {
    /// By peer: what it must have received as well.
    common: BTreeMap<usize, blake3::Hasher>,
    /// Names and owners of the inputs so far.
    names: Vec<(String, String)>,
}

impl Arrivals {
    /// Receives an input from its owner.
    ///
    /// # Errors
    /// If the owner is lost or sends something of another size.
    pub fn receive<D: Device>(
        &mut self,
        suite: &dyn AnySuite<D>,
        plan: &Plan,
        party: &Party<D>,
        input: &Input,
        clients: &mut dyn Clients,
    ) -> Result<AnyData, Error> {
        let value = plan.value(input.value);
        let message = clients.data(input, suite.share_bytes(value))?;
        for (peer, part) in suite.common(party.me(), message.as_bytes()) {
            let hasher = self.common.entry(peer).or_default();
            hasher.update(&(part.len() as u64).to_le_bytes());
            hasher.update(part);
        }
        self.names.push((input.name.clone(), input.owner.clone()));
        suite.accept(party, value, message)
    }

    /// Waits for all parties, as [`Party::barrier`] does, and refuses what owners gave them
    /// differently.
    ///
    /// # Errors
    /// If an owner gave this party and a peer different shares.
    pub fn compare<D: Device>(self, party: &mut Party<D>, barrier: &str) -> Result<(), Error> {
        let common =
            self.common.iter().map(|(&peer, hasher)| (peer, *hasher.finalize().as_bytes())).collect();
        let Some(&peer) = party.barrier_with(barrier, &common)?.first() else { return Ok(()) };
        let (me, mut owners) = (party.me(), vec![]);
        for (_, owner) in &self.names {
            let owner = format!("`{owner}`");
            if !owners.contains(&owner) {
                owners.push(owner);
            }
        }
        let names: Vec<String> = self.names.iter().map(|(name, _)| format!("`{name}`")).collect();
        Err(Error::Refused(format!(
            "{} gave parties {} and {} different shares of one of the inputs {}: nothing is computed from them",
            owners.join(" or "),
            me.min(peer),
            me.max(peer),
            names.join(", ")
        )))
    }
}
