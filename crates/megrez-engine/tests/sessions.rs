//! Sessions that go wrong end at every party, with one reason that says who and where.

use crate::common::session::{Ends, Part, Port, each, give_and_take, prepare, session};
use megrez_device::AnyDevice;
use megrez_engine::client::PartyPort;
use megrez_engine::{Arrivals, Clients, Options, agree, common_name, serve};
use megrez_net::Payload;
use megrez_plan::{Input, Op, Output, Plan, Relu, ReluForm, SignBit};
use megrez_protocols::AnySuite;
use megrez_protocols::mizar::Mizar;
use megrez_session::{Error, Party, Phase, Statement, Transcript};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

type Suite = Mizar<u32, AnyDevice>;
const PATIENCE: Duration = Duration::from_secs(60);

fn plan(n: usize) -> Plan {
    let mut plan = Plan::new(32);
    let x = plan.input("x", "owner", [n].into(), 8);
    let relu = Relu { sign: SignBit::FULL, form: ReluForm::ThreeRounds, truncate: 0 };
    let y = plan.step("first/relu", Op::Relu(relu), &[x]).unwrap();
    let z = plan.step("second/product", Op::Mul, &[y, x]).unwrap();
    plan.output("z", "owner", z);
    plan
}

fn serves(party: &mut Party<AnyDevice>, plan: &Plan, clients: &mut dyn Clients) -> Result<(), Error> {
    serve(&Suite::default(), plan, party, &mut HashMap::new(), None, clients, Options::default()).map(drop)
}

fn inputs(n: usize) -> HashMap<String, Vec<u32>> {
    HashMap::from([("x".to_string(), (0..n as u32).collect())])
}

/// All parties failed, and say the same; the text.
fn one_reason(results: [Result<(), Error>; 3]) -> String {
    let reasons = results.map(|r| match r.expect_err("the session failed") {
        Error::Net(e) => e.abort().expect("the session's reason").clone(),
        e => panic!("a reason of its own: {e}"),
    });
    assert!(reasons[0] == reasons[1] && reasons[1] == reasons[2], "{reasons:?}");
    reasons[0].to_string()
}

#[test]
fn a_plan_that_differs_at_one_party_ends_the_session_everywhere() {
    for odd in 0..3 {
        let parts = [0, 1, 2].map(|i| {
            let plan = plan(if i == odd { 5 } else { 4 });
            let part: Part<'_, ()> = Box::new(move |party, ends| serves(party, &plan, ends));
            part
        });
        let (results, outputs) = session(PATIENCE, parts, |ports| give_and_take(&plan(4), &inputs(4), ports));
        let reason = one_reason(results);
        assert!(outputs.is_err());
        assert!(reason.contains("were given different plans: use the same model file"), "{reason}");
        // Two different parties are named, the odd one among them.
        let names: Vec<usize> = (0..3)
            .filter(|i| reason.contains(&format!("{i} and")) || reason.contains(&format!("and {i} were")))
            .collect();
        assert!(names.len() == 2 && names.contains(&odd), "party {odd} is odd: {reason}");
    }
}

/// Clients of one party that stop working at one point.
struct Failing<'a> {
    inner: &'a mut Ends,
    at: &'static str,
}

impl Failing<'_> {
    fn check(&self, at: &str) -> Result<(), Error> {
        if at == self.at { Err(Error::Refused(format!("the disk for the {at} is full"))) } else { Ok(()) }
    }
}

impl Clients for Failing<'_> {
    fn mask_key(&mut self, input: &Input, mask_key: Vec<u8>) -> Result<(), Error> {
        self.check("mask_key")?;
        self.inner.mask_key(input, mask_key)
    }
    fn data(&mut self, input: &Input, limit: usize) -> Result<Payload, Error> {
        self.check("data")?;
        self.inner.data(input, limit)
    }
    fn output(&mut self, output: &Output, share: Payload) -> Result<(), Error> {
        self.check("output")?;
        self.inner.output(output, share)
    }
}

#[test]
fn a_party_that_fails_tells_the_others_why() {
    let plan = plan(4);
    for at in ["mask_key", "data"] {
        for failing in 0..3 {
            let plan = &plan;
            let parts = [0, 1, 2].map(|i| {
                let part: Part<'_, ()> = Box::new(move |party, inner| {
                    serves(party, plan, &mut Failing { inner, at: if i == failing { at } else { "" } })
                });
                part
            });
            let (results, outputs) = session(PATIENCE, parts, |ports| give_and_take(plan, &inputs(4), ports));
            let reason = one_reason(results);
            let expected = format!("party {failing} gave up: the disk for the {at} is full");
            assert!(reason.contains(&expected), "{reason}");
            assert!(outputs.is_err());
        }
    }
}

#[test]
fn an_owner_who_sends_too_little_ends_the_session_everywhere() {
    let plan = plan(4);
    let (results, ()) = session(PATIENCE, each(|party, ends| serves(party, &plan, ends)), |ports| {
        for port in ports.iter_mut() {
            port.mask_key().unwrap();
        }
        // Party 1 is given three elements of four.
        for (port, bytes) in ports.iter_mut().zip([16, 12, 0]) {
            let _ = port.send(Payload::zeroed(bytes));
        }
    });
    let reason = one_reason(results);
    assert!(reason.contains("takes 16 bytes at party 1, its owner sent 12"), "{reason}");
}

/// Gives every party the message that the suite makes for it, changed at `party` from byte `at` on.
fn deviates(suite: &dyn AnySuite<AnyDevice>, party: usize, at: usize) -> Result<(), String> {
    let mut plan = Plan::new(32);
    let x = plan.input("x", "eve", [4].into(), 0);
    plan.output("x", "eve", x);
    let serves = |party: &mut Party<AnyDevice>, ends: &mut Ends| {
        serve(suite, &plan, party, &mut HashMap::new(), None, ends, Options::default()).map(drop)
    };
    let (results, ()) = session(PATIENCE, each(serves), |ports| {
        let mask_keys: Vec<_> = ports.iter_mut().map(|p| p.mask_key().unwrap()).collect();
        let mut messages = suite.share(&mask_keys, &[1, 2, 3, 4]).unwrap();
        if let Some(byte) = messages[party].as_mut_bytes().get_mut(at) {
            *byte ^= 1;
        }
        for (port, message) in ports.iter_mut().zip(messages) {
            let _ = port.send(message);
        }
        // Until the parties are done.
        while ports.iter_mut().all(|p| p.output(64).is_ok()) {}
    });
    let mut results = results.into_iter();
    results.try_for_each(|r| r.map_err(|e| e.to_string()))
}

#[test]
fn an_owner_who_gives_two_parties_different_shares_is_noticed_by_every_sharing() {
    use megrez_protocols::aby3::Aby3;
    use megrez_protocols::meteor::Meteor;
    let named = |result: Result<(), String>, pairs: &[&str]| {
        let error = result.unwrap_err();
        assert!(pairs.iter().any(|p| error.contains(&format!("parties {p} different"))), "{error}");
        assert!(error.contains("`eve`") && error.contains("`x`"), "{error}");
    };
    // m at the workers; the dealer is sent nothing.
    let mizar = Suite::default();
    for party in [0, 1] {
        named(deviates(&mizar, party, 15), &["0 and 1"]);
    }
    assert_eq!(deviates(&mizar, 2, 0), Ok(()));
    // Keys first, then component 1; P2 is sent two keys.
    let aby3 = Aby3::<u32, AnyDevice>::default();
    for (party, at, pair) in [
        (0, 40, "0 and 1"),
        (1, 33, "0 and 1"),
        (0, 5, "0 and 2"),
        (2, 37, "0 and 2"),
        (1, 0, "1 and 2"),
        (2, 31, "1 and 2"),
    ] {
        named(deviates(&aby3, party, at), &[pair]);
    }
    assert_eq!(deviates(&aby3, 0, 1000), Ok(()));
    // m at all three: both pairs of whoever was given something else differ.
    let meteor = Meteor::<u32, AnyDevice>::default();
    for party in 0..3 {
        let pairs = ["0 and 1", "0 and 2", "1 and 2"];
        let pairs: Vec<&str> = pairs.into_iter().filter(|p| p.contains(&party.to_string())).collect();
        named(deviates(&meteor, party, 3), &pairs);
    }
    assert_eq!(deviates(&meteor, 0, 1000), Ok(()));
}

#[test]
fn parties_name_things_together_and_never_twice_the_same() {
    let names = || {
        let part = |party: &mut Party<AnyDevice>, _: &mut Ends| {
            Ok([common_name(party, "upload")?, common_name(party, "preparation")?])
        };
        session(PATIENCE, each(part), |_| ()).0.map(Result::unwrap)
    };
    let (a, b) = (names(), names());
    assert!(a[0] == a[1] && a[1] == a[2]);
    assert!(a[0][0] != a[0][1] && a[0] != b[0]);
}

/// A party that does everything up to the online phase and then nothing.
fn stalls(party: &mut Party<AnyDevice>, plan: &Plan, ends: &mut Ends) -> Result<(), Error> {
    agree(party, "plan", &plan.hash())?;
    party.barrier("offline-0")?;
    let _prepared = prepare(&Suite::default(), plan, party)?;
    party.enter(Phase::Input, 0);
    // The owner needs an input-mask key; what it says does not matter any more.
    ends.mask_key(&plan.inputs[0], vec![0; 32])?;
    let (suite, mut arrivals) = (Suite::default(), Arrivals::default());
    arrivals.receive(&suite, plan, party, &plan.inputs[0], ends)?;
    arrivals.compare(party, "online-0")?;
    // Alive, but without a word until the others have given up.
    while party.network().flush().is_ok() {
        std::thread::sleep(Duration::from_millis(5));
    }
    party.recv((party.me() + 1) % 3, "never", 0).map(drop)
}

#[test]
fn a_party_that_stalls_is_named_with_the_step_that_waits_for_it() {
    let plan = &plan(4);
    let stall = |stalled: usize, step: &str| {
        let parts = [0, 1, 2].map(|i| {
            let part: Part<'_, ()> = Box::new(move |party, ends| match i == stalled {
                true => stalls(party, plan, ends),
                false => serves(party, plan, ends),
            });
            part
        });
        let client = |ports: &mut [Port; 3]| give_and_take(plan, &inputs(4), ports);
        // Long enough for everybody else on a busy machine.
        let (results, outputs) = session(Duration::from_secs(3), parts, client);
        let reason = one_reason(results);
        assert!(outputs.is_err());
        // When a worker stalls, the dealer waits for its list and the other worker for the dealer;
        // both have waited equally long, and whoever gives up first is believed.
        let direct = reason.contains(&format!("'{step}' from party {stalled}"));
        let indirect = stalled != 2 && reason.contains("'first/relu/choice' from party 2");
        assert!(direct || indirect, "party {stalled} stalls: {reason}");
        assert!(reason.contains("waited 3 s for"), "{reason}");
    };
    std::thread::scope(|scope| {
        for (stalled, step) in [(0, "first/relu/list"), (1, "first/relu/list"), (2, "first/relu/choice")] {
            scope.spawn(move || stall(stalled, step));
        }
    });
}

/// Proves nothing.
struct Refusing;

impl Transcript for Refusing {
    fn record(&self, _: Statement<'_>) {}
    fn verify(&self) -> Result<(), String> {
        Err("a message is not proven".into())
    }
}

#[test]
fn nothing_is_revealed_before_it_is_verified() {
    for distrustful in 0..3 {
        let part = |party: &mut Party<AnyDevice>, ends: &mut Ends| {
            if party.me() == distrustful {
                party.transcribe(Arc::new(Refusing));
            }
            serves(party, &plan(4), ends)
        };
        let (results, (outputs, shown)) = session(PATIENCE, each(part), |ports| {
            let outputs = give_and_take(&plan(4), &inputs(4), ports);
            // Whoever is slower than the refusal says nothing either.
            let shown = std::iter::from_fn(|| ports[distrustful].output(64).ok()).count();
            (outputs, ports[distrustful].seen.outputs.len() + shown)
        });
        assert!(outputs.is_err() && shown == 0, "party {distrustful} shows its share");
        let said = results.into_iter().nth(distrustful).unwrap().unwrap_err().to_string();
        assert!(said.contains("verification failed: a message is not proven"), "{said}");
    }
}
