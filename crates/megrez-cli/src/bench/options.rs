//! What `megrez bench` measures, from the options that its commands share.

use crate::options::Common;
use megrez::choices::{List, Pool};
use megrez::{Error, Result};
use megrez_graph::PoolForm;
use megrez_lab::bench::BenchOptions;
use megrez_plan::ReluForm;

pub(super) fn options(common: &Common, batch: usize, repeat: u32, seed: u64) -> Result<BenchOptions> {
    if batch == 0 || repeat == 0 {
        return Err(Error::Refused("--batch and --repeat are at least 1".into()));
    }
    let request = &common.request;
    Ok(BenchOptions {
        ring: request.ring,
        frac: request.frac(),
        batch,
        sign: request.sign(List::Bits)?,
        form: request.form.fixed().unwrap_or(ReluForm::ThreeRounds),
        pool: PoolForm::from(request.pool.unwrap_or(Pool::Tournament)),
        activations: request.activations()?,
        seed,
        parties: common.parties.name(),
        ..BenchOptions::new(common.run(repeat))
    })
}
