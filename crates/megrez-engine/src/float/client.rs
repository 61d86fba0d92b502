//! The client's side of a floating-point run: sharing inputs, learning outputs.

use crate::client::PartyPort;
use megrez_plan::{FloatPlan, Input, Output};
use megrez_prg::Key;
use megrez_session::Error;
use megrez_twoparty::client::{join, share_bytes, split};

/// The numbers of an input for a run.
pub type FloatInputs<'a> = dyn Fn(u32, &Input) -> Result<Vec<f32>, Error> + 'a;

/// Shares this client's inputs, those that `wanted` accepts, with both parties that compute; a
/// dealer gets nothing.
///
/// # Errors
/// If an input has not as many numbers as the plan says, or a party is lost.
pub fn provide_floats(
    plan: &FloatPlan,
    wanted: &dyn Fn(&Input) -> bool,
    numbers: &dyn Fn(&Input) -> Result<Vec<f32>, Error>,
    parties: &mut [&mut dyn PartyPort],
) -> Result<(), Error> {
    for input in plan.inputs.iter().filter(|i| wanted(i)) {
        let numbers = numbers(input)?;
        let expected = plan.shape(input.value).elements();
        if numbers.len() != expected {
            let got = numbers.len();
            let what = format!("input `{}` takes {expected} elements, {got} were given", input.name);
            return Err(Error::Refused(what));
        }
        let key = Key::random().map_err(|e| Error::Refused(format!("no randomness: {e}")))?;
        for (party, share) in parties.iter_mut().zip(split(&numbers, &key)) {
            party.send(share)?;
        }
    }
    Ok(())
}

/// Learns the plan's outputs, in its order, from both parties that compute.
///
/// # Errors
/// If a party is lost, or a share has not the right size.
pub fn collect_floats(plan: &FloatPlan, parties: &mut [&mut dyn PartyPort]) -> Result<Vec<Vec<f32>>, Error> {
    let one = |output: &Output| {
        let n = plan.shape(output.value).elements();
        let shares =
            parties.iter_mut().take(2).map(|p| p.output(share_bytes(n))).collect::<Result<Vec<_>, _>>()?;
        let shares = shares
            .try_into()
            .map_err(|_| Error::Refused("floating point takes two parties that compute".into()))?;
        join(&shares, n)
    };
    plan.outputs.iter().map(one).collect()
}
