//! Comparison keys, on the host: no kernel of their own yet.

use crate::Cuda;
use crate::backend::Result;
use crate::memory::Buf;
use megrez_kernels::{ComparisonKeys, Cpu, DealtKeys, Elem, KeyShare, KeySpec, Memory as _};
use megrez_prg::Stream;
use megrez_ring::Word;
use std::sync::Arc;

impl Cuda {
    /// A buffer, on the host.
    fn bring_down<T: Elem>(&self, x: &Buf<T>) -> Result<Arc<Vec<T>>> {
        Cpu::default().upload(self.download(x.clone())?)
    }

    /// A buffer of the host, on the device.
    fn take_up<T: Elem>(&self, x: Arc<Vec<T>>) -> Result<Buf<T>> {
        self.upload(Cpu::default().download(x)?)
    }
}

impl ComparisonKeys for Cuda {
    /// By the kernel of the CPU, no branch and no index of which depends on a mask.
    fn deal_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Buf<u64>,
        masks: &Buf<W>,
        roots: [&Stream; 2],
    ) -> Result<DealtKeys<W, Self>> {
        let (permutations, masks) = (self.bring_down(permutations)?, self.bring_down(masks)?);
        let dealt = Cpu::default().deal_keys(spec, &permutations, &masks, roots)?;
        Ok(DealtKeys {
            first: self.take_up(dealt.first)?,
            others: self.take_up(dealt.others)?,
            values: self.take_up(dealt.values)?,
            tops: self.take_up(dealt.tops)?,
        })
    }

    fn evaluate_keys<W: Word>(
        &self,
        spec: KeySpec,
        permutations: &Buf<u64>,
        masked: &Buf<W>,
        key: &KeyShare<'_, W, Self>,
    ) -> Result<Vec<Buf<W>>> {
        let first = key.first.map(|first| self.bring_down(first)).transpose()?;
        let share = KeyShare {
            root: key.root,
            first: first.as_ref(),
            others: &self.bring_down(key.others)?,
            values: &self.bring_down(key.values)?,
            tops: &self.bring_down(key.tops)?,
        };
        let (permutations, masked) = (self.bring_down(permutations)?, self.bring_down(masked)?);
        let sums = Cpu::default().evaluate_keys(spec, &permutations, &masked, &share)?;
        sums.into_iter().map(|sum| self.take_up(sum)).collect()
    }
}
