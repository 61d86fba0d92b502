//! megrez runs machine-learning models on data that nobody in the computation may see: two or three
//! parties compute on shares, and only the client who owns the data learns the result.
//!
//! This crate is the library's face, and the only one whose names are kept from release to release.
//! What it says of models and runs comes from `megrez-model`, of parties and clients from
//! `megrez-service`; its own is the description of a compilation. The `megrez` command and the
//! Python package are thin shells over it.
//!
//! | to | see |
//! | --- | --- |
//! | say how a model is compiled | [`CompileRequest`], [`choices`] |
//! | read models and data from files | [`ModelFile`], [`Names`] |
//! | run a model, or one that is stored at a cluster | [`infer`], [`StoredModel`], [`upload`] |
//! | run it as if, or know its cost beforehand | [`infer_as`], [`Forecast`] |
//! | have its randomness made ahead | [`StoredModel::prepare`], [`Material`] |
//! | compare every layer with the clear | [`check()`] |
//! | compare fewer bits | [`calibrate`] |
//! | continue a text | [`generate`] |
//! | train a model | [`train`] |
//! | see that every message of a plan is masked | [`masks`] |
//! | compute with floating point, operation by operation | [`float32`] |
//! | say what it cost | [`Inference`], [`report`] |
//!
//! # A model, compiled and run
//!
//! A [`CompileRequest`] says how a model becomes a plan; a [`Backend`] is where it runs; [`infer`]
//! runs it on as much data as there is. Here all three parties are threads of this process:
//!
//! ```
//! use megrez::{Backend, CompileRequest, RunOptions, Tensor, infer, models};
//!
//! let graph = models::build("net-b", 1, 1).unwrap();
//! let mut parties = Backend::threads();
//! let model = CompileRequest::default().compile(&graph, parties.client())?;
//! let image = Tensor::filled([1, 1, 28, 28], 0.5);
//! let inference = infer(&mut parties, &model, &[image.clone()], &RunOptions::new("mizar"), &|_| Ok(()))?;
//!
//! let (name, logits) = &inference.outputs[0];
//! let (_, clear) = &megrez::infer_plain(&model, &[image])?[0];
//! assert_eq!(logits.shape.dims(), [1, 10]);
//! assert!(logits.data.iter().zip(&clear.data).all(|(a, b)| (a - b).abs() < 1e-2), "{name}");
//! # Ok::<(), megrez::Error>(())
//! ```
//!
//! # An ONNX file, on parties that are processes
//!
//! Parties on one machine are processes with certificates of their own that talk over mutual TLS,
//! as those on three hosts do. They are started from the `megrez` command, or from a program that
//! has called [`Program::register`].
//!
//! ```no_run
//! use megrez::{Backend, CompileRequest, DeviceChoice, ModelFile, Program, RunOptions, infer};
//! use std::path::Path;
//!
//! let file = ModelFile::open(Path::new("examples/digits/lenet.onnx"))?;
//! let data = file.names().load("--input", &["examples/digits/test_images.npy".into()])?;
//! let graph = file.graph(Some(&data), &[], Some(60))?;
//! let mut parties = Backend::processes(Path::new("megrez"), "mizar", &[DeviceChoice::Auto])?;
//! let model = CompileRequest::default().compile(&graph, parties.client())?;
//! let inference = infer(&mut parties, &model, &data, &RunOptions::new("mizar"), &|run| {
//!     println!("batch {run}");
//!     Ok(())
//! })?;
//! println!("{}", inference.table());
//! # Ok::<(), megrez::Error>(())
//! ```
//!
//! # Parties that run elsewhere
//!
//! ```no_run
//! use megrez::{Backend, Cluster, ClusterConfig, Identity, PeerName};
//! use std::{path::Path, time::Duration};
//!
//! let config = ClusterConfig::load(Path::new("cluster.toml"))?;
//! let alice = Identity::load(Path::new("certs"), &PeerName::client("alice")?)?;
//! let parties = Backend::Remote(Cluster::connect(&config.parties, &alice, Duration::from_secs(10))?);
//! # Ok::<(), megrez::Error>(())
//! ```
//!
//! # Errors
//!
//! Every [`Error`] says what is wrong and what to do; its [`kind`](Error::kind) is for programs:
//!
//! ```
//! use megrez::{CompileRequest, ErrorKind, models};
//!
//! let graph = models::build("lenet", 1, 1).unwrap();
//! let request = CompileRequest { ring: 32, frac: Some(13), input_range: "1000".parse().unwrap(), ..Default::default() };
//! let error = request.compile(&graph, "alice").map(|_| ()).unwrap_err();
//! assert_eq!(error.kind(), ErrorKind::OutOfRange);
//! ```

pub mod choices;
mod file;
pub mod request;

pub use file::FileOr;
pub use request::CompileRequest;

pub use megrez_model::batches::{Described, Rows, batch, check_apart};
pub use megrez_model::choose::pool as fastest_pool;
pub use megrez_model::disclosure::{Disclosure, Roles};
pub use megrez_model::fixed::FixedModel;
pub use megrez_model::float::{FloatModel, Work};
pub use megrez_model::forecast::Forecast;
pub use megrez_model::inference::{Inference, first_batch, infer, infer_as, infer_plain};
pub use megrez_model::inputs::{ModelFile, Names};
pub use megrez_model::material::Material;
pub use megrez_model::mode::{Distance, Mode};
pub use megrez_model::model::{Model, Recipe};
pub use megrez_model::stored::{StoredModel, upload};
pub use megrez_model::{
    calibrate, check, faults, fixed, float, float32, generate, inference, inputs, masks, report,
};

pub use megrez_service::backend::Backend;
pub use megrez_service::client::{Cluster, RunOptions};
pub use megrez_service::config::{ClusterConfig, PartyConfig};
pub use megrez_service::embedded::Parties;
pub use megrez_service::launch::Program;
pub use megrez_service::wire::Ahead;
pub use megrez_service::{Error, ErrorKind, Result, protocols};

pub use megrez_device::DeviceChoice;
pub use megrez_train as train;

pub use megrez_graph::{Calibration, Graph, Tensor, models, npy};
pub use megrez_net::{Identity, NetProfile, PeerName};
