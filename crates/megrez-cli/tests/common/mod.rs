//! What the process-level tests share: the command with a deadline, small plans, and a deployment
//! of three services.

#[path = "../../../megrez-graph/tests/common/onnx.rs"]
pub mod onnx;

use megrez::DeviceChoice;
use megrez::Parties;
use megrez::{Cluster, RunOptions};
use megrez_net::{Identity, PeerName};
use megrez_plan::{Input, Op, Plan, Relu, ReluForm, SignBit};
use megrez_service::wire::Source;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

/// The command under test.
pub const MEGREZ: &str = env!("CARGO_BIN_EXE_megrez");
/// Nothing here takes this long; whatever does hangs.
pub const HANG: Duration = Duration::from_secs(120);

/// The repository's example files.
pub fn example(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits").join(name)
}

/// A folder of this test's own, removed on drop.
pub struct Folder(PathBuf);

impl Folder {
    pub fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("megrez-test-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    pub fn file(&self, name: &str, content: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, content).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// What a command printed and how it ended.
#[derive(Debug)]
pub struct Ran {
    pub code: Option<i32>,
    pub out: String,
    pub err: String,
}

impl Ran {
    /// It succeeded; returns what it printed.
    pub fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{}\n{}", self.out, self.err);
        assert_no_panic(&self.err);
        self.out
    }

    /// It succeeded and printed one JSON object of this schema.
    pub fn json(self, schema: &str) -> serde_json::Value {
        let value: serde_json::Value = serde_json::from_str(&self.ok()).unwrap();
        assert_eq!(value["schema"], schema);
        value
    }

    /// As [`refused`](Self::refused), by a command that prints for programs.
    pub fn refused_json(self, words: &[&str]) {
        let error: serde_json::Value = serde_json::from_str(&self.out).unwrap();
        assert_eq!(error["schema"], "megrez.error/1");
        self.refused(words);
    }

    /// It was refused with one message, which holds all these words.
    pub fn refused(self, words: &[&str]) {
        assert_eq!(self.code, Some(2), "{}\n{}", self.out, self.err);
        assert_no_panic(&self.err);
        assert!(self.err.starts_with("megrez: "), "{}", self.err);
        assert_eq!(self.err.matches("megrez: ").count(), 1, "one message: {}", self.err);
        for word in words {
            assert!(self.err.contains(word), "`{word}` is not in: {}", self.err);
        }
    }
}

pub fn assert_no_panic(text: &str) {
    for trace in ["panicked", "RUST_BACKTRACE", "stack backtrace", "overflowed its stack"] {
        assert!(!text.contains(trace), "{text}");
    }
}

/// Runs the command to its end; one that hangs is killed and fails the test.
pub fn megrez<S: AsRef<std::ffi::OsStr>>(arguments: impl IntoIterator<Item = S>) -> Ran {
    told("", arguments)
}

/// As [`megrez`], with a text as its standard input.
pub fn told<S: AsRef<std::ffi::OsStr>>(input: &str, arguments: impl IntoIterator<Item = S>) -> Ran {
    let mut command = Command::new(MEGREZ);
    command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    // A pipe takes a short text at once; who does not read it has ended.
    let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
    let read = |mut from: Box<dyn Read + Send>| {
        std::thread::spawn(move || {
            let mut text = String::new();
            from.read_to_string(&mut text).unwrap();
            text
        })
    };
    let out = read(Box::new(child.stdout.take().unwrap()));
    let err = read(Box::new(child.stderr.take().unwrap()));
    let deadline = Instant::now() + HANG;
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if Instant::now() > deadline => {
                child.kill().unwrap();
                panic!("the command hangs: {command:?}");
            }
            None => std::thread::sleep(Duration::from_millis(10)),
        }
    };
    Ran { code: status.code(), out: out.join().unwrap(), err: err.join().unwrap() }
}

/// `megrez` with arguments separated by blanks; `{}` stands for the paths, in order.
pub fn cli(line: &str, paths: &[&Path]) -> Ran {
    let mut paths = paths.iter();
    megrez(line.split(' ').filter(|word| !word.is_empty()).map(|word| match word.split_once("{}") {
        Some((before, after)) => {
            let path = paths.next().expect("a path for every {}");
            [before.as_ref(), path.as_os_str(), after.as_ref()].into_iter().collect::<std::ffi::OsString>()
        }
        None => word.into(),
    }))
}

/// Sends a signal by name to a process.
pub fn signal(name: &str, process: u32) {
    let status = Command::new("kill").args([name, &process.to_string()]).status().unwrap();
    assert!(status.success());
}

/// y = relu(x · w) on `n` elements, everything `client`'s.
pub fn small_plan(client: &str, n: usize) -> Plan {
    let mut plan = Plan::new(64);
    let x = plan.input("x", client, [n].into(), 8);
    let w = plan.input("w", client, [n].into(), 8);
    let product = plan.step("mul1", Op::Mul, &[x, w]).unwrap();
    let relu = Op::Relu(Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 0 });
    let y = plan.step("relu1", relu, &[product]).unwrap();
    plan.output("y", client, y);
    plan
}

/// The inputs of [`small_plan`]: small numbers of both signs, others in every run.
pub fn small_words(run: u32, name: &str, n: usize) -> Vec<u64> {
    let salt = u64::from(run) * 31 + u64::from(name.as_bytes()[0]);
    (0..n as u64).map(|i| (((i + 1) * 2_654_435_761 + salt * 40_503) % 2001).wrapping_sub(1000)).collect()
}

/// What [`small_plan`] must give.
pub fn small_result(run: u32, n: usize) -> Vec<u64> {
    let (x, w) = (small_words(run, "x", n), small_words(run, "w", n));
    x.iter().zip(&w).map(|(x, w)| (x.wrapping_mul(*w) as i64).max(0) as u64).collect()
}

pub fn options(runs: u32) -> RunOptions {
    RunOptions { runs, ..RunOptions::new("mizar") }
}

/// Runs [`small_plan`], with a hook after every run; the results must be right.
pub fn run_small(
    cluster: &mut Cluster,
    n: usize,
    runs: u32,
    after: &dyn Fn(u32),
) -> Result<(), megrez::Error> {
    let plan = small_plan(cluster.name(), n);
    let words = |run: u32, input: &Input| Ok(small_words(run, &input.name, n));
    let source = Source::Plan(plan.to_bytes());
    let outcome = cluster.run(&plan, source, &options(runs), &|_| true, &words, after)?;
    for (run, outputs) in outcome.outputs.iter().enumerate() {
        assert_eq!(outputs[0], small_result(run as u32, n), "run {run}");
    }
    Ok(())
}

/// Parties of this machine that take a peer for dead after two seconds.
pub fn parties() -> Parties {
    Parties::start_with(Path::new(MEGREZ), 3, &[DeviceChoice::Cpu], Duration::from_secs(2)).unwrap()
}

/// Three `megrez party --config …` on loopback, with certificates and configuration files as on
/// three hosts.
pub struct Deployment {
    pub folder: Folder,
    services: Vec<Service>,
    addresses: Vec<String>,
}

struct Service {
    process: Child,
    log: Arc<Mutex<String>>,
}

impl Drop for Service {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

impl Deployment {
    /// Starts all parties; `settings` goes into every party's file.
    pub fn start(settings: &str) -> Self {
        Self::start_replicas(1, settings, &|_| {})
    }

    /// Starts so many replicas of three parties. Party p of replica r is number 3·r + p here; those
    /// of one organisation share the folder `models{p}`, if there are several. `before` puts into
    /// the folder what they need.
    pub fn start_replicas(replicas: usize, settings: &str, before: &dyn Fn(&Folder)) -> Self {
        let count = 3 * replicas;
        let folder = Folder::new();
        let certs = folder.path("certs");
        before(&folder);
        cli("certs --folder {} --clients alice,bob,mallory", &[&certs]).ok();
        // Ports that are free now may be taken a moment later: then others are tried.
        for _ in 0..5 {
            let listeners: Vec<TcpListener> =
                (0..count).map(|_| TcpListener::bind("127.0.0.1:0").unwrap()).collect();
            let addresses: Vec<String> =
                listeners.iter().map(|l| l.local_addr().unwrap().to_string()).collect();
            drop(listeners);
            let (first, further) = addresses.split_at(3);
            let further: Vec<&[String]> = further.chunks(3).collect();
            folder.file("cluster.toml", format!("parties = {first:?}\nreplicas = {further:?}\n"));
            for (i, address) in addresses.iter().enumerate() {
                let (party, replica) = (i % 3, i / 3);
                let models = match replicas {
                    1 => String::new(),
                    _ => format!("replica = {replica}\nmodels = \"models{party}\"\n"),
                };
                let text = format!(
                    "party = {party}\nlisten = \"{address}\"\ncluster = \"cluster.toml\"\ncerts = \"certs\"\n\
                     data = \"data{i}\"\nsilence_seconds = 2\n{models}{settings}\n"
                );
                folder.file(&format!("party{i}.toml"), text);
            }
            let services: Vec<_> = (0..count).map_while(|i| launch(&folder, i)).collect();
            if services.len() == count {
                return Deployment { folder, services, addresses };
            }
        }
        panic!("{count} services did not start");
    }

    pub fn cluster_file(&self) -> PathBuf {
        self.folder.path("cluster.toml")
    }

    pub fn certs(&self) -> PathBuf {
        self.folder.path("certs")
    }

    /// The addresses of the first replica.
    pub fn addresses(&self) -> &[String] {
        &self.addresses[..3]
    }

    /// The addresses of all parties, by replica.
    pub fn triples(&self) -> Vec<Vec<String>> {
        self.addresses.chunks(3).map(<[String]>::to_vec).collect()
    }

    pub fn identity(&self, client: &str) -> Identity {
        Identity::load(&self.certs(), &PeerName::client(client).unwrap()).unwrap()
    }

    pub fn connect(&self, client: &str) -> Cluster {
        Cluster::connect(self.addresses(), &self.identity(client), Duration::from_secs(10)).unwrap()
    }

    /// `megrez … --cluster … --certs … --client …`, paths as in [`cli`].
    pub fn cli(&self, client: &str, line: &str, paths: &[&Path]) -> Ran {
        let (cluster, certs) = (self.cluster_file(), self.certs());
        let line = format!("{line} --cluster {{}} --certs {{}} --client {client}");
        cli(&line, &[paths, &[&cluster, &certs]].concat())
    }

    pub fn process_id(&self, party: usize) -> u32 {
        self.services[party].process.id()
    }

    /// Waits until a party's process has ended by itself.
    pub fn exit_code(&mut self, party: usize) -> Option<i32> {
        let deadline = Instant::now() + HANG;
        loop {
            if let Some(status) = self.services[party].process.try_wait().unwrap() {
                return status.code();
            }
            assert!(Instant::now() < deadline, "party {party} never ended: {}", self.log(party));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    pub fn kill(&mut self, party: usize) {
        self.services[party].process.kill().unwrap();
        self.services[party].process.wait().unwrap();
    }

    pub fn restart(&mut self, party: usize) {
        self.services[party] = launch(&self.folder, party).expect("its port is still free");
    }

    /// What a party has logged so far; never a panic.
    pub fn log(&self, party: usize) -> String {
        let log = self.services[party].log.lock().unwrap().clone();
        assert_no_panic(&log);
        log
    }

    /// Waits until a party has logged something with these words.
    pub fn wait_for_log(&self, party: usize, words: &str) {
        let deadline = Instant::now() + HANG;
        while !self.log(party).contains(words) {
            assert!(Instant::now() < deadline, "party {party} never logged `{words}`: {}", self.log(party));
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Deployment {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            (0..self.services.len()).for_each(|i| drop(self.log(i)));
        }
    }
}

/// Starts one party's service; none if it ended instead of listening.
fn launch(folder: &Folder, party: usize) -> Option<Service> {
    let mut process = Command::new(MEGREZ)
        .args(["party", "--config"])
        .arg(folder.path(&format!("party{party}.toml")))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let stderr = BufReader::new(process.stderr.take().unwrap());
    let log = Arc::new(Mutex::new(String::new()));
    let service = Service { process, log: Arc::clone(&log) };
    let (listens, ready) = mpsc::channel();
    std::thread::spawn(move || {
        for line in stderr.lines().map_while(Result::ok) {
            if line.contains("listens on") {
                let _ = listens.send(());
            }
            let mut log = log.lock().unwrap();
            log.push_str(&line);
            log.push('\n');
        }
    });
    ready.recv().ok().map(|()| service)
}
