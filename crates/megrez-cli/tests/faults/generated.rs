//! Generated faults: valid files and requests, changed at random. Nothing panics, nothing hangs,
//! and no number comes out that is not the right one. `MEGREZ_FAULTS` says how many are tried;
//! 100000 by hand.

use super::cluster::{AT_ONCE, N, Parties, approved, data, reason, request, small_model, truth, weights};
use crate::common::{Folder, small_plan, small_result, small_words};
use megrez::{ClusterConfig, PartyConfig};
use megrez_engine::client::{PartyPort, collect_where, provide};
use megrez_kernels::Cpu;
use megrez_net::{Channel, NetError, Payload};
use megrez_plan::{Input, Plan};
use megrez_protocols::mizar::Mizar;
use megrez_service::wire::{self, Prepare, Reply, Request, Source, Upload};
use megrez_session::Error as SessionError;
use std::sync::Once;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

/// How many cases a test tries when `default` are enough for everyday.
fn cases(default: usize) -> usize {
    let all = std::env::var("MEGREZ_FAULTS").map(|n| n.parse::<usize>().expect("MEGREZ_FAULTS is a number"));
    all.map_or(default, |all| all * default / 2000)
}

static PANICS: AtomicUsize = AtomicUsize::new(0);

/// Counts panics of all threads, those of parties included.
fn watch() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            PANICS.fetch_add(1, Ordering::Relaxed);
            before(info);
        }));
    });
}

fn no_panic(what: &str) {
    assert_eq!(PANICS.load(Ordering::Relaxed), 0, "a panic at {what}");
}

/// SplitMix64, and what it does to bytes.
struct Faults(u64);

impl Faults {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }

    /// One to three changes; `other` are bytes of the same kind. Never what it was.
    fn damage(&mut self, bytes: &[u8], other: &[u8]) -> Vec<u8> {
        let mut damaged = bytes.to_vec();
        while damaged == bytes {
            for _ in 0..1 + self.below(3) {
                self.change(&mut damaged, other);
            }
        }
        damaged
    }

    fn change(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len());
        let end = (at + 1 + self.below(24)).min(bytes.len());
        match self.below(9) {
            0 | 1 if at < end => bytes[at] ^= 1 << self.below(8),
            2 if at < end => bytes[at] = self.next() as u8,
            3 => bytes[at..end].fill([0, 0xff][self.below(2)]),
            4 => bytes.truncate(at),
            5 => drop(bytes.drain(at..end)),
            6 => {
                let part = bytes[at..end].to_vec();
                bytes.splice(at..at, part).for_each(drop);
            }
            // From here on it is something else.
            7 => {
                let from = at.min(other.len());
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from..]);
            }
            _ => bytes.extend((0..1 + self.below(40)).map(|_| self.next() as u8)),
        }
    }
}

#[test]
fn damaged_files_of_models_never_serve() {
    watch();
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    parties.upload("other", &weights(3)).unwrap();
    let read = |model: &str| -> Vec<Vec<u8>> {
        (0..3).map(|p| std::fs::read(parties.model_file(p, model)).unwrap()).collect()
    };
    let (files, others) = (read("m"), read("other"));
    let mut faults = Faults(1);
    for case in 0..cases(600) {
        let party = faults.below(3);
        let path = parties.model_file(party, "m");
        std::fs::write(&path, faults.damage(&files[party], &others[party])).unwrap();
        if case % 20 == 0 {
            let start = Instant::now();
            let result = parties.infer("alice", "m", None);
            assert!(start.elapsed() < AT_ONCE, "case {case}: {:?}", start.elapsed());
            let error = result.expect_err("a damaged model gives a number");
            assert!(
                error.contains(&format!("party {party}")) && error.contains("m.model"),
                "case {case}: {error}"
            );
        } else {
            let mut channel = parties.channel("alice", party);
            let describe = Request::Describe { model: "m".into(), batch: 1 };
            wire::send(&mut channel, &describe).unwrap();
            let error = reason(&mut channel);
            assert!(error.contains("m.model"), "case {case}: {error}");
        }
        std::fs::write(&path, &files[party]).unwrap();
        no_panic(&format!("case {case}"));
    }
    assert_eq!(parties.infer("alice", "m", None).unwrap(), truth(&weights(2)));
}

#[test]
fn damaged_material_never_serves() {
    watch();
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let source = || Source::Model { model: "m".into(), batch: 1 };
    let prepare = || {
        let material = parties.connect("alice").prepare("mizar", source()).unwrap();
        let paths: Vec<_> = (0..3).map(|p| parties.files(p, "material").remove(0)).collect();
        let files: Vec<_> = paths.iter().map(|p| std::fs::read(p).unwrap()).collect();
        paths.iter().for_each(|p| std::fs::remove_file(p).unwrap());
        (material, paths, files)
    };
    let (material, paths, files) = prepare();
    let others = prepare().2;
    let mut faults = Faults(2);
    for case in 0..cases(60) {
        let party = faults.below(3);
        for (path, bytes) in paths.iter().zip(&files) {
            std::fs::write(path, bytes).unwrap();
        }
        std::fs::write(&paths[party], faults.damage(&files[party], &others[party])).unwrap();
        let start = Instant::now();
        let error = parties.infer("alice", "m", Some(material)).expect_err("damaged material gives a number");
        assert!(start.elapsed() < AT_ONCE && error.contains("material"), "case {case}: {error}");
        no_panic(&format!("case {case}"));
    }
}

#[test]
fn damaged_configuration_is_read_or_refused_with_the_name_of_its_file() {
    watch();
    let folder = Folder::new();
    let files = [
        "parties = [\"party0.example.org:7700\", \"127.0.0.1:7700\", \"[::1]:7700\"]\n",
        "party = 0\nlisten = \"0.0.0.0:7700\"\ncluster = \"cluster.toml\"\ncerts = \"certs\"\ndata = \"data\"\n\
         device = \"cuda:1\"\nallow_shaping = true\nsilence_seconds = 30\nmax_sessions = 4\nmax_elements = 100\n",
    ];
    let mut faults = Faults(3);
    for case in 0..cases(2000) {
        let which = faults.below(2);
        let text = faults.damage(files[which].as_bytes(), files[1 - which].as_bytes());
        let path = folder.file("damaged.toml", text);
        let told = |e: megrez::Error| assert!(e.to_string().contains("damaged.toml"), "case {case}: {e}");
        let _ = ClusterConfig::load(&path).map_err(told);
        let party = PartyConfig::load(&path).map_err(told);
        if let Ok(party) = party {
            // What is accepted can be used.
            let limits = megrez_service::party::limits(Duration::from_secs(party.silence_seconds));
            assert!(Instant::now().checked_add(limits.idle_timeout * 4).is_some(), "case {case}");
        }
        no_panic(&format!("case {case}"));
    }
    let day = files[1].replace("silence_seconds = 30", "silence_seconds = 9000000000000000000");
    let error = PartyConfig::load(&folder.file("long.toml", day)).unwrap_err().to_string();
    assert!(error.contains("silence_seconds"), "{error}");
}

// ---- requests ----

/// A client's end of one party's channel, for a request that may be anything.
struct Port<'a>(&'a mut Channel, String);

fn stopped(what: impl std::fmt::Display) -> SessionError {
    SessionError::Refused(what.to_string())
}

impl Port<'_> {
    /// A party's next answer; one that does not come is a hang.
    fn reply(&mut self) -> Result<Reply, SessionError> {
        match wire::recv(self.0, wire::MAX_REPLY) {
            Ok(Reply::Failed(failure)) => Err(stopped(failure.reason)),
            Ok(reply) => Ok(reply),
            Err(megrez::Error::Net(e @ NetError::Timeout(_))) => panic!("a party hangs: {e}; {}", self.1),
            Err(e) => Err(stopped(e)),
        }
    }
}

impl PartyPort for Port<'_> {
    fn mask_key(&mut self) -> Result<Vec<u8>, SessionError> {
        match self.reply()? {
            Reply::MaskKey(mask_key) => Ok(mask_key),
            _ => Err(stopped("no input-mask key")),
        }
    }
    fn send(&mut self, share: Payload) -> Result<(), SessionError> {
        self.0.send(share.as_bytes()).map_err(stopped)
    }
    fn output(&mut self, limit: usize) -> Result<Payload, SessionError> {
        match self.reply()? {
            Reply::Share => self.0.recv(limit as u64).map_err(stopped),
            _ => Err(stopped("no share")),
        }
    }
}

/// A valid request, and what a client then does: the plan whose inputs it gives, which are its own,
/// and whether it gets outputs.
struct Valid {
    name: &'static str,
    client: &'static str,
    bytes: Vec<u8>,
    plan: Option<Plan>,
    /// What must come out, if anything does.
    outputs: Vec<Vec<u64>>,
}

fn words(input: &Input) -> Vec<u64> {
    match input.owner.as_str() {
        "user" => data(),
        "bob" => weights(2),
        _ if input.name.is_empty() => vec![],
        _ => small_words(0, &input.name, N),
    }
}

fn valid_requests() -> Vec<Valid> {
    let bytes = |request: Request| postcard::to_allocvec(&request).unwrap();
    let stored = || Source::Model { model: "m".into(), batch: 1 };
    let session = wire::fresh_name().unwrap();
    let own = small_plan("alice", N);
    let upload = Upload {
        session,
        protocol: "mizar".into(),
        model: "fresh-0000000000".into(),
        plans: vec![approved(1, &small_model())],
        allow: vec!["mallory".into()],
        rows: false,
        ids: None,
        within_s: None,
    };
    let prepare = Prepare {
        session,
        protocol: "mizar".into(),
        source: stored(),
        material: session,
        stock: false,
        within_s: None,
    };
    let run = |source| Request::Run(megrez_service::wire::Run { source, ..request("m", None) });
    let valid =
        |name, client, request, plan, outputs| Valid { name, client, bytes: bytes(request), plan, outputs };
    vec![
        valid("stored", "alice", run(stored()), Some(small_model()), vec![truth(&weights(2))]),
        valid("own", "alice", run(Source::Plan(own.to_bytes())), Some(own), vec![small_result(0, N)]),
        valid("upload", "bob", Request::Upload(upload), Some(small_model()), vec![]),
        valid("prepare", "alice", Request::Prepare(prepare), None, vec![]),
        valid("describe", "alice", Request::Describe { model: "m".into(), batch: 1 }, None, vec![]),
        valid("info", "alice", Request::Info { version: wire::VERSION }, None, vec![]),
    ]
}

/// The plan that parties take a request for, and whether it is a stored model's: the damage may
/// have made it another's.
fn asked(bytes: &[u8]) -> Option<(Plan, bool)> {
    let plan = match postcard::from_bytes(bytes).ok()? {
        Request::Run(run) if run.source.is_stored() => return Some((small_model(), true)),
        Request::Run(megrez_service::wire::Run { source: Source::Plan(plan), .. }) => plan,
        Request::Upload(upload) => upload.plans.into_iter().next()?.plan,
        _ => return None,
    };
    Some((Plan::from_bytes(&plan).ok()?, false))
}

/// Sends a request to these parties and does the client's part for as long as they want it to. The
/// outputs, if all came.
fn converse(parties: &Parties, to: &[usize], valid: &Valid, bytes: &[u8]) -> Option<Vec<Vec<u64>>> {
    let mut channels: Vec<Channel> = to.iter().map(|&p| parties.channel(valid.client, p)).collect();
    for channel in &mut channels {
        channel.set_timeout(crate::common::HANG / 4).unwrap();
        channel.send(bytes).unwrap();
    }
    let what = format!("{}: {:?}", valid.name, postcard::from_bytes::<Request>(bytes));
    if to.len() < 3 || valid.plan.is_none() {
        // One answer from each.
        channels.iter_mut().for_each(|c| drop(Port(c, what.clone()).reply()));
        return None;
    }
    let suite = Mizar::<u64, Cpu>::default();
    let (plan, stored) = &asked(bytes).or_else(|| Some((valid.plan.clone()?, valid.name == "stored")))?;
    let mut ports: Vec<Port<'_>> = channels.iter_mut().map(|c| Port(c, what.clone())).collect();
    let mut ports: Vec<&mut dyn PartyPort> = ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
    let mine = |i: &Input| i.owner == if *stored { "user" } else { valid.client };
    provide(&suite, plan, &mine, &|i| Ok(words(i)), &mut ports).ok()?;
    if valid.outputs.is_empty() {
        return None;
    }
    collect_where(&suite, plan, &|_| true, &mut ports).ok()
}

/// Whether the request still asks for the same plan, so that it is known what must come out.
fn same_plan(bytes: &[u8], valid: &Valid) -> bool {
    let source = |bytes: &[u8]| match postcard::from_bytes(bytes) {
        Ok(Request::Run(run)) => Some(run.source),
        _ => None,
    };
    source(bytes) == source(&valid.bytes)
}

#[test]
fn damaged_requests_are_refused_or_answered_rightly() {
    watch();
    let parties = Parties::start_with(3, Duration::from_secs(2));
    parties.upload("m", &weights(2)).unwrap();
    let requests = valid_requests();
    for valid in &requests {
        let outputs = converse(&parties, &[0, 1, 2], valid, &valid.bytes);
        assert_eq!(outputs.unwrap_or_default(), valid.outputs, "{} as it is", valid.name);
    }
    let (mut faults, mut answered) = (Faults(4), 0);
    for case in 0..cases(400) {
        let valid = &requests[faults.below(requests.len())];
        let other = &requests[faults.below(requests.len())];
        let mut bytes = faults.damage(&valid.bytes, &other.bytes);
        if case % 3 == 0 {
            // A fault where a number is, behind which everything else is as it should be.
            bytes = valid.bytes.clone();
            let at = faults.below(bytes.len());
            bytes[at] ^= 1 << faults.below(8);
        }
        // Names of sessions and models are new, or most cases would end by their being taken.
        if let Some(at) = bytes.windows(6).position(|w| w == b"fresh-")
            && let Some(number) = bytes.get_mut(at + 6..at + 16)
        {
            number.copy_from_slice(format!("{case:010}").as_bytes());
        }
        if let (Some(name), Some(used)) = (bytes.get_mut(1..17), valid.bytes.get(1..17))
            && name == used
        {
            name.copy_from_slice(&wire::fresh_name().unwrap());
        }
        let to: &[usize] = if case % 20 == 1 { &[1] } else { &[0, 1, 2] };
        if let Some(outputs) = converse(&parties, to, valid, &bytes)
            && same_plan(&bytes, valid)
        {
            answered += 1;
            assert_eq!(outputs, valid.outputs, "case {case}: {} gives another number", valid.name);
        }
        no_panic(&format!("case {case}, {}", valid.name));
    }
    // They all still serve.
    assert_eq!(parties.infer("alice", "m", None).unwrap(), truth(&weights(2)));
    assert!(answered > 0 || cases(400) < 400, "no fault was harmless: the test looks at refusals only");
}
