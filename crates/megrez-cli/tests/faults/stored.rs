//! Files of stored models: damaged, cut off, of another upload, of somebody else.

use super::cluster::{AT_ONCE, Parties, approved, data, reason, request, small_model, truth, weights};
use megrez::{ErrorKind, RunOptions};
use megrez_net::Payload;
use megrez_plan::{Input, KEPT, Op, Plan};
use megrez_protocols::registry::{self, Protocol};
use megrez_service::wire::{self, Ahead, Request, Source};
use std::time::Instant;

/// All parties end at once, for the same reason, which names the party and its file.
fn refused(parties: &Parties, party: usize, model: &str, words: &[&str]) {
    let reasons = parties.reasons("alice", &request(model, None));
    assert!(reasons.iter().all(|r| *r == reasons[0]), "{reasons:?}");
    let file = format!("{model}.model");
    for word in [format!("party {party}"), file].iter().map(String::as_str).chain(words.iter().copied()) {
        assert!(reasons[0].contains(word), "`{word}` is not in: {}", reasons[0]);
    }
}

#[test]
fn one_flipped_byte_at_one_party_ends_the_session_at_once_everywhere() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    assert_eq!(parties.infer("alice", "m", None).unwrap(), truth(&weights(2)));
    for party in 0..3 {
        let path = parties.model_file(party, "m");
        let whole = std::fs::read(&path).unwrap();
        // The first bytes, the header, the shares, the end.
        for at in [0, 17, 30, whole.len() / 2, whole.len() - 40, whole.len() - 1] {
            let mut flipped = whole.clone();
            flipped[at] ^= 4;
            std::fs::write(&path, flipped).unwrap();
            refused(&parties, party, "m", &["upload the model again under another name"]);
        }
        for length in [0, 10, 40, whole.len() - 33, whole.len() - 1] {
            std::fs::write(&path, &whole[..length]).unwrap();
            refused(&parties, party, "m", &["upload the model again under another name"]);
        }
        std::fs::write(&path, whole).unwrap();
    }
    assert_eq!(parties.infer("alice", "m", None).unwrap(), truth(&weights(2)));
}

#[test]
fn a_file_of_an_earlier_upload_of_the_same_name_is_refused() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let earlier: Vec<Vec<u8>> = (0..3).map(|p| std::fs::read(parties.model_file(p, "m")).unwrap()).collect();
    (0..3).for_each(|p| std::fs::remove_file(parties.model_file(p, "m")).unwrap());
    parties.upload("m", &weights(3)).unwrap();
    for (party, earlier) in earlier.iter().enumerate() {
        let path = parties.model_file(party, "m");
        let now = std::fs::read(&path).unwrap();
        std::fs::write(&path, earlier).unwrap();
        // The lowest party sees it first; every pair that differs has this one in it.
        let reasons = parties.reasons("alice", &request("m", None));
        assert!(reasons.iter().all(|r| *r == reasons[0]), "{reasons:?}");
        let named = [format!("parties {party} and"), format!("and {party} hold")];
        assert!(named.iter().any(|n| reasons[0].contains(n.as_str())), "{}", reasons[0]);
        assert!(reasons[0].contains("`m.model`") && reasons[0].contains("another name"), "{}", reasons[0]);
        std::fs::write(&path, now).unwrap();
    }
    assert_eq!(parties.infer("alice", "m", None).unwrap(), truth(&weights(3)));
}

#[test]
fn a_file_of_another_party_or_model_is_refused_and_so_is_a_missing_one() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    parties.upload("other", &weights(3)).unwrap();
    let path = parties.model_file(1, "m");
    let own = std::fs::read(&path).unwrap();
    std::fs::copy(parties.model_file(0, "m"), &path).unwrap();
    refused(&parties, 1, "m", &["of party 0"]);
    std::fs::copy(parties.model_file(1, "other"), &path).unwrap();
    refused(&parties, 1, "m", &["of the model `other`"]);
    std::fs::remove_file(&path).unwrap();
    let reasons = parties.reasons("alice", &request("m", None));
    assert!(reasons.iter().all(|r| r.contains("there is no model `m` that `alice` may use")), "{reasons:?}");
    std::fs::write(&path, own).unwrap();
    assert_eq!(parties.infer("alice", "m", None).unwrap(), truth(&weights(2)));
}

#[test]
fn a_name_that_is_taken_at_one_party_is_refused_at_once_everywhere() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    [0, 2].iter().for_each(|&p| std::fs::remove_file(parties.model_file(p, "m")).unwrap());
    let start = Instant::now();
    let error = parties.upload("m", &weights(2)).unwrap_err().to_string();
    assert!(error.contains("party 1") && error.contains("`m` is stored already"), "{error}");
    assert!(start.elapsed() < AT_ONCE);
    assert!([0, 2].iter().all(|&p| !parties.model_file(p, "m").exists()));
}

/// The protocols of three parties that keep models and protect them.
fn protocols() -> impl Iterator<Item = &'static Protocol> {
    let fits = |p: &&Protocol| p.parties == 3 && !p.insecure && p.rings.contains(&64) && p.name != "bicoptor";
    registry::all().filter(fits)
}

#[test]
fn models_and_material_are_whole_or_refused_under_every_protocol() {
    let parties = Parties::start(3);
    for protocol in protocols() {
        let model = format!("of-{}", protocol.name);
        let plans = vec![approved(1, &small_model())];
        parties.upload_under(protocol.name, &model, plans, &["alice"], &weights(2)).unwrap();
        let infer = |material: Option<[u8; 16]>| {
            let material = material.map_or(Ahead::Nothing, Ahead::Batch);
            let source = Source::Model { model: model.clone(), batch: 1 };
            let protocol = protocol.name.into();
            let options = RunOptions { protocol, material, ..crate::common::options(1) };
            let mine = |i: &Input| i.owner == "user";
            let mut alice = parties.connect("alice");
            alice
                .run(&small_model(), source, &options, &mine, &|_, _| Ok(data()), &|_| {})
                .map(|run| run.outputs)
        };
        let right = [[truth(&weights(2))]];
        assert_eq!(infer(None).unwrap(), right, "{}", protocol.name);
        let material = protocol.offline.then(|| {
            let source = Source::Model { model: model.clone(), batch: 1 };
            parties.connect("alice").prepare(protocol.name, source).unwrap()
        });
        for party in 0..3 {
            let kept = parties.files(party, "material").pop().filter(|_| material.is_some());
            for path in [Some(parties.model_file(party, &model)), kept].into_iter().flatten() {
                let whole = std::fs::read(&path).unwrap();
                for at in [0, 40, whole.len() / 2, whole.len() - 40, whole.len() - 1] {
                    let mut flipped = whole.clone();
                    flipped[at] ^= 8;
                    // What has been claimed for the last time is there again.
                    let others = (0..3).flat_map(|p| parties.files(p, "material"));
                    let others: Vec<_> = others.map(|p| (p.clone(), std::fs::read(&p).unwrap())).collect();
                    std::fs::write(&path, flipped).unwrap();
                    let error = infer(material).expect_err("a damaged file gives a number").to_string();
                    let file = path.file_name().unwrap().to_string_lossy().into_owned();
                    assert!(error.contains(&file), "{}: {file} is not in: {error}", protocol.name);
                    others.iter().for_each(|(path, bytes)| std::fs::write(path, bytes).unwrap());
                    std::fs::write(&path, &whole).unwrap();
                }
            }
        }
        assert_eq!(infer(material).unwrap(), right, "{}: whole again", protocol.name);
        assert!((0..3).all(|p| parties.files(p, "material").is_empty()), "used once");
    }
}

#[test]
fn leftovers_are_swept_when_a_party_starts_and_nothing_else_is() {
    let mut parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let material = parties.connect("alice").prepare("mizar", source()).unwrap();
    for party in 0..3 {
        assert_eq!(parties.files(party, "models").len(), 1, "a temporary file stays");
        assert_eq!(parties.files(party, "material").len(), 1, "a temporary file stays");
        #[cfg(unix)]
        for folder in ["models", "material"] {
            let file = std::fs::metadata(&parties.files(party, folder)[0]).unwrap();
            let mode = std::os::unix::fs::PermissionsExt::mode(&file.permissions());
            assert_eq!(mode & 0o777, 0o600, "others can read {folder}");
        }
        let data = parties.data(party);
        std::fs::write(data.join("models/half.model.new"), "half").unwrap();
        std::fs::write(data.join("material/00.material.new"), "half").unwrap();
        std::fs::write(data.join("material/00.claimed"), "used").unwrap();
    }
    parties.restart();
    // A party serves only after it has swept.
    assert_eq!(parties.infer("alice", "m", Some(material)).unwrap(), truth(&weights(2)));
    for party in 0..3 {
        assert_eq!(parties.files(party, "models"), [parties.model_file(party, "m")]);
        assert!(parties.files(party, "material").is_empty());
    }
    assert!(parties.log().contains("half.model.new"), "{}", parties.log());
}

/// The sum of two values.
fn add() -> Op {
    Op::Combine { coefficients: vec![1, 1], constant: 0 }
}

fn source() -> Source {
    Source::Model { model: "m".into(), batch: 1 }
}

// ---- who gets what ----

#[test]
fn an_output_for_somebody_else_is_not_given_to_whoever_runs_the_model() {
    let parties = Parties::start(3);
    let mut plan = small_model();
    plan.output("mine", "bob", plan.outputs[0].value);
    parties.upload_plans("m", vec![approved(1, &plan)], &["alice"], &weights(2)).unwrap();
    let error = parties.infer_on(&mut parties.connect("alice"), "m", &plan, None).unwrap_err();
    assert!(error.contains("output `mine`") && error.contains("`bob`"), "{error}");
    // Its recipient may run it, and gets both.
    let both = parties.infer_on(&mut parties.connect("bob"), "m", &plan, None).unwrap();
    assert_eq!(both, [truth(&weights(2)), truth(&weights(2))]);

    let mut plan = small_model();
    plan.input("z", "mallory", [4].into(), 8);
    let error = parties
        .upload_plans("n", vec![approved(1, &plan)], &["alice"], &weights(2))
        .map(|()| parties.infer_on(&mut parties.connect("alice"), "n", &plan, None).unwrap_err());
    let error = error.unwrap_or_else(|e| e.to_string());
    assert!(error.contains("input `z`") && error.contains("`mallory`"), "{error}");

    // The placeholder is nobody's name.
    let refused = parties.upload_plans("o", vec![approved(1, &small_model())], &["user"], &weights(2));
    let refused = refused.unwrap_err().to_string();
    assert!(refused.contains("`user` stands for whoever runs a model"), "{refused}");
}

#[test]
fn outputs_of_several_recipients_keep_their_order() {
    let parties = Parties::start(3);
    let mut plan = small_model();
    let x = plan.inputs[0].value;
    let twice = plan.step("twice", add(), &[x, x]).unwrap();
    plan.output("mine", "bob", twice);
    plan.output("again", "user", plan.outputs[0].value);
    parties.upload_plans("m", vec![approved(1, &plan)], &[], &weights(2)).unwrap();
    let outputs = parties.infer_on(&mut parties.connect("bob"), "m", &plan, None).unwrap();
    let doubled: Vec<u64> = data().iter().map(|x| x.wrapping_mul(2)).collect();
    assert_eq!(outputs, [truth(&weights(2)), doubled, truth(&weights(2))]);
}

// ---- kept values ----

/// Reveals the kept value `w`.
fn opener(owner: &str) -> Plan {
    let mut plan = Plan::new(64);
    let w = plan.input("w", KEPT, [4].into(), 8);
    plan.output("w", owner, w);
    plan
}

#[test]
fn what_a_stored_model_keeps_is_read_by_its_own_plans_only() {
    let parties = Parties::start(3);
    // The first plan keeps the weights themselves, the second adds what was kept to the input.
    let keeps = {
        let mut plan = small_model();
        plan.output("w", KEPT, plan.inputs[1].value);
        plan
    };
    let reads = {
        let mut plan = Plan::new(64);
        let x = plan.input("x", "user", [4].into(), 8);
        let own = plan.input("own", "bob", [4].into(), 8);
        let w = plan.input("w", KEPT, [4].into(), 8);
        let sum = plan.step("sum", add(), &[x, w]).unwrap();
        let sum = plan.step("sum2", add(), &[sum, own]).unwrap();
        plan.output("sum", "user", sum);
        plan
    };
    let mut first = keeps.clone();
    first.inputs[1].name = "own".into();
    first.outputs[1].name = "w".into();
    for name in ["m", "n"] {
        let plans = vec![approved(1, &first), approved(2, &reads)];
        parties.upload_plans(name, plans, &["alice"], &weights(2)).unwrap();
    }
    let run = |cluster: &mut megrez::Cluster, source: Source, plan: &Plan| {
        let mine = |i: &Input| i.owner == "user" || i.owner == "alice";
        let options = crate::common::options(1);
        let run = cluster.run(plan, source, &options, &mine, &|_, _| Ok(data()), &|_| {});
        run.map(|mut o| o.outputs.remove(0)).map_err(|e| e.to_string())
    };
    let model = |name: &str, batch| Source::Model { model: name.into(), batch };

    // Plans of the same upload share.
    let mut alice = parties.connect("alice");
    run(&mut alice, model("m", 1), &first).unwrap();
    let sum = run(&mut alice, model("m", 2), &reads).unwrap();
    let expected: Vec<u64> =
        data().iter().zip(weights(2)).map(|(x, w)| x.wrapping_add(w.wrapping_mul(2))).collect();
    assert_eq!(sum, [expected]);
    // A plan of her own opens nothing of it.
    let opener = opener("alice");
    let opened = run(&mut alice, Source::Plan(opener.to_bytes()), &opener);
    let error = opened.map(|o| format!("she opened {o:?}")).unwrap_or_else(|e| e);
    assert!(error.contains("`w`") && error.contains("stored model"), "{error}");

    // Nor does another model.
    let mut alice = parties.connect("alice");
    run(&mut alice, model("m", 1), &first).unwrap();
    let error = run(&mut alice, model("n", 2), &reads).unwrap_err();
    assert!(error.contains("`w`"), "{error}");

    // And a stored model reads nothing that a client's plan made up for it.
    let mut alice = parties.connect("alice");
    let mut keeps = Plan::new(64);
    let w = keeps.input("v", "alice", [4].into(), 8);
    keeps.output("w", KEPT, w);
    run(&mut alice, Source::Plan(keeps.to_bytes()), &keeps).unwrap();
    // Her own plans share, as they always did.
    assert_eq!(run(&mut alice, Source::Plan(opener.to_bytes()), &opener).unwrap(), [data()]);
    let error = run(&mut alice, model("m", 2), &reads).unwrap_err();
    assert!(error.contains("`w`"), "{error}");
}

// ---- owners that deviate ----

#[test]
fn an_owner_who_gives_the_workers_different_shares_is_noticed() {
    let parties = Parties::start(3);
    let start = Instant::now();
    let different = [&[1, 2, 3, 4][..], &[1, 2, 3, 5], &[]];
    let send = |channel: &mut megrez_net::Channel, words: &[u64]| {
        channel.send(Payload::from_pod(words).as_bytes()).unwrap();
    };
    // Of a run.
    let mut channels = parties.channels("alice");
    let mut run = request("", None);
    run.source = Source::Plan(crate::common::small_plan("alice", 4).to_bytes());
    for channel in &mut channels {
        wire::send(channel, &Request::Run(run.clone())).unwrap();
    }
    let same = [&[1, 2, 3, 4][..], &[1, 2, 3, 4], &[]];
    for (party, channel) in channels.iter_mut().enumerate() {
        for _ in ["x", "w"] {
            let _: wire::Reply = wire::recv(channel, wire::MAX_REPLY).unwrap();
        }
        send(channel, different[party]);
        send(channel, same[party]);
    }
    let reasons: Vec<String> = channels.iter_mut().map(reason).collect();
    for r in &reasons {
        assert!(r.contains("parties 0 and 1") && r.contains("`x`") && r.contains("`alice`"), "{reasons:?}");
    }
    // Of an upload.
    let mut channels = parties.channels("bob");
    let upload = wire::Upload {
        session: wire::fresh_name().unwrap(),
        protocol: "mizar".into(),
        model: "m".into(),
        plans: vec![approved(1, &small_model())],
        allow: vec![],
        rows: false,
        ids: None,
        within_s: None,
    };
    for channel in &mut channels {
        wire::send(channel, &Request::Upload(upload.clone())).unwrap();
    }
    for (party, channel) in channels.iter_mut().enumerate() {
        let _: wire::Reply = wire::recv(channel, wire::MAX_REPLY).unwrap();
        send(channel, different[party]);
    }
    let reasons: Vec<String> = channels.iter_mut().map(reason).collect();
    for r in &reasons {
        assert!(r.contains("parties 0 and 1") && r.contains("`w`") && r.contains("`bob`"), "{reasons:?}");
    }
    assert!((0..3).all(|p| parties.files(p, "models").is_empty()), "a model of two halves is kept");
    assert!(start.elapsed() < 2 * AT_ONCE);
}

// ---- floating point ----

#[test]
fn stored_models_of_floating_point_are_checked_as_well() {
    use megrez::{Recipe, StoredModel, Work, upload};
    use megrez_graph::{Attributes, Graph, Tensor};
    let graph = |scale: f32| {
        let mut graph = Graph::new("small");
        let x = graph.input("x", [1, 2]).unwrap();
        let weights = graph.constant("fc.weight", Tensor::filled([2, 2], scale));
        let bias = graph.constant("fc.bias", Tensor::filled([2], 1.0));
        let y = graph.add("fc", "Gemm", &[x, weights, bias], Attributes::none().with("transB", 1)).unwrap();
        graph.output("y", y);
        graph
    };
    let parties = Parties::start(2);
    let recipe = Recipe::Float(Work { group: 4, threads: 1 });
    let allow = ["alice".to_owned()];
    upload(&mut parties.connect("bob"), "m", "secfloat", &[graph(2.0)], &recipe, &allow).unwrap();
    let model = StoredModel::describe(&mut parties.connect("alice"), "m", 1).unwrap();
    let options = RunOptions { protocol: "secfloat".into(), ..crate::common::options(1) };
    let infer = || {
        let data = Tensor::new([1, 2], vec![3.0, 4.0]);
        let out = model.infer(&mut parties.connect("alice"), &[data], &options, &|_| Ok(()));
        out.map(|out| out.outputs[0].1.data.clone())
    };
    assert_eq!(infer().unwrap(), [15.0, 15.0]);
    let path = parties.model_file(1, "m");
    let whole = std::fs::read(&path).unwrap();
    for at in [20, whole.len() - 33, whole.len() - 1] {
        let start = Instant::now();
        let mut flipped = whole.clone();
        flipped[at] ^= 1;
        std::fs::write(&path, flipped).unwrap();
        let error = infer().unwrap_err();
        assert_eq!(
            error.kind(),
            ErrorKind::DamagedFile,
            "the party's, not its consequence elsewhere: {error}"
        );
        let error = error.to_string();
        assert!(error.contains("party 1") && error.contains("m.model"), "{error}");
        assert!(start.elapsed() < AT_ONCE);
    }
    // Of an earlier upload: the party's other half adds up to anything.
    (0..2).for_each(|p| std::fs::remove_file(parties.model_file(p, "m")).unwrap());
    upload(&mut parties.connect("bob"), "m", "secfloat", &[graph(5.0)], &recipe, &allow).unwrap();
    std::fs::write(&path, whole).unwrap();
    let error = infer().unwrap_err().to_string();
    assert!(error.contains("parties 0 and 1 hold") && error.contains("`m.model`"), "{error}");
}
