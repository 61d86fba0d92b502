//! Where a party computes: on the processor, or on a GPU. The choice is made at run time, and says
//! what is missing where it cannot be had.

mod any;

pub use any::{AnyBuf, AnyDevice};

use megrez_cuda::Cuda;
use megrez_kernels::DeviceError;
use serde::{Deserialize, Serialize};
use std::fmt;
use std::str::FromStr;

/// Why parties cannot compute where they were told to.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The device cannot be had: why, and what to do.
    #[error(transparent)]
    Absent(DeviceError),
    /// Neither one device for all parties nor one for each.
    #[error("--device names {devices} devices for {parties} parties: name one, or one for each")]
    Count {
        /// How many devices are named.
        devices: usize,
        /// How many parties there are.
        parties: usize,
    },
}

/// What functions of this crate return.
pub type Result<T> = std::result::Result<T, Error>;

/// What a user says about a device: `auto`, `cpu` or `cuda:N`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum DeviceChoice {
    /// The first GPU if it can be used, else the processor.
    #[default]
    Auto,
    /// The processor.
    Cpu,
    /// The GPU of this number, and nothing else.
    Cuda(usize),
}

impl FromStr for DeviceChoice {
    type Err = String;

    fn from_str(text: &str) -> std::result::Result<Self, String> {
        match (text, text.strip_prefix("cuda:").map(str::parse)) {
            ("auto", _) => Ok(DeviceChoice::Auto),
            ("cpu", _) => Ok(DeviceChoice::Cpu),
            ("cuda", _) => Ok(DeviceChoice::Cuda(0)),
            (_, Some(Ok(ordinal))) => Ok(DeviceChoice::Cuda(ordinal)),
            _ => Err(format!("there is no device `{text}`: say auto, cpu or cuda:N, such as cuda:0")),
        }
    }
}

impl TryFrom<String> for DeviceChoice {
    type Error = String;

    fn try_from(text: String) -> std::result::Result<Self, String> {
        text.parse()
    }
}

impl From<DeviceChoice> for String {
    fn from(choice: DeviceChoice) -> String {
        choice.to_string()
    }
}

impl fmt::Display for DeviceChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            DeviceChoice::Auto => f.write_str("auto"),
            DeviceChoice::Cpu => f.write_str("cpu"),
            DeviceChoice::Cuda(ordinal) => write!(f, "cuda:{ordinal}"),
        }
    }
}

impl DeviceChoice {
    /// The device, with a queue, statistics and memory accounts of its own. `auto` never fails.
    ///
    /// # Errors
    /// If a GPU is asked for that cannot be had: why, and what to do.
    pub fn open(self) -> Result<AnyDevice> {
        match self {
            DeviceChoice::Cpu => Ok(AnyDevice::default()),
            DeviceChoice::Auto => Ok(Cuda::new(0).map_or_else(|_| AnyDevice::default(), AnyDevice::Cuda)),
            DeviceChoice::Cuda(ordinal) => Cuda::new(ordinal).map(AnyDevice::Cuda).map_err(|e| {
                let what = format!("{}; `megrez doctor` says more, and --device cpu needs no GPU", e.what);
                Error::Absent(DeviceError { what, ..e })
            }),
        }
    }

    /// One choice per party, of one for all or one for each; none stands for `auto`.
    ///
    /// # Errors
    /// If there are neither one nor as many choices as parties.
    pub fn each(choices: &[DeviceChoice], parties: usize) -> Result<Vec<DeviceChoice>> {
        match choices {
            [] => Ok(vec![DeviceChoice::Auto; parties]),
            [one] => Ok(vec![*one; parties]),
            each if each.len() == parties => Ok(each.to_vec()),
            each => Err(Error::Count { devices: each.len(), parties }),
        }
    }
}

/// The devices of `parties` parties: see [`DeviceChoice::each`] and [`DeviceChoice::open`].
pub fn open_each(choices: &[DeviceChoice], parties: usize) -> Result<Vec<AnyDevice>> {
    DeviceChoice::each(choices, parties)?.into_iter().map(DeviceChoice::open).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use megrez_kernels::{Device, Memory};

    #[test]
    fn choices_are_read_as_they_are_printed() {
        for text in ["auto", "cpu", "cuda:0", "cuda:11"] {
            assert_eq!(text.parse::<DeviceChoice>().unwrap().to_string(), text);
        }
        for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "cpu:0"] {
            assert!(text.parse::<DeviceChoice>().unwrap_err().contains("cuda:0"), "{text}");
        }
        assert_eq!("cuda".parse(), Ok(DeviceChoice::Cuda(0)));
    }

    #[test]
    fn one_choice_stands_for_all_parties() {
        let (cpu, gpu) = (DeviceChoice::Cpu, DeviceChoice::Cuda(0));
        assert_eq!(DeviceChoice::each(&[gpu], 3).unwrap(), [gpu; 3]);
        assert_eq!(DeviceChoice::each(&[cpu, gpu, gpu], 3).unwrap(), [cpu, gpu, gpu]);
        assert_eq!(DeviceChoice::each(&[], 2).unwrap(), [DeviceChoice::Auto; 2]);
        let wrong = DeviceChoice::each(&[cpu, gpu], 3).unwrap_err().to_string();
        assert!(wrong.contains("2 devices for 3 parties"), "{wrong}");
    }

    #[test]
    fn a_gpu_that_is_not_there_is_a_clear_error() {
        // No machine has as many.
        let error = DeviceChoice::Cuda(4096).open().map(|d| d.describe()).unwrap_err().to_string();
        assert!(error.contains("cuda:4096") && error.contains("megrez doctor"), "{error}");
        DeviceChoice::Auto.open().unwrap();
    }

    #[test]
    fn a_buffer_of_another_device_is_refused() {
        let (cpu, gpu) = (AnyDevice::default(), AnyDevice::Cuda(Cuda::dry_run()));
        let buf = cpu.upload(vec![1u64, 2]).unwrap();
        assert!(gpu.combine(&[(1, &buf)], 0, 2).is_err());
        assert_eq!(cpu.download(buf).unwrap(), [1, 2]);
    }
}
