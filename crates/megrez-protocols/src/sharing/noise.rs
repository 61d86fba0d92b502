//! Noise that no party knows: P0 and P1 each draw words of the discrete Gaussian distribution and
//! share them. Whichever party is corrupted, one of the two is not, and what it has drawn is enough
//! by itself: the other's only adds to it. Ours; the sharings bring the step.

use megrez_kernels::Device;
use megrez_plan::{MAX_DEVIATION, Op};
use megrez_prg::gaussian;
use megrez_ring::{Shape, Word};
use megrez_session::{Error, Party};

use crate::Call;

const _: () = assert!(MAX_DEVIATION == gaussian::MAX_DEVIATION, "a plan that is valid can be drawn for");

/// A step that makes noise.
pub struct Noise<'a> {
    pub(super) shape: &'a Shape,
    deviation: u64,
}

impl<'a> Noise<'a> {
    pub(crate) fn of_call(call: Call<'a>) -> Option<Self> {
        let Op::Noise { shape, deviation, .. } = call.op else { return None };
        Some(Noise { shape, deviation: *deviation })
    }

    /// How many words.
    pub(super) fn n(&self) -> usize {
        self.shape.elements()
    }

    /// The result's dimensions.
    pub(crate) fn shape(&self) -> &'a Shape {
        self.shape
    }

    /// What this party draws, from a stream that nobody else has.
    pub(crate) fn own<W: Word, D: Device>(
        &self,
        party: &mut Party<D>,
        purpose: &str,
    ) -> Result<D::Buf<W>, Error> {
        let stream = party.stream(party.me(), purpose)?;
        Ok(party.device().noise(&stream, self.deviation, self.n())?)
    }
}
