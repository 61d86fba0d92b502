//! Material that is damaged, mixed, or of something else.

use super::cluster::{Parties, data, request, small_model, truth, weights};
use megrez_engine::PartyReport;
use megrez_plan::Input;
use megrez_service::client::RunOptions;
use megrez_service::wire::{self, Ahead, Prepare, Reply, Request, Source};
use megrez_session::Phase;
use std::path::PathBuf;

fn source(model: &str) -> Source {
    Source::Model { model: model.into(), batch: 1 }
}

fn file(parties: &Parties, party: usize) -> PathBuf {
    let files = parties.files(party, "material");
    assert_eq!(files.len(), 1, "{files:?}");
    files[0].clone()
}

#[test]
fn two_preparations_under_one_name_are_never_mixed() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let batch = [7; 16];
    // Two preparations of the same name; the files of the first are put aside.
    let prepare = || {
        let mut channels = parties.channels("alice");
        let session = wire::fresh_name().unwrap();
        for channel in &mut channels {
            let prepare = Prepare {
                session,
                protocol: "mizar".into(),
                source: source("m"),
                material: batch,
                stock: false,
                within_s: None,
            };
            wire::send(channel, &Request::Prepare(prepare)).unwrap();
        }
        for channel in &mut channels {
            channel.set_timeout(crate::common::HANG).unwrap();
            assert!(matches!(wire::recv(channel, wire::MAX_REPLY).unwrap(), Reply::Done));
        }
        let files: Vec<_> = (0..3).map(|p| std::fs::read(file(&parties, p)).unwrap()).collect();
        let paths: Vec<_> = (0..3).map(|p| file(&parties, p)).collect();
        paths.iter().for_each(|p| std::fs::remove_file(p).unwrap());
        (paths, files)
    };
    let (paths, first) = prepare();
    let (_, second) = prepare();
    for odd in 0..3 {
        for (party, path) in paths.iter().enumerate() {
            let bytes = if party == odd { &second[party] } else { &first[party] };
            std::fs::write(path, bytes).unwrap();
        }
        let reasons = parties.reasons("alice", &request("m", Some(batch)));
        assert!(reasons.iter().all(|r| *r == reasons[0]), "{reasons:?}");
        assert!(reasons[0].contains("different preparations"), "{}", reasons[0]);
        // Nobody has used it up: nothing was claimed.
        assert!(paths.iter().all(|p| p.exists()));
    }
    for (path, bytes) in paths.iter().zip(&first) {
        std::fs::write(path, bytes).unwrap();
    }
    assert_eq!(parties.infer("alice", "m", Some(batch)).unwrap(), truth(&weights(2)));
    assert!((0..3).all(|p| parties.files(p, "material").is_empty()));
}

#[test]
fn material_is_bound_to_its_client_upload_and_plan() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let material = parties.connect("alice").prepare("mizar", source("m")).unwrap();
    let error = parties.infer("bob", "m", Some(material)).unwrap_err();
    assert!(error.contains("another client") && error.contains("material"), "{error}");
    // The model is uploaded again: what was made for the earlier upload fits no more.
    (0..3).for_each(|p| std::fs::remove_file(parties.model_file(p, "m")).unwrap());
    parties.upload("m", &weights(2)).unwrap();
    let error = parties.infer("alice", "m", Some(material)).unwrap_err();
    assert!(error.contains("another upload") && error.contains("material"), "{error}");
    // Both refusals came before the claim.
    assert!((0..3).all(|p| parties.files(p, "material").len() == 1));
}

#[test]
fn a_preparation_that_fails_at_one_party_leaves_nothing() {
    for failing in 0..3 {
        let parties = Parties::start(3);
        parties.upload("m", &weights(2)).unwrap();
        // This party cannot keep its part: its folder is a file.
        std::fs::write(parties.data(failing).join("material"), "in the way").unwrap();
        let error = parties.connect("alice").prepare("mizar", source("m")).unwrap_err().to_string();
        assert!(error.contains(&format!("party {failing}")) && error.contains("material"), "{error}");
        for party in (0..3).filter(|p| *p != failing) {
            assert!(parties.files(party, "material").is_empty(), "party {party} keeps a part of nothing");
        }
    }
}

#[test]
fn damaged_material_ends_the_session_everywhere() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let material = parties.connect("alice").prepare("mizar", source("m")).unwrap();
    let paths: Vec<_> = (0..3).map(|p| file(&parties, p)).collect();
    let whole: Vec<_> = paths.iter().map(|p| std::fs::read(p).unwrap()).collect();
    for (party, own) in whole.iter().enumerate() {
        let length = own.len();
        for at in [3, 20, 50, 80, length / 2, length - 1] {
            for (path, bytes) in paths.iter().zip(&whole) {
                std::fs::write(path, bytes).unwrap();
            }
            let mut flipped = own.clone();
            flipped[at] ^= 0x10;
            std::fs::write(&paths[party], flipped).unwrap();
            let reasons = parties.reasons("alice", &request("m", Some(material)));
            assert!(reasons.iter().all(|r| *r == reasons[0]), "{reasons:?}");
            assert!(reasons[0].contains("material"), "{}", reasons[0]);
        }
    }
}

#[test]
fn nothing_is_prepared_for_a_protocol_that_makes_nothing_ahead() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let error = parties.connect("alice").prepare("aby3", source("m")).unwrap_err().to_string();
    assert!(error.contains("`aby3` has no offline phase"), "{error}");
    assert!((0..3).all(|p| parties.files(p, "material").is_empty()));
}

/// What a run that takes from the stock gives, and how many of its runs had material made ahead.
fn from_stock(parties: &Parties, runs: u32) -> (Vec<Vec<u64>>, usize) {
    let options = RunOptions { material: Ahead::Stock, ..crate::common::options(runs) };
    let mine = |input: &Input| input.owner == "user";
    let mut alice = parties.connect("alice");
    let outcome =
        alice.run(&small_model(), source("m"), &options, &mine, &|_, _| Ok(data()), &|_| {}).unwrap();
    let ahead = |reports: &&Vec<PartyReport>| reports.iter().all(|r| !r.phases.contains_key(&Phase::Offline));
    let without = outcome.reports.iter().filter(ahead).count();
    (outcome.outputs.into_iter().map(|mut run| run.remove(0)).collect(), without)
}

#[test]
fn runs_take_from_the_stock_while_there_is_any() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let right = truth(&weights(2));
    assert_eq!(from_stock(&parties, 2), (vec![right.clone(); 2], 0), "nothing is in stock");
    let stock = || parties.connect("alice").describe("m", 1).unwrap().stock;
    assert_eq!(stock(), 0);
    for _ in 0..3 {
        parties.connect("alice").prepare_stock("mizar", source("m")).unwrap();
    }
    // What a run is to name no other takes.
    let named = parties.connect("alice").prepare("mizar", source("m")).unwrap();
    assert_eq!((stock(), parties.connect("bob").describe("m", 1).unwrap().stock), (3, 0));
    assert_eq!(from_stock(&parties, 1), (vec![right.clone()], 1));
    assert_eq!(from_stock(&parties, 3), (vec![right.clone(); 3], 2), "the third makes its own");
    assert_eq!(parties.infer("alice", "m", Some(named)).unwrap(), right);
    assert!((0..3).all(|p| parties.files(p, "material").is_empty()));
    // And what is in stock no run takes by its name.
    let stocked = parties.connect("alice").prepare_stock("mizar", source("m")).unwrap();
    let reasons = parties.reasons("alice", &request("m", Some(stocked)));
    assert!(reasons.iter().all(|r| r.contains("in stock")), "{reasons:?}");
    assert_eq!(stock(), 1);
}

#[test]
fn what_is_in_stock_is_used_by_all_parties_or_by_none() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let right = truth(&weights(2));
    for party in 0..3 {
        let spoil: [&dyn Fn(&PathBuf); 3] = [
            &|path| std::fs::remove_file(path).unwrap(),
            &|path| std::fs::write(path, "no material").unwrap(),
            &|path| {
                let mut bytes = std::fs::read(path).unwrap();
                let middle = bytes.len() / 2;
                bytes[middle] ^= 1;
                std::fs::write(path, bytes).unwrap();
            },
        ];
        for spoil in spoil {
            parties.connect("alice").prepare_stock("mizar", source("m")).unwrap();
            spoil(&file(&parties, party));
            assert_eq!(from_stock(&parties, 2), (vec![right.clone(); 2], 0));
            // What one of them lacks none of them tries again; what nobody has claimed may stay.
            (0..3).flat_map(|p| parties.files(p, "material")).for_each(|p| std::fs::remove_file(p).unwrap());
        }
    }
    // Two preparations under one name: the files of one party are exchanged.
    let made = || {
        parties.connect("alice").prepare_stock("mizar", source("m")).unwrap();
        let path = file(&parties, 1);
        let bytes = std::fs::read(&path).unwrap();
        (0..3).for_each(|p| std::fs::remove_file(file(&parties, p)).unwrap());
        bytes
    };
    let other = made();
    parties.connect("alice").prepare_stock("mizar", source("m")).unwrap();
    let path = file(&parties, 1);
    // Its header names the batch in its bytes 16 to 31, which the seal at its end covers.
    let mut bytes = other;
    let name = std::fs::read(&path).unwrap()[16..32].to_vec();
    bytes[16..32].copy_from_slice(&name);
    std::fs::write(&path, bytes).unwrap();
    assert_eq!(from_stock(&parties, 1), (vec![right], 0));
}

#[test]
fn no_two_runs_of_a_client_use_one_batch() {
    let parties = Parties::start(3);
    parties.upload("m", &weights(2)).unwrap();
    let right = truth(&weights(2));
    const STOCK: usize = 8;
    for _ in 0..STOCK {
        parties.connect("alice").prepare_stock("mizar", source("m")).unwrap();
    }
    let ahead: usize = std::thread::scope(|scope| {
        let run = || {
            let (outputs, ahead) = from_stock(&parties, 3);
            assert_eq!(outputs, vec![right.clone(); 3]);
            ahead
        };
        let runs: Vec<_> = (0..4).map(|_| scope.spawn(run)).collect();
        runs.into_iter().map(|run| run.join().unwrap()).sum()
    });
    // Twelve runs, and each batch of the stock served one of them.
    assert_eq!(ahead, STOCK);
    assert!((0..3).all(|p| parties.files(p, "material").is_empty()));
}
