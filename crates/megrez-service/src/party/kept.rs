//! What a client's runs leave with a party in shares, for its later runs on the same connection:
//! the keys and values of a language model between two tokens, or weights that are shared once for
//! many plans.
//!
//! Kept values belong to where they come from: the plans of one upload of a stored model, or the
//! plans that the client brings. Neither reads what the other kept. A client could otherwise open a
//! model's inner values by a plan of its own, or put values of its own choice where a model expects
//! what its earlier run has left.

use crate::{Error, ErrorKind, Result};
use megrez_engine::store::{self, Id};
use megrez_engine::{Stored, agree, hash};
use megrez_kernels::Device;
use megrez_plan::{KEPT, Plan, Value};
use megrez_protocols::AnySuite;
use megrez_session::Party;
use std::collections::BTreeMap;

/// Where values come from, and may be read again.
#[derive(Clone, Default, PartialEq, Eq)]
pub(crate) struct Origin {
    pub protocol: String,
    pub ring: u32,
    /// The upload of a stored model; none for plans of the client's own.
    pub upload: Option<Id>,
}

/// A value in shares, as sealed bytes.
struct Held {
    value: Value,
    bytes: Vec<u8>,
}

/// Values by name, all of one origin: a run of another one that keeps something drops them.
#[derive(Default)]
pub(crate) struct Kept {
    origin: Origin,
    values: BTreeMap<String, Held>,
    /// Follows from all runs that kept something: parties with different histories notice.
    mark: [u8; 32],
}

impl Kept {
    /// Whether something is kept.
    pub(crate) fn any(&self) -> bool {
        !self.values.is_empty()
    }

    /// Adds what the plan reads to `stored`; refuses what was not kept, or kept as something else,
    /// or by somebody else.
    pub(crate) fn load<D: Device>(
        &self,
        suite: &dyn AnySuite<D>,
        origin: &Origin,
        plan: &Plan,
        party: &mut Party<D>,
        stored: &mut Stored,
    ) -> Result<()> {
        let wanted: Vec<_> = plan.inputs.iter().filter(|i| i.owner == KEPT).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        agree(party, "kept state", &self.mark)?;
        for input in wanted {
            let name = &input.name;
            let refuse = |what: &str| Err(Error::Refused(format!("`{name}` {what}")));
            let Some(held) = self.values.get(name) else {
                return refuse("is kept by no earlier run of this client");
            };
            if self.origin.upload != origin.upload {
                return refuse(
                    "was kept by plans of another origin: what a stored model keeps is read by plans of that upload \
                     only, and what a client's own plans keep by such plans",
                );
            }
            if self.origin != *origin {
                return refuse(&format!("is not kept under `{}` on this ring", origin.protocol));
            }
            if held.value != *plan.value(input.value) {
                return refuse("was kept with another shape or scale");
            }
            let value = store::decode_value(suite, party.device(), &held.bytes).ok_or_else(|| {
                let what = format!(
                    "`{name}` was damaged in this party's memory: connect anew, and examine the machine"
                );
                Error::of(ErrorKind::DamagedFile, what)
            })?;
            stored.insert(name.clone(), value);
        }
        Ok(())
    }

    /// Keeps what the plan's outputs say, at most `most` elements in all; `run` names the request.
    pub(crate) fn store<D: Device>(
        &mut self,
        suite: &dyn AnySuite<D>,
        origin: &Origin,
        plan: &Plan,
        party: &Party<D>,
        stored: &Stored,
        run: [u8; 32],
        most: usize,
    ) -> Result<()> {
        let outputs: Vec<_> = plan.outputs.iter().filter(|o| o.recipient == KEPT).collect();
        if outputs.is_empty() {
            return Ok(());
        }
        if self.origin != *origin {
            *self = Kept { origin: origin.clone(), ..Kept::default() };
        }
        for output in outputs {
            let missing = || Error::of(ErrorKind::Internal, format!("no run has kept `{}`", output.name));
            let value = stored.get(&output.name).ok_or_else(missing)?;
            let bytes = store::encode_value(suite, party.device(), value)
                .map_err(|e| Error::of(ErrorKind::Internal, e))?;
            let held = Held { value: plan.value(output.value).clone(), bytes };
            self.values.insert(output.name.clone(), held);
        }
        let elements: usize = self.values.values().map(|held| held.value.shape.elements()).sum();
        if elements > most {
            return Err(Error::Refused(format!(
                "{elements} elements would be kept for this client, this party keeps at most {most}"
            )));
        }
        self.mark = hash("megrez 2026 kept state", &[self.mark, run].concat());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_kernels::Cpu;
    use megrez_net::{ClockKind, NetProfile, Network, Payload};
    use megrez_protocols::clear::Clear;
    use std::time::Duration;

    #[test]
    fn no_flipped_bit_of_a_kept_value_becomes_a_number() {
        let network =
            Network::in_memory(1, &NetProfile::loopback(), ClockKind::Virtual, Duration::from_secs(5));
        let mut party = Party::start(network.into_iter().next().unwrap(), Cpu::default()).unwrap();
        let mut plan = Plan::new(64);
        let x = plan.input("x", "alice", [3].into(), 0);
        plan.output("x", KEPT, x);
        let mut reader = Plan::new(64);
        let x = reader.input("x", KEPT, [3].into(), 0);
        reader.output("y", "alice", x);
        let origin = Origin { protocol: "clear".into(), ring: 64, upload: None };
        let suite: &dyn AnySuite<Cpu> = &Clear::<u64, Cpu>::default();
        let value = plan.value(plan.inputs[0].value);
        let (masks, keys) = party.step("x", |party| suite.input(party, value)).unwrap();
        let share: Payload = suite.share(&[keys], &[5, 6, 7]).unwrap().remove(0);
        let data = suite.accept(&party, value, share).unwrap();
        let stored = Stored::from([("x".to_owned(), (masks, data))]);
        let mut kept = Kept::default();
        kept.store(suite, &origin, &plan, &party, &stored, [1; 32], 10).unwrap();
        let mut load = |kept: &Kept| {
            let mut read = Stored::new();
            kept.load(suite, &origin, &reader, &mut party, &mut read).map(|()| read.len())
        };
        assert_eq!(load(&kept).unwrap(), 1);
        let bits = kept.values["x"].bytes.len() * 8;
        for bit in 0..bits {
            let flip = |kept: &mut Kept| kept.values.get_mut("x").unwrap().bytes[bit / 8] ^= 1 << (bit % 8);
            flip(&mut kept);
            let error = load(&kept).unwrap_err().to_string();
            assert!(error.contains("`x` was damaged"), "{error}");
            flip(&mut kept);
        }
        assert_eq!(load(&kept).unwrap(), 1);
    }
}
