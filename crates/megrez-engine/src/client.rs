//! The client's side of a run: sharing inputs, learning outputs. A client is no compute party.

use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_plan::{Input, KEPT, Output, Plan};
use megrez_protocols::AnySuite;
use megrez_session::Error;
use zeroize::Zeroizing;

/// A client's way to one party during a run.
pub trait PartyPort {
    /// The party's input-mask key for the next input of this client, in the plan's order.
    fn mask_key(&mut self) -> Result<Vec<u8>, Error>;
    /// Sends the party its share of the next input.
    fn send(&mut self, share: Payload) -> Result<(), Error>;
    /// The party's share of the next output for this client; at most `limit` bytes.
    fn output(&mut self, limit: usize) -> Result<Payload, Error>;
}

/// Shares this client's inputs, those that `wanted` accepts, with the parties.
pub fn provide<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    wanted: &dyn Fn(&Input) -> bool,
    words: &dyn Fn(&Input) -> Result<Vec<u64>, Error>,
    parties: &mut [&mut dyn PartyPort],
) -> Result<(), Error> {
    let inputs: Vec<&Input> = plan.inputs.iter().filter(|i| i.owner != KEPT && wanted(i)).collect();
    let mut mask_keys = Vec::new();
    for _ in &inputs {
        let of_input = parties.iter_mut().map(|p| p.mask_key()).collect::<Result<Vec<_>, _>>()?;
        // They are the keys of this input's mask.
        mask_keys.push(Zeroizing::new(of_input));
    }
    for (input, mask_keys) in inputs.iter().zip(&mask_keys) {
        let words = words(input)?;
        let expected = plan.value(input.value).shape.elements();
        if words.len() != expected {
            return Err(Error::Refused(format!(
                "input `{}` takes {expected} elements, {} were given",
                input.name,
                words.len()
            )));
        }
        for (party, share) in parties.iter_mut().zip(suite.share(mask_keys, &words)?) {
            party.send(share)?;
        }
    }
    Ok(())
}

/// Learns the outputs whose recipient is `recipient`: words per output, in the plan's order.
pub fn collect<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    recipient: &str,
    parties: &mut [&mut dyn PartyPort],
) -> Result<Vec<Vec<u64>>, Error> {
    collect_where(suite, plan, &|output| output.recipient == recipient, parties)
}

/// Learns the outputs that `wanted` accepts: words per output, in the plan's order, in which
/// parties send them.
pub fn collect_where<D: Device>(
    suite: &dyn AnySuite<D>,
    plan: &Plan,
    wanted: &dyn Fn(&Output) -> bool,
    parties: &mut [&mut dyn PartyPort],
) -> Result<Vec<Vec<u64>>, Error> {
    let mut outputs = Vec::new();
    for output in plan.outputs.iter().filter(|o| wanted(o)) {
        let value = plan.value(output.value);
        let limit = value.shape.elements() * (suite.ring() as usize / 8) + 8;
        let shares = parties.iter_mut().map(|p| p.output(limit)).collect::<Result<Vec<_>, _>>()?;
        outputs.push(suite.reconstruct(value, &shares)?);
    }
    Ok(outputs)
}
