//! Options that several commands share.

use clap::{Args, ValueEnum};
use megrez::choices::Ranges;
use megrez::protocols::find;
use megrez::{Backend, CompileRequest, DeviceChoice, ModelFile, Program, Result, RunOptions};
use megrez_device::open_each;
use megrez_graph::Tensor;
use megrez_graph::onnx::Dim;
use std::path::Path;

/// What a party is on this machine.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum PartiesKind {
    /// Real processes over TLS.
    Process,
    /// Threads of this process over memory.
    Thread,
}

impl PartiesKind {
    /// The name in reports.
    pub(crate) fn name(self) -> &'static str {
        match self {
            PartiesKind::Process => "process",
            PartiesKind::Thread => "thread",
        }
    }
}

/// Options of everything that runs a plan.
#[derive(Args, Clone)]
#[command(next_help_heading = "Parties")]
pub(crate) struct Common {
    #[command(flatten)]
    pub(crate) request: CompileRequest,
    /// What a party is on this machine: a process, which talks over TLS, or a thread of this one.
    #[arg(long, value_enum, default_value = "process", hide_possible_values = true)]
    pub(crate) parties: PartiesKind,
    /// Where parties on this machine compute: auto, cpu or cuda:N, one for all or one for each
    /// (cpu,cuda:0,cuda:0).
    #[arg(long, value_delimiter = ',', default_value = "auto")]
    pub(crate) device: Vec<DeviceChoice>,
    /// Allow a protocol that does not protect the data.
    #[arg(long)]
    pub(crate) insecure: bool,
}

impl Common {
    /// The name of the protocol that runs.
    pub(crate) fn protocol(&self) -> &str {
        self.request.runs_under()
    }

    /// The same with another policy of ranges, which floating point does not have.
    pub(crate) fn with(&self, ranges: Ranges) -> CompileRequest {
        let float = megrez::protocols::is_float(self.protocol());
        let ranges = if float { self.request.ranges } else { ranges };
        CompileRequest { ranges, ..self.request.clone() }
    }

    /// How to run a plan, so many times.
    pub(crate) fn run(&self, runs: u32) -> RunOptions {
        let net = self.request.net.clone();
        RunOptions { runs, net, insecure: self.insecure, ..RunOptions::new(self.protocol()) }
    }

    /// Parties on this machine.
    pub(crate) fn backend(&self) -> Result<Backend> {
        match self.parties {
            PartiesKind::Thread => {
                Ok(Backend::Threads(open_each(&self.device, find(self.protocol())?.parties)?))
            }
            PartiesKind::Process => Backend::processes(Program::current()?, self.protocol(), &self.device),
        }
    }
}

/// What an ONNX file leaves open.
#[derive(Args)]
pub(crate) struct Open {
    /// The shape of an input that is left open: NAME=1,3,224,224.
    #[arg(long, value_name = "[NAME=]SHAPE")]
    pub(crate) shape: Vec<String>,
    /// An input that is a constant: NAME=16000, NAME=1,0 or NAME=FILE.npy.
    #[arg(long, value_name = "NAME=VALUE")]
    constant: Vec<String>,
}

impl Open {
    /// A file, with its constants.
    pub(crate) fn file(&self, path: &Path) -> Result<ModelFile> {
        ModelFile::open(path)?.with_constants(&self.constant)
    }
}

/// How many rows data has, if it has any.
pub(crate) fn rows(data: &[Tensor]) -> usize {
    data.first().and_then(|d| d.shape.dims().first().copied()).unwrap_or(1)
}

/// The batch that is asked for; or `otherwise`, where the file leaves open how many inputs go
/// together.
pub(crate) fn batch_or(file: &ModelFile, asked: Option<usize>, otherwise: usize) -> Option<usize> {
    let open = file.inputs.iter().any(|i| !matches!(i.dims.as_deref(), Some([Dim::Fixed(_), ..] | [])));
    asked.or(open.then_some(otherwise))
}
