//! Parties as threads of this process, over real links and with real files: what tests of thousands
//! of faults can afford.

use crate::common::Folder;
use megrez::{Cluster, RunOptions};
use megrez_device::AnyDevice;
use megrez_net::certs::{self, Deployment};
use megrez_net::{Channel, Config, Endpoint, Identity, Limits, NetProfile, PeerName, dial};
use megrez_plan::{Input, Op, Plan, Relu, ReluForm, SignBit};
use megrez_service::log::{Log, LogConfig};
use megrez_service::party::{Capacity, Models, Policy, Service, Settings, limits};
use megrez_service::wire::{self, Ahead, ModelPlan, Reply, Request, Run, Source, Upload};
use std::io::Write;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Whatever takes longer was ended by a time-out, not by the party that failed: parties wait 20 s
/// for each other.
pub const AT_ONCE: Duration = Duration::from_secs(10);

/// Elements of the small model.
pub const N: usize = 4;

/// What all parties log.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<u8>>>);

impl Write for Lines {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0.lock().unwrap().write(bytes)
    }
    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Party {
    endpoint: Arc<Endpoint>,
    service: Option<JoinHandle<()>>,
}

impl Drop for Party {
    fn drop(&mut self) {
        self.endpoint.stop();
        let ended = self.service.take().expect("dropped once").join();
        assert!(ended.is_ok() || std::thread::panicking(), "a party's service panicked");
    }
}

/// Running parties with folders of their own.
pub struct Parties {
    parties: Vec<Party>,
    pub folder: Folder,
    deployment: Deployment,
    addresses: Vec<String>,
    log: Lines,
    patience: Duration,
}

impl Parties {
    pub fn start(count: usize) -> Self {
        Self::start_with(count, limits(Duration::ZERO).connect)
    }

    /// Parties that wait no longer than `patience` for each other.
    pub fn start_with(count: usize, patience: Duration) -> Self {
        let clients = ["alice", "bob", "mallory"].map(String::from).to_vec();
        let request = certs::Request {
            parties: count,
            clients,
            hosts: vec![],
            days: 1,
            authority_days: 1,
            only: vec![],
        };
        let mut started = Parties {
            parties: vec![],
            folder: Folder::new(),
            deployment: certs::issue(&request).unwrap(),
            addresses: vec![String::new(); count],
            log: Lines::default(),
            patience,
        };
        started.launch();
        started
    }

    /// Ends all parties and starts them again, on the same folders.
    pub fn restart(&mut self) {
        self.parties.clear();
        self.launch();
    }

    fn launch(&mut self) {
        let count = self.addresses.len();
        let endpoints: Vec<_> = (0..count)
            .map(|me| {
                let config = Config {
                    me,
                    listen: "127.0.0.1:0".into(),
                    peers: vec![String::new(); count],
                    identity: self.deployment.identity(&PeerName::party(me).unwrap()).unwrap(),
                    limits: Limits { connect: self.patience, ..limits(Duration::from_secs(5)) },
                };
                Arc::new(Endpoint::bind(config).unwrap())
            })
            .collect();
        self.addresses = endpoints.iter().map(|e| e.local_addr().to_string()).collect();
        for (me, endpoint) in endpoints.into_iter().enumerate() {
            endpoint.set_peers(self.addresses.clone()).unwrap();
            let policy = Policy {
                replicas: vec![],
                weights: megrez_weights::Folder::at(self.folder.path("weights")),
                data: self.folder.path(&format!("data{me}")),
                models: Models::of(&self.folder.path(&format!("data{me}"))),
                settings: Settings {
                    capacity: Capacity {
                        max_sessions: 64,
                        sessions_per_client: 64,
                        // Nothing waits here for long: requests that go to some parties only end
                        // soon.
                        turn_seconds: 1,
                        ..Capacity::default()
                    },
                    max_elements: 1 << 20,
                    allow_shaping: false,
                    allow_insecure: false,
                },
                audit: None,
                traces: None,
                rights: None,
                guarantees: |_, _| None,
            };
            let service = Service::new(Arc::clone(&endpoint), policy, AnyDevice::default()).unwrap();
            let log = Log::new(me, LogConfig::default(), self.log.clone());
            let service = std::thread::spawn(move || {
                service.run(log).unwrap();
            });
            self.parties.push(Party { endpoint, service: Some(service) });
        }
    }

    pub fn log(&self) -> String {
        String::from_utf8(self.log.0.lock().unwrap().clone()).unwrap()
    }

    fn identity(&self, client: &str) -> Identity {
        self.deployment.identity(&PeerName::client(client).unwrap()).unwrap()
    }

    pub fn connect(&self, client: &str) -> Cluster {
        Cluster::connect(&self.addresses, &self.identity(client), Duration::from_secs(10)).unwrap()
    }

    /// A client's channel to one party, to say on it whatever a test likes.
    pub fn channel(&self, client: &str, party: usize) -> Channel {
        let name = PeerName::party(party).unwrap();
        dial(&self.addresses[party], &self.identity(client), &name, Duration::from_secs(10)).unwrap()
    }

    pub fn channels(&self, client: &str) -> Vec<Channel> {
        (0..self.addresses.len()).map(|party| self.channel(client, party)).collect()
    }

    pub fn data(&self, party: usize) -> PathBuf {
        self.folder.path(&format!("data{party}"))
    }

    pub fn model_file(&self, party: usize, model: &str) -> PathBuf {
        self.data(party).join("models").join(format!("{model}.model"))
    }

    /// All files of a party's subfolder, in order.
    pub fn files(&self, party: usize, folder: &str) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(self.data(party).join(folder));
        let mut files: Vec<_> = entries.map_or_else(|_| vec![], |e| e.map(|e| e.unwrap().path()).collect());
        files.sort();
        files
    }

    /// Keeps `bob`'s small model, for `alice` to use.
    pub fn upload(&self, model: &str, weights: &[u64]) -> Result<(), megrez::Error> {
        let plans = vec![approved(1, &small_model())];
        self.upload_plans(model, plans, &["alice"], weights)
    }

    pub fn upload_plans(
        &self,
        model: &str,
        plans: Vec<ModelPlan>,
        allow: &[&str],
        weights: &[u64],
    ) -> Result<(), megrez::Error> {
        self.upload_under("mizar", model, plans, allow, weights)
    }

    pub fn upload_under(
        &self,
        protocol: &str,
        model: &str,
        plans: Vec<ModelPlan>,
        allow: &[&str],
        weights: &[u64],
    ) -> Result<(), megrez::Error> {
        let upload = Upload {
            session: wire::fresh_name().unwrap(),
            protocol: protocol.into(),
            model: model.into(),
            plans,
            allow: allow.iter().map(|c| (*c).to_owned()).collect(),
            rows: false,
            ids: None,
            within_s: None,
        };
        self.connect("bob").upload(upload, &|_| Ok(weights.to_vec()))
    }

    /// Runs the small model on [`data`]: the output.
    pub fn infer(&self, client: &str, model: &str, material: Option<[u8; 16]>) -> Result<Vec<u64>, String> {
        self.infer_on(&mut self.connect(client), model, &small_model(), material)
            .map(|mut outputs| outputs.remove(0))
    }

    pub fn infer_on(
        &self,
        cluster: &mut Cluster,
        model: &str,
        plan: &Plan,
        material: Option<[u8; 16]>,
    ) -> Result<Vec<Vec<u64>>, String> {
        let source = Source::Model { model: model.into(), batch: 1 };
        let options = RunOptions {
            material: material.map_or(Ahead::Nothing, Ahead::Batch),
            ..crate::common::options(1)
        };
        let mine = |input: &Input| input.owner == "user";
        let run = cluster.run(plan, source, &options, &mine, &|_, _| Ok(data()), &|_| {});
        run.map(|mut outcome| outcome.outputs.remove(0)).map_err(|e| e.to_string())
    }

    /// What every party says when all are asked to run the small model; all at once.
    pub fn reasons(&self, client: &str, run: &Run) -> Vec<String> {
        let start = Instant::now();
        let mut channels = self.channels(client);
        for channel in &mut channels {
            wire::send(channel, &Request::Run(run.clone())).unwrap();
        }
        let reasons = channels.iter_mut().map(reason).collect();
        assert!(start.elapsed() < AT_ONCE, "it took {:?}", start.elapsed());
        reasons
    }
}

/// The reason with which a party fails.
pub fn reason(channel: &mut Channel) -> String {
    channel.set_timeout(crate::common::HANG).unwrap();
    loop {
        match wire::recv(channel, wire::MAX_REPLY).unwrap() {
            Reply::Failed(failure) => return failure.reason,
            Reply::MaskKey(_) => {}
            other => panic!("a party gives an answer where it must refuse: {other:?}"),
        }
    }
}

/// A request to run a stored model.
pub fn request(model: &str, material: Option<[u8; 16]>) -> Run {
    Run {
        session: wire::fresh_name().unwrap(),
        protocol: "mizar".into(),
        source: Source::Model { model: model.into(), batch: 1 },
        runs: 1,
        lasting: vec![],
        streamed: false,
        net: (&NetProfile::loopback()).into(),
        material: material.map_or(Ahead::Nothing, Ahead::Batch),
        insecure: false,
        within_s: None,
    }
}

pub fn approved(batch: usize, plan: &Plan) -> ModelPlan {
    ModelPlan { batch, plan: plan.to_bytes(), data_inputs: vec![], outputs: vec![] }
}

/// y = relu(x · w): x and y are the user's, w is bob's.
pub fn small_model() -> Plan {
    let mut plan = Plan::new(64);
    let x = plan.input("x", "user", [N].into(), 8);
    let w = plan.input("w", "bob", [N].into(), 8);
    let product = plan.step("mul1", Op::Mul, &[x, w]).unwrap();
    let relu = Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 0 });
    let y = plan.step("relu1", relu, &[product]).unwrap();
    plan.output("y", "user", y);
    plan
}

pub fn data() -> Vec<u64> {
    (1..=N as i64).map(|i| (if i % 2 == 0 { -3 * i } else { 5 * i }) as u64).collect()
}

pub fn weights(salt: i64) -> Vec<u64> {
    (0..N as i64).map(|i| (salt * (i + 1) - 7) as u64).collect()
}

/// What the small model gives on [`data`].
pub fn truth(weights: &[u64]) -> Vec<u64> {
    data().iter().zip(weights).map(|(x, w)| (x.wrapping_mul(*w) as i64).max(0) as u64).collect()
}
