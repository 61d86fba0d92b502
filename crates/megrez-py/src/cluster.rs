//! Clusters of parties: on this machine, in this process, or elsewhere.

use super::arrays::{Given, Named, arrays, tensors};
use super::ending::Call;
use super::error::{error, refused};
use super::model::Model;
use super::program::program;
use super::wait::{Watch, wait};
use megrez::generate::{Choice, Generation, LanguageModel, Sampling};
use megrez::protocols::find;
use megrez::report::Cost;
use megrez::{
    Backend, ClusterConfig, CompileRequest, DeviceChoice, Error, ErrorKind, Inference, Material, Mode,
    Parties, Recipe, Result, RunOptions, StoredModel, first_batch, infer_as, upload,
};
use megrez_device::{AnyDevice, open_each};
use megrez_net::{Identity, NetProfile, PeerName};
use megrez_service::client;
use megrez_service::embedded::CLIENT;
use pyo3::prelude::*;
use pyo3::types::PyCFunction;
use serde_json::json;
use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long a party may take to answer the first time.
const PATIENCE: Duration = Duration::from_secs(10);

/// Parties, and a client of them.
#[pyclass(frozen, module = "megrez._native")]
pub struct Cluster {
    place: Mutex<Option<Place>>,
    /// A connection that nobody uses. A call takes it, or makes a new one if it is in use, was
    /// given up or has failed.
    idle: Arc<Mutex<Option<client::Cluster>>>,
    options: RunOptions,
    client: String,
    /// How long a call may take.
    timeout: Option<Duration>,
    busy: Option<Duration>,
}

/// Where the parties are.
enum Place {
    /// Processes of this machine, which end with this.
    Processes(Parties),
    /// Threads, started for each run.
    Threads(Vec<AnyDevice>),
    /// Elsewhere.
    Remote(Vec<String>, Box<Identity>),
}

/// What a run gives to Python: the outputs, the report as JSON, the report as text.
type Ran<'py> = (Vec<Named<'py>>, String, String);

/// Tokens and their seconds online, told one after the other.
struct Told {
    heard: Py<PyAny>,
    written: Arc<Mutex<Vec<(u32, f64)>>>,
    /// How many of them have been told.
    said: Mutex<usize>,
}

impl Told {
    fn tell(&self, py: Python<'_>) -> PyResult<()> {
        loop {
            let next = {
                let mut said = lock(&self.said);
                let next = lock(&self.written).get(*said).copied();
                *said += usize::from(next.is_some());
                next
            };
            let Some(next) = next else { return Ok(()) };
            self.heard.call1(py, next)?;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn run_options(protocol: &str, net: &str, insecure: bool) -> PyResult<RunOptions> {
    let protocol = find(protocol).map_err(error)?.name;
    let net: NetProfile = net.parse().map_err(refused)?;
    Ok(RunOptions { net, insecure, ..RunOptions::new(protocol) })
}

/// One device for all parties, or one for each, with commas between them.
fn choices(devices: &str) -> PyResult<Vec<DeviceChoice>> {
    devices.split(',').map(|device| device.trim().parse().map_err(refused)).collect()
}

/// Something to do with a backend, away from Python.
pub struct Job {
    backend: Box<dyn FnOnce() -> Result<Backend> + Send>,
    idle: Arc<Mutex<Option<client::Cluster>>>,
}

impl Job {
    /// Does it. The connection is kept for the next call if all went well.
    fn run<T>(self, work: impl FnOnce(&mut Backend) -> Result<T>) -> Result<T> {
        let mut backend = (self.backend)()?;
        let result = work(&mut backend)?;
        if let Backend::Remote(connection) = backend {
            *lock(&self.idle) = Some(connection);
        }
        Ok(result)
    }

    /// As [`Job::run`], for what threads cannot do.
    pub fn run_connected<T>(self, work: impl FnOnce(&mut client::Cluster) -> Result<T>) -> Result<T> {
        self.run(|backend| match backend {
            Backend::Processes(_, cluster) | Backend::Remote(cluster) => work(cluster),
            Backend::Threads(_) | Backend::Simulated => Err(Error::of(
                ErrorKind::Unsupported,
                "threads keep nothing: use parties=\"process\" or a remote cluster",
            )),
        })
    }
}

#[pymethods]
impl Cluster {
    /// Starts parties on this machine.
    #[staticmethod]
    fn processes(
        py: Python<'_>,
        protocol: &str,
        net: &str,
        insecure: bool,
        device: &str,
        path: PathBuf,
        arguments: Vec<OsString>,
    ) -> PyResult<Self> {
        let options = run_options(protocol, net, insecure)?;
        let count = find(&options.protocol).map_err(error)?.parties;
        let devices = choices(device)?;
        let parties = wait(py, None, move |_| Parties::start(program(path, arguments), count, &devices))?;
        Ok(Cluster {
            place: Mutex::new(Some(Place::Processes(parties))),
            idle: Arc::default(),
            options,
            client: CLIENT.into(),
            timeout: None,
            busy: None,
        })
    }

    /// Parties in threads of this process.
    #[staticmethod]
    fn threads(protocol: &str, net: &str, insecure: bool, device: &str) -> PyResult<Self> {
        let options = run_options(protocol, net, insecure)?;
        let parties = find(&options.protocol).map_err(error)?.parties;
        let devices = open_each(&choices(device)?, parties).map_err(|e| error(e.into()))?;
        Ok(Cluster {
            place: Mutex::new(Some(Place::Threads(devices))),
            idle: Arc::default(),
            options,
            client: CLIENT.into(),
            timeout: None,
            busy: None,
        })
    }

    /// Connects to parties that run elsewhere, at a replica or any; a call may take `timeout`
    /// seconds, and is repeated for `busy` seconds while the parties are busy.
    #[staticmethod]
    fn connect(
        py: Python<'_>,
        place: (PathBuf, Option<usize>),
        certs: PathBuf,
        client: String,
        protocol: &str,
        net: &str,
        insecure: bool,
        seconds: (Option<f64>, Option<f64>),
    ) -> PyResult<Self> {
        let options = run_options(protocol, net, insecure)?;
        let (config, replica) = place;
        let duration =
            |given: Option<f64>| given.map(Duration::try_from_secs_f64).transpose().map_err(refused);
        let (timeout, busy) = (duration(seconds.0)?, duration(seconds.1)?);
        let name = client.clone();
        let (addresses, identity, connection) = wait(py, None, move |_| {
            let config = ClusterConfig::load(&config)?;
            let mut triples = match replica {
                Some(replica) => vec![config.triple(replica)?],
                None => config.triples(),
            };
            let identity = Identity::load(&certs, &PeerName::client(&name)?)?;
            let (found, mut connection) = client::Cluster::connect_any(&triples, &identity, PATIENCE)?;
            connection.info()?;
            Ok((triples.swap_remove(found), identity, connection))
        })?;
        Ok(Cluster {
            place: Mutex::new(Some(Place::Remote(addresses, Box::new(identity)))),
            idle: Arc::new(Mutex::new(Some(connection))),
            options,
            client,
            timeout,
            busy,
        })
    }

    /// The protocol of `run`.
    #[getter]
    fn protocol(&self) -> &str {
        &self.options.protocol
    }

    /// The name under which this client is known.
    #[getter]
    fn client(&self) -> &str {
        &self.client
    }

    /// What the parties say of themselves, as JSON.
    fn info(&self, py: Python<'_>) -> PyResult<String> {
        let job = self.job()?;
        let parties = wait(py, None, move |_| job.run_connected(client::Cluster::info))?;
        serde_json::to_string(&parties).map_err(refused)
    }

    /// Runs a model in a mode.
    fn run<'py>(
        &self,
        py: Python<'py>,
        model: &Model,
        data: Vec<Given<'py>>,
        progress: Option<Bound<'py, PyAny>>,
        mode: &str,
    ) -> PyResult<Ran<'py>> {
        let mode: Mode = mode.parse().map_err(refused)?;
        let (job, data, options) = (self.job()?, tensors(&data)?, self.options.clone());
        let (apart, model) = (model.apart(), model.model(&options.protocol)?);
        let work = move |watch: &Watch| {
            apart(&data)?;
            let before = |run| watch.before(run);
            let run = |backend: &mut Backend| infer_as(mode, backend, &model, &data, &options, &before);
            match mode {
                Mode::Execute => job.run(run),
                Mode::Simulate | Mode::Clear => run(&mut Backend::Simulated),
            }
        };
        ran(py, wait(py, progress.as_ref(), work)?)
    }

    /// Runs a stored model.
    fn run_stored<'py>(
        &self,
        py: Python<'py>,
        name: String,
        batch: usize,
        data: Vec<Given<'py>>,
        material: Option<&str>,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<Ran<'py>> {
        let material = material.map(str::parse::<Material>).transpose().map_err(error)?;
        let options = RunOptions { material: Material::ahead(material), ..self.options.clone() };
        let (job, data) = (self.job()?, tensors(&data)?);
        let work = move |watch: &Watch| {
            let before = |run| watch.before(run);
            job.run_connected(|cluster| {
                let model = StoredModel::describe(cluster, &name, batch)?;
                model.infer(cluster, &data, &options, &before)
            })
        };
        ran(py, wait(py, progress.as_ref(), work)?)
    }

    /// Has the parties make the randomness of one run ahead: its name.
    fn prepare(&self, py: Python<'_>, name: String, batch: usize) -> PyResult<String> {
        let job = self.job()?;
        let work = move |_: &Watch| {
            job.run_connected(|cluster| StoredModel::describe(cluster, &name, batch)?.prepare(cluster))
        };
        wait(py, None, work).map(|material| material.to_string())
    }

    /// Has the parties make randomness until they have that of so many runs in stock: the names of
    /// what was made.
    fn keep(&self, py: Python<'_>, name: String, batch: usize, runs: usize) -> PyResult<Vec<String>> {
        let job = self.job()?;
        let work = move |_: &Watch| {
            job.run_connected(|cluster| StoredModel::describe(cluster, &name, batch)?.keep(cluster, runs))
        };
        Ok(wait(py, None, work)?.iter().map(Material::to_string).collect())
    }

    /// Continues a text of tokens by `count` that `choose` picks, drawn with a temperature from the
    /// `top` likeliest, and proposed by a draft, so many at a time; `request` is a
    /// [`CompileRequest`] as JSON. `heard` is called with every token and its seconds online. Gives
    /// the new tokens, what each run cost as JSON, and whether all ranges were proven.
    fn generate(
        &self,
        py: Python<'_>,
        model: PathBuf,
        prompt: Vec<u32>,
        drawing: (usize, String, f64, Option<usize>, Option<(PathBuf, usize)>),
        request: &str,
        heard: Py<PyAny>,
    ) -> PyResult<(Vec<u32>, Vec<String>, bool)> {
        let request: CompileRequest = serde_json::from_str(request).map_err(refused)?;
        let (count, choose, temperature, top, draft) = drawing;
        let choice = Choice::named(&choose).map_err(error)?;
        let sampling = Sampling::new(temperature, top).map_err(error)?;
        let (job, options) = (self.job()?, self.options.clone());
        let told = Told { heard, written: Arc::default(), said: 0.into() };
        let written = Arc::clone(&told.written);
        let work = move |watch: &Watch| {
            request.only_fixed()?;
            let model = LanguageModel::load(&model, request.publisher()?.as_ref())?;
            let load =
                |(path, count): (PathBuf, usize)| Ok::<_, Error>((LanguageModel::load(&path, None)?, count));
            let draft = draft.map(load).transpose()?;
            let graph = model.graph(0, prompt.len().max(1))?;
            let Recipe::Fixed(compile) = request.recipe(&graph, CLIENT)? else {
                unreachable!("floating point is refused above")
            };
            job.run(|backend| {
                let mut generation =
                    Generation::new(&model, backend, *compile, options)?.choosing(choice).sampling(sampling);
                if let Some((draft, count)) = &draft {
                    generation = generation.drafting(draft, *count)?;
                }
                let mut costs = vec![];
                let mut each = |token, cost: Cost| {
                    let count = {
                        let mut written = lock(&written);
                        written.push((token, cost.online_seconds()));
                        written.len()
                    };
                    // A token that came with the one before has no cost of its own.
                    if !cost.phases.is_empty() {
                        costs.push(json!(cost).to_string());
                    }
                    watch.before(count as u32)
                };
                let mut text = generation.write(&prompt, count, &mut each)?;
                Ok((text.split_off(prompt.len()), costs, generation.proven))
            })
        };
        let told = Arc::new(told);
        let telling = Arc::clone(&told);
        let progress = PyCFunction::new_closure(py, None, None, move |args, _| telling.tell(args.py()))?;
        let done = wait(py, Some(progress.as_any()), work)?;
        told.tell(py)?;
        Ok(done)
    }

    /// Names of a stored model's inputs at a batch size, as JSON.
    fn stored_inputs(&self, py: Python<'_>, name: String, batch: usize) -> PyResult<Vec<String>> {
        let job = self.job()?;
        wait(py, None, move |_| {
            let described = job.run_connected(|cluster| cluster.describe(&name, batch))?;
            Ok(described.plan.data_inputs.into_iter().map(|i| i.name).collect())
        })
    }

    /// Stores a model.
    fn upload(
        &self,
        py: Python<'_>,
        model: &Model,
        name: String,
        allow: Vec<String>,
        batches: Vec<usize>,
    ) -> PyResult<()> {
        let (job, protocol) = (self.job()?, self.options.protocol.clone());
        model.model(&protocol)?;
        let graphs = model.graphs(batches);
        wait(py, None, move |_| {
            let (graphs, recipe) = graphs()?;
            job.run_connected(|cluster| upload(cluster, &name, &protocol, &graphs, &recipe, &allow))
        })
    }

    /// Compares every layer with the clear: as JSON and as text.
    fn check<'py>(
        &self,
        py: Python<'py>,
        model: &Model,
        data: Vec<Given<'py>>,
    ) -> PyResult<(String, String)> {
        let (job, data, options) = (self.job()?, tensors(&data)?, self.options.clone());
        let by_layer = model.by_layer(&options.protocol)?;
        let check = wait(py, None, move |_| {
            let model = by_layer()?;
            let data = first_batch(&model, &data)?;
            job.run(|backend| megrez::check(backend, &model, &data, &options))
        })?;
        Ok((check.layers().to_string(), check.table()))
    }

    /// Ends the parties if they are this object's, and the connection.
    fn close(&self, py: Python<'_>) {
        Call::begin(py).detached(|| {
            drop(lock(&self.idle).take());
            drop(lock(&self.place).take());
        });
    }
}

impl Cluster {
    /// The protocol of its runs.
    pub fn protocol_name(&self) -> String {
        self.options.protocol.clone()
    }

    /// How it shapes the links.
    pub fn net(&self) -> NetProfile {
        self.options.net.clone()
    }

    /// A way to work with the parties away from Python.
    pub fn job(&self) -> PyResult<Job> {
        let place = lock(&self.place);
        let (addresses, identity) = match place.as_ref() {
            None => return Err(refused("this cluster is closed")),
            Some(Place::Threads(devices)) => {
                let devices = devices.clone();
                let backend = Box::new(move || Ok(Backend::Threads(devices)));
                return Ok(Job { backend, idle: Arc::clone(&self.idle) });
            }
            Some(Place::Processes(parties)) => (parties.addresses().to_vec(), parties.identity().clone()),
            Some(Place::Remote(addresses, identity)) => (addresses.clone(), (**identity).clone()),
        };
        let (idle, timeout, busy) = (Arc::clone(&self.idle), self.timeout, self.busy);
        let backend = move || {
            // Parties close a connection that nobody has used for long.
            let connection = lock(&idle).take().filter(client::Cluster::is_connected);
            let connect = || client::Cluster::connect(&addresses, &identity, PATIENCE);
            let mut connection = connection.map_or_else(connect, Ok)?;
            connection.set_timeout(timeout);
            busy.into_iter().for_each(|busy| connection.set_busy_patience(busy));
            Ok(Backend::Remote(connection))
        };
        Ok(Job { backend: Box::new(backend), idle: Arc::clone(&self.idle) })
    }
}

fn ran(py: Python<'_>, inference: Inference) -> PyResult<Ran<'_>> {
    // The numbers come as arrays.
    let (json, table) = (inference.json(&|_, _| json!(null)).to_string(), inference.table());
    Ok((arrays(py, inference.outputs)?, json, table))
}
