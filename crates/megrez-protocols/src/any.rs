//! A suite behind one type, whatever its words and shares: what plans are walked with. So the
//! engine and all that stands on it are compiled once, and not for every protocol on every ring.

use crate::{Call, Cost, Encode, EncodeError, Operands, Sharing, Suite, Unsupported, Verified, WordsHeld};
use megrez_kernels::Device;
use megrez_net::Payload;
use megrez_plan::Value;
use megrez_ring::Word;
use megrez_session::{Error, Party};
use std::any::Any;
use std::sync::Arc;

/// What a party knows of a value before the inputs exist: [`Sharing::Masks`].
#[derive(Clone)]
pub struct AnyMasks(Arc<dyn Any + Send + Sync>);
/// What it learns of a value online: [`Sharing::Data`].
#[derive(Clone)]
pub struct AnyData(Arc<dyn Any + Send + Sync>);
/// The correlated randomness of a step: [`Suite::Material`].
pub struct AnyMaterial(Box<dyn Any + Send>);

/// A value as a party holds it.
pub type AnyValue = (AnyMasks, AnyData);

const ONE: &str = "a session has one suite";

impl AnyMasks {
    fn new<S: Sharing>(masks: S::Masks) -> Self {
        Self(Arc::new(masks))
    }
    fn of<S: Sharing>(&self) -> &S::Masks {
        self.0.downcast_ref().expect(ONE)
    }
}

impl AnyData {
    fn new<S: Sharing>(data: S::Data) -> Self {
        Self(Arc::new(data))
    }
    fn of<S: Sharing>(&self) -> &S::Data {
        self.0.downcast_ref().expect(ONE)
    }
}

/// What a step computes on: [`Operands`].
#[derive(Clone, Copy)]
pub struct AnyOperands<'a> {
    /// Masks and data of every input.
    pub inputs: &'a [(&'a AnyMasks, &'a AnyData)],
    /// The result's masks.
    pub masks: Option<&'a AnyMasks>,
}

/// A [`Suite`] whose types are handles. Every suite is one.
pub trait AnySuite<D: Device>: Send + Sync {
    /// ℓ.
    fn ring(&self) -> u32;
    /// See [`Sharing::PARTIES`].
    fn parties(&self) -> usize;
    /// See [`Sharing::words_held`].
    fn words_held(&self, me: usize) -> WordsHeld;
    /// See [`Sharing::input`].
    fn input(&self, party: &mut Party<D>, value: &Value) -> Result<(AnyMasks, Vec<u8>), Error>;
    /// See [`Sharing::share`]; of the words count the low ℓ bits.
    fn share(&self, mask_keys: &[Vec<u8>], input: &[u64]) -> Result<Vec<Payload>, Error>;
    /// See [`Sharing::share_bytes`].
    fn share_bytes(&self, value: &Value) -> usize;
    /// See [`Sharing::common`].
    fn common<'a>(&self, me: usize, message: &'a [u8]) -> Vec<(usize, &'a [u8])>;
    /// See [`Sharing::spent`].
    fn spent(&self, masks: &AnyMasks) -> Option<AnyMasks>;
    /// See [`Sharing::accept`].
    fn accept(&self, party: &Party<D>, value: &Value, payload: Payload) -> Result<AnyData, Error>;
    /// See [`Sharing::reveal`].
    fn reveal(
        &self,
        party: &mut Party<D>,
        masks: &AnyMasks,
        data: &AnyData,
        verified: &Verified,
    ) -> Result<Payload, Error>;
    /// See [`Sharing::reconstruct`].
    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<u64>, Error>;
    /// See [`Suite::cost`].
    fn cost(&self, call: Call<'_>) -> Result<Cost, Unsupported>;
    /// See [`Suite::deferred`].
    fn deferred(&self, call: Call<'_>, deferred_inputs: bool) -> bool;
    /// See [`Suite::reads_masks`].
    fn reads_masks(&self, call: Call<'_>) -> bool;
    /// See [`Suite::masks`].
    fn masks(
        &self,
        party: &mut Party<D>,
        call: Call<'_>,
        inputs: &[Option<&AnyMasks>],
    ) -> Result<Option<AnyMasks>, Error>;
    /// See [`Suite::offline`].
    fn offline(
        &self,
        party: &mut Party<D>,
        call: Call<'_>,
        inputs: &[&AnyMasks],
        masks: Option<&AnyMasks>,
    ) -> Result<AnyMaterial, Error>;
    /// See [`Suite::online`].
    fn online(
        &self,
        party: &mut Party<D>,
        call: Call<'_>,
        operands: AnyOperands<'_>,
        material: AnyMaterial,
    ) -> Result<(AnyData, Option<AnyMasks>), Error>;
    /// See [`Suite::verify`].
    fn verify(&self, party: &mut Party<D>) -> Result<Verified, Error>;

    // As bytes: see [`Encode`].

    /// Appends the bytes of masks.
    fn write_masks(&self, device: &D, masks: &AnyMasks, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    /// Takes masks off the front of the bytes.
    fn read_masks(&self, device: &D, input: &mut &[u8]) -> Result<AnyMasks, EncodeError>;
    /// Appends the bytes of data.
    fn write_data(&self, device: &D, data: &AnyData, out: &mut Vec<u8>) -> Result<(), EncodeError>;
    /// Takes data off the front of the bytes.
    fn read_data(&self, device: &D, input: &mut &[u8]) -> Result<AnyData, EncodeError>;
    /// Appends the bytes of material.
    fn write_material(
        &self,
        device: &D,
        material: &AnyMaterial,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError>;
    /// Takes material off the front of the bytes.
    fn read_material(&self, device: &D, input: &mut &[u8]) -> Result<AnyMaterial, EncodeError>;
}

impl<S: Suite> AnySuite<S::Device> for S {
    fn ring(&self) -> u32 {
        S::Word::BITS
    }
    fn parties(&self) -> usize {
        S::PARTIES
    }
    fn words_held(&self, me: usize) -> WordsHeld {
        S::words_held(me)
    }
    fn input(&self, party: &mut Party<S::Device>, value: &Value) -> Result<(AnyMasks, Vec<u8>), Error> {
        let (masks, key) = Sharing::input(self, party, value)?;
        Ok((AnyMasks::new::<S>(masks), key))
    }
    fn share(&self, mask_keys: &[Vec<u8>], input: &[u64]) -> Result<Vec<Payload>, Error> {
        let words: Vec<S::Word> = input.iter().map(|&word| S::Word::from_u64(word)).collect();
        Sharing::share(self, mask_keys, &words)
    }
    fn share_bytes(&self, value: &Value) -> usize {
        Sharing::share_bytes(self, value)
    }
    fn common<'a>(&self, me: usize, message: &'a [u8]) -> Vec<(usize, &'a [u8])> {
        Sharing::common(self, me, message)
    }
    fn spent(&self, masks: &AnyMasks) -> Option<AnyMasks> {
        S::spent(masks.of::<S>()).map(AnyMasks::new::<S>)
    }
    fn accept(&self, party: &Party<S::Device>, value: &Value, payload: Payload) -> Result<AnyData, Error> {
        Sharing::accept(self, party, value, payload).map(AnyData::new::<S>)
    }
    fn reveal(
        &self,
        party: &mut Party<S::Device>,
        masks: &AnyMasks,
        data: &AnyData,
        verified: &Verified,
    ) -> Result<Payload, Error> {
        Sharing::reveal(self, party, masks.of::<S>(), data.of::<S>(), verified)
    }
    fn reconstruct(&self, value: &Value, messages: &[Payload]) -> Result<Vec<u64>, Error> {
        Ok(Sharing::reconstruct(self, value, messages)?.into_iter().map(Word::to_u64).collect())
    }
    fn cost(&self, call: Call<'_>) -> Result<Cost, Unsupported> {
        Suite::cost(self, call)
    }
    fn deferred(&self, call: Call<'_>, deferred_inputs: bool) -> bool {
        Suite::deferred(self, call, deferred_inputs)
    }
    fn reads_masks(&self, call: Call<'_>) -> bool {
        Suite::reads_masks(self, call)
    }
    fn masks(
        &self,
        party: &mut Party<S::Device>,
        call: Call<'_>,
        inputs: &[Option<&AnyMasks>],
    ) -> Result<Option<AnyMasks>, Error> {
        let inputs: Vec<Option<&S::Masks>> =
            inputs.iter().map(|masks| masks.map(AnyMasks::of::<S>)).collect();
        Ok(Suite::masks(self, party, call, &inputs)?.map(AnyMasks::new::<S>))
    }
    fn offline(
        &self,
        party: &mut Party<S::Device>,
        call: Call<'_>,
        inputs: &[&AnyMasks],
        masks: Option<&AnyMasks>,
    ) -> Result<AnyMaterial, Error> {
        let inputs: Vec<&S::Masks> = inputs.iter().map(|masks| masks.of::<S>()).collect();
        let material = Suite::offline(self, party, call, &inputs, masks.map(AnyMasks::of::<S>))?;
        Ok(AnyMaterial(Box::new(material)))
    }
    fn online(
        &self,
        party: &mut Party<S::Device>,
        call: Call<'_>,
        operands: AnyOperands<'_>,
        material: AnyMaterial,
    ) -> Result<(AnyData, Option<AnyMasks>), Error> {
        let inputs: Vec<(&S::Masks, &S::Data)> =
            operands.inputs.iter().map(|(masks, data)| (masks.of::<S>(), data.of::<S>())).collect();
        let operands = Operands { inputs: &inputs, masks: operands.masks.map(AnyMasks::of::<S>) };
        let material = *material.0.downcast::<S::Material>().expect(ONE);
        let (data, masks) = Suite::online(self, party, call, operands, material)?;
        Ok((AnyData::new::<S>(data), masks.map(AnyMasks::new::<S>)))
    }
    fn verify(&self, party: &mut Party<S::Device>) -> Result<Verified, Error> {
        Suite::verify(self, party)
    }
    fn write_masks(
        &self,
        device: &S::Device,
        masks: &AnyMasks,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        masks.of::<S>().write(device, out)
    }
    fn read_masks(&self, device: &S::Device, input: &mut &[u8]) -> Result<AnyMasks, EncodeError> {
        Ok(AnyMasks::new::<S>(Encode::read(device, input)?))
    }
    fn write_data(&self, device: &S::Device, data: &AnyData, out: &mut Vec<u8>) -> Result<(), EncodeError> {
        data.of::<S>().write(device, out)
    }
    fn read_data(&self, device: &S::Device, input: &mut &[u8]) -> Result<AnyData, EncodeError> {
        Ok(AnyData::new::<S>(Encode::read(device, input)?))
    }
    fn write_material(
        &self,
        device: &S::Device,
        material: &AnyMaterial,
        out: &mut Vec<u8>,
    ) -> Result<(), EncodeError> {
        material.0.downcast_ref::<S::Material>().expect(ONE).write(device, out)
    }
    fn read_material(&self, device: &S::Device, input: &mut &[u8]) -> Result<AnyMaterial, EncodeError> {
        Ok(AnyMaterial(Box::new(<S::Material as Encode<S::Device>>::read(device, input)?)))
    }
}
