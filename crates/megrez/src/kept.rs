//! What a client's runs leave with a party in shares, for its later runs on the same connection: the keys and values of a
//! language model between two tokens, or weights that are shared once for many plans.

use crate::{Error, Result};
use megrez_engine::{Stored, agree, hash};
use megrez_plan::{KEPT, Plan, Value};
use megrez_protocols::{Store as _, Suite};
use megrez_session::Party;
use std::collections::BTreeMap;

/// Values by name, in the sharing of one protocol, as bytes.
#[derive(Default)]
pub(crate) struct Kept {
    protocol: String,
    ring: u32,
    values: BTreeMap<String, (Value, Vec<u8>)>,
    /// Follows from all runs that kept something: parties with different histories notice.
    mark: [u8; 32],
}

impl Kept {
    /// Adds what the plan reads to `stored`; refuses what was not kept, or kept as something else.
    pub(crate) fn load<S: Suite>(
        &self,
        protocol: &str,
        plan: &Plan,
        party: &mut Party<S::Device>,
        stored: &mut Stored<S>,
    ) -> Result<()> {
        let wanted: Vec<_> = plan.inputs.iter().filter(|i| i.owner == KEPT).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        agree(party, "kept state", &self.mark)?;
        let refuse = |what: String| Err(Error::Refused(what));
        if (self.protocol.as_str(), self.ring) != (protocol, plan.ring) {
            return refuse(format!("nothing is kept for this client under `{protocol}` on this ring"));
        }
        for input in wanted {
            let name = &input.name;
            let Some((value, bytes)) = self.values.get(name) else {
                return refuse(format!("`{name}` is kept by no earlier run of this client"));
            };
            if value != plan.value(input.value) {
                return refuse(format!("`{name}` was kept with another shape or scale"));
            }
            let mut body = bytes.as_slice();
            let damaged = |_| Error::Refused(format!("`{name}` was not kept whole"));
            let masks = S::Masks::read(party.device(), &mut body).map_err(damaged)?;
            let data = S::Data::read(party.device(), &mut body).map_err(damaged)?;
            stored.insert(name.clone(), (masks, data));
        }
        Ok(())
    }

    /// Keeps what the plan's outputs say, at most `most` elements in all; `run` names the request.
    pub(crate) fn store<S: Suite>(
        &mut self,
        protocol: &str,
        plan: &Plan,
        party: &Party<S::Device>,
        stored: &Stored<S>,
        run: [u8; 32],
        most: usize,
    ) -> Result<()> {
        let outputs: Vec<_> = plan.outputs.iter().filter(|o| o.recipient == KEPT).collect();
        if outputs.is_empty() {
            return Ok(());
        }
        if (self.protocol.as_str(), self.ring) != (protocol, plan.ring) {
            *self = Kept { protocol: protocol.into(), ring: plan.ring, ..Kept::default() };
        }
        for output in outputs {
            let (masks, data) = &stored[&output.name];
            let mut bytes = vec![];
            masks.write(party.device(), &mut bytes).map_err(|e| Error::Refused(e.to_string()))?;
            data.write(party.device(), &mut bytes).map_err(|e| Error::Refused(e.to_string()))?;
            self.values.insert(output.name.clone(), (plan.value(output.value).clone(), bytes));
        }
        let elements: usize = self.values.values().map(|(value, _)| value.shape.elements()).sum();
        if elements > most {
            return Err(Error::Refused(format!(
                "{elements} elements would be kept for this client, this party keeps at most {most}"
            )));
        }
        self.mark = hash("megrez 2026 kept state", &[self.mark, run].concat());
        Ok(())
    }
}
