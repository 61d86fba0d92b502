//! Stored material: what is read back computes exactly what the original would have; it serves
//! once, for its own plan, party and batch; damage is an error, never a panic.

use crate::common::Rng;
use crate::common::session::{Part, give_and_take, prepare, session};
use megrez_device::AnyDevice;
use megrez_engine::store::{self, BatchId, Binding, Id};
use megrez_engine::{Options, Prepared, files, serve};
use megrez_plan::{List, Op, Plan, Relu, ReluForm, SignBit};
use megrez_protocols::mizar::Mizar;
use megrez_session::Error;
use std::collections::HashMap;
use std::path::PathBuf;
use std::time::Duration;

type Suite = Mizar<u32, AnyDevice>;
const BATCH: BatchId = [0x5a; 16];
const PREPARATION: Id = [0xc3; 16];

/// What the material of these tests belongs to.
fn binding(plan: &Plan, party: usize) -> Binding<'_> {
    let (protocol, client, upload) = ("mizar", "owner", Some([1; 16]));
    Binding { batch: BATCH, party, stock: false, protocol, client, upload, plan }
}

/// Every kind of material: product, truncation, sign, ReLU plain, fused, by key and by tables,
/// maximum, selection, bits, conversion, local steps.
fn plan(n: usize) -> Plan {
    let mut plan = Plan::new(32);
    let [x, y] = ["x", "y"].map(|name| plan.input(name, "owner", [n].into(), 8));
    let sign = SignBit { list: List::Digits(vec![4; 7]), cut: 3, bits: Some(29) };
    let relu = |truncate| Op::Relu(Relu { sign: sign.clone(), form: ReluForm::ThreeRounds, truncate });
    let mut step = |name: &str, op, inputs: &[_]| plan.step(name, op, inputs).unwrap();
    let words = (0..n as i64).collect();
    let constant = step("constant", Op::Constant { shape: [n].into(), frac: 0, words }, &[]);
    let scaled = step("scaled", Op::Mul, &[x, constant]);
    let product = step("product", Op::Mul, &[scaled, y]);
    let cut = step("truncate", Op::Truncate { bits: 8 }, &[product]);
    let plain = step("relu", relu(0), &[cut]);
    let fused = step("relu-truncate", relu(8), &[product]);
    let dealt = |form| {
        Op::Relu(Relu { sign: SignBit { list: List::Bits, cut: 3, bits: Some(24) }, form, truncate: 8 })
    };
    let key = step("relu-key", dealt(ReluForm::Key), &[product]);
    let tables = step("relu-digit-tables", dealt(ReluForm::DigitTables), &[product]);
    let [a, b] = [("a", x), ("b", y)].map(|(name, v)| step(name, Op::NonNegative(SignBit::FULL), &[v]));
    let largest = step("largest", Op::Maximum(SignBit::FULL), &[x, y, x]);
    let both = step("and", Op::And, &[a, b]);
    let one = step("not", Op::Not, &[both]);
    let either = step("xor", Op::Xor, &[one, b]);
    let chosen = step("select", Op::SELECT, &[either, plain]);
    let bit = step("bit", Op::BitToRing, &[either]);
    for (name, value) in [
        ("fused", fused),
        ("chosen", chosen),
        ("bit", bit),
        ("cut", cut),
        ("largest", largest),
        ("key", key),
        ("tables", tables),
    ] {
        plan.output(name, "owner", value);
    }
    plan
}

fn inputs(n: usize) -> HashMap<String, Vec<u32>> {
    let mut rng = Rng(7);
    let mut draw = || (0..n).map(|_| (rng.below(1 << 10) as i64 - (1 << 9)) as u32).collect();
    HashMap::from([("x".to_string(), draw()), ("y".to_string(), draw())])
}

/// The material of all three parties.
fn offline(plan: &Plan) -> [Prepared; 3] {
    let parts = [0; 3].map(|_| {
        let part: Part<'_, _> = Box::new(|party, _| prepare(&Suite::default(), plan, party));
        part
    });
    session(Duration::from_secs(60), parts, |_| ()).0.map(Result::unwrap)
}

/// A run of the plan on this material, in a session of its own.
fn online(plan: &Plan, inputs: &HashMap<String, Vec<u32>>, material: [Prepared; 3]) -> Vec<Vec<u32>> {
    let parts = material.map(|prepared| {
        let part: Part<'_, _> = Box::new(|party, ends| {
            serve(
                &Suite::default(),
                plan,
                party,
                &mut HashMap::new(),
                Some(prepared),
                ends,
                Options::default(),
            )
        });
        part
    });
    let (results, outputs) =
        session(Duration::from_secs(60), parts, |ports| give_and_take(plan, inputs, ports));
    results.into_iter().for_each(|r| drop(r.unwrap()));
    outputs.unwrap()
}

fn encode(plan: &Plan, party: usize, prepared: &Prepared) -> Vec<u8> {
    store::encode(&Suite::default(), &AnyDevice::default(), &binding(plan, party), &PREPARATION, prepared)
        .unwrap()
}

fn decode(plan: &Plan, party: usize, bytes: &[u8]) -> Result<Prepared, String> {
    store::decode(&Suite::default(), &AnyDevice::default(), &binding(plan, party), &PREPARATION, bytes)
}

/// A folder of this test's own, removed at the end.
struct Folder(PathBuf);

impl Folder {
    fn new(test: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("megrez-{test}-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        Folder(folder)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

#[test]
fn material_that_was_stored_computes_what_fresh_material_computes() {
    let n = 100;
    let (plan, inputs) = (plan(n), inputs(n));
    let material = offline(&plan);
    let bytes: Vec<_> = material.iter().enumerate().map(|(i, m)| encode(&plan, i, m)).collect();
    let again = [0, 1, 2].map(|i| decode(&plan, i, &bytes[i]).unwrap());
    for (i, prepared) in again.iter().enumerate() {
        assert!(encode(&plan, i, prepared) == bytes[i], "party {i}: other bytes the second time");
    }
    // Also the last bits of truncations: they depend on the masks alone. (Never reuse material
    // outside a test.)
    let fresh = online(&plan, &inputs, material);
    assert_eq!(online(&plan, &inputs, again), fresh);

    let signed = |name: &str, i: usize| i64::from(inputs[name][i] as i32);
    for (i, &cut) in fresh[3].iter().enumerate() {
        let product = signed("x", i) * i as i64 * signed("y", i);
        let (a, b) = (signed("x", i) >= 0, signed("y", i) >= 0);
        let either = !(a && b) ^ b;
        let cut = i64::from(cut as i32);
        assert!((0..=1).contains(&(cut - (product >> 8))));
        let fused = i64::from(fresh[0][i] as i32);
        assert!(if product < 0 { fused == 0 } else { (0..=1).contains(&(fused - (product >> 8))) });
        let by_key = i64::from(fresh[5][i] as i32);
        assert!(if product < 0 { by_key == 0 } else { (0..=1).contains(&(by_key - (product >> 8))) });
        assert_eq!(u64::from(fresh[2][i]), u64::from(either));
        // Just below zero the cut may read the sign of the plain ReLU as positive and pass the
        // value.
        let relu = if (-7..0).contains(&cut) { vec![0, cut] } else { vec![cut.max(0)] };
        let chosen = i64::from(fresh[1][i] as i32);
        assert!(if either { relu.contains(&chosen) } else { chosen == 0 }, "{chosen} {relu:?}");
    }
}

#[test]
fn material_is_claimed_once() {
    let folder = Folder::new("claim");
    let (suite, device, plan) = (Suite::default(), AnyDevice::default(), plan(3));
    let material = offline(&plan);
    let binding = |party| binding(&plan, party);
    let claim = |party| store::claim(&folder.0, &suite, &device, &binding(party), &PREPARATION);
    let keep = || store::keep(&folder.0, &suite, &device, &binding(1), &PREPARATION, &material[1]);
    let why = |r: Result<Prepared, Error>| r.err().expect("refused").to_string();
    assert!(why(claim(1)).contains("it was never made, or is used up"));
    let error = store::peek(&folder.0, &binding(1)).unwrap_err().to_string();
    assert!(error.contains("it was never made, or is used up"), "{error}");

    let path = keep().unwrap();
    assert_eq!(path, store::path(&folder.0, &BATCH));
    assert!(keep().is_err(), "kept twice");
    #[cfg(unix)]
    {
        let mode = std::os::unix::fs::PermissionsExt::mode(&std::fs::metadata(&path).unwrap().permissions());
        assert_eq!(mode & 0o777, 0o600, "others can read the material");
    }
    assert_eq!(store::peek(&folder.0, &binding(1)).unwrap(), PREPARATION, "a look takes nothing");
    let claimed = claim(1).unwrap();
    assert!(encode(&plan, 1, &claimed) == encode(&plan, 1, &material[1]));
    assert!(why(claim(1)).contains("material serves one run"));
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 0, "the claimed file stays behind");

    // Whoever asks for the wrong thing uses the file up all the same: it was opened.
    keep().unwrap();
    assert!(store::peek(&folder.0, &binding(0)).is_err(), "a look refuses it and leaves it");
    assert!(why(claim(0)).contains("another batch or party"));
    assert!(why(claim(1)).contains("used up"));

    // Two sessions at once: one gets it.
    for _ in 0..20 {
        keep().unwrap();
        let winners: usize = std::thread::scope(|scope| {
            let claims: Vec<_> = (0..4).map(|_| scope.spawn(|| usize::from(claim(1).is_ok()))).collect();
            claims.into_iter().map(|c| c.join().unwrap()).sum()
        });
        assert_eq!(winners, 1);
    }
}

#[test]
fn material_of_something_else_is_refused() {
    let folder = Folder::new("else");
    let (small, large) = (plan(3), plan(4));
    let material = offline(&small);
    let bytes = encode(&small, 1, &material[1]);
    let own = binding(&small, 1);
    let others = [
        (Binding { plan: &large, ..own }, "another plan"),
        (Binding { party: 0, ..own }, "another batch or party"),
        (Binding { batch: [0; 16], ..own }, "another batch or party"),
        (Binding { stock: true, ..own }, "in stock"),
        (Binding { protocol: "concurrent", ..own }, "another protocol"),
        (Binding { client: "alice", ..own }, "another client"),
        (Binding { upload: Some([2; 16]), ..own }, "another upload"),
        (Binding { upload: None, ..own }, "another upload"),
    ];
    for (other, why) in others {
        let decoded = store::decode(&Suite::default(), &AnyDevice::default(), &other, &PREPARATION, &bytes);
        let error = decoded.err().expect("refused");
        assert!(error.contains(why), "{error}");
        // The header alone says so.
        std::fs::write(store::path(&folder.0, &other.batch), &bytes).unwrap();
        let error = store::peek(&folder.0, &other).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    let decoded = store::decode(&Suite::default(), &AnyDevice::default(), &own, &[0; 16], &bytes);
    assert!(decoded.err().expect("refused").contains("another preparation"));
    assert!(decode(&small, 1, &bytes).is_ok());
}

#[test]
fn leftovers_of_a_crash_are_swept_and_nothing_else_is() {
    let folder = Folder::new("sweep");
    let file = |name: &str| folder.0.join(name);
    megrez_engine::files::write(&file("00.material"), b"whole").unwrap();
    assert!(megrez_engine::files::write(&file("00.material"), b"another").is_err(), "replaced");
    for leftover in ["01.claimed", "02.material.new"] {
        std::fs::write(file(leftover), b"half").unwrap();
    }
    // Whoever is writing it now is the only one.
    assert!(megrez_engine::files::write(&file("02.material"), b"whole").is_err());
    let mut swept = megrez_engine::files::sweep(&folder.0).unwrap();
    swept.sort();
    assert_eq!(swept, [file("01.claimed"), file("02.material.new")]);
    megrez_engine::files::write(&file("02.material"), b"whole").unwrap();
    assert_eq!(std::fs::read(file("00.material")).unwrap(), b"whole");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 2);
    assert!(megrez_engine::files::sweep(&file("nowhere")).unwrap().is_empty());
}

#[test]
fn a_file_of_material_says_whose_it_is() {
    let (folder, plan) = (Folder::new("whose"), plan(1));
    let prepared = &offline(&plan)[1];
    let path = store::path(&folder.0, &BATCH);
    files::write(&path, &encode(&plan, 1, prepared)).unwrap();
    assert_eq!(store::belongs(&path, "owner"), Some((BATCH, PREPARATION)));
    assert_eq!(store::belongs(&path, "other"), None);
    std::fs::write(&path, b"short").unwrap();
    assert_eq!(store::belongs(&path, "owner"), None);
    assert_eq!(store::belongs(&folder.0.join("nowhere"), "owner"), None);
}

#[test]
fn a_file_is_replaced_only_where_there_is_one() {
    let folder = Folder::new("replace");
    let path = folder.0.join("one");
    assert!(files::replace(&path, b"new").is_err());
    files::write(&path, b"old").unwrap();
    files::replace(&path, b"new").unwrap();
    assert_eq!(std::fs::read(&path).unwrap(), b"new");
    assert_eq!(std::fs::read_dir(&folder.0).unwrap().count(), 1);
}

/// The same bytes with a hash that fits them: damage that the hash does not see.
fn rehashed(mut content: Vec<u8>) -> Vec<u8> {
    files::seal(store::MATERIAL, &mut content);
    content
}

#[test]
fn damaged_material_is_an_error_and_never_a_panic() {
    let plan = plan(2);
    for (party, prepared) in offline(&plan).iter().enumerate() {
        let bytes = encode(&plan, party, prepared);
        for length in 0..bytes.len() {
            assert!(decode(&plan, party, &bytes[..length]).is_err(), "party {party}: cut at {length}");
        }
        for bit in 0..bytes.len() * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&plan, party, &flipped).is_err(), "party {party}: bit {bit}");
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(decode(&plan, party, &longer).is_err());

        // Past the hash: lengths and tags from anywhere.
        let content = &bytes[..bytes.len() - 32];
        assert!(decode(&plan, party, &rehashed(content.to_vec())).is_ok());
        for length in 0..content.len() {
            assert!(
                decode(&plan, party, &rehashed(content[..length].to_vec())).is_err(),
                "{party}: {length}"
            );
        }
        let mut trailing = content.to_vec();
        trailing.push(0);
        assert!(decode(&plan, party, &rehashed(trailing)).is_err());
        for at in 0..content.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut changed = content.to_vec();
                changed[at] = value;
                // Another word is other material; another length, shape or tag is an error. Neither
                // panics.
                let _ = decode(&plan, party, &rehashed(changed));
            }
        }
    }
}

/// How many damaged files are tried; 100000 by hand.
fn faults() -> usize {
    std::env::var("MEGREZ_FAULTS").map_or(3000, |n| n.parse().expect("MEGREZ_FAULTS is a number"))
}

#[test]
fn material_with_several_faults_at_once_is_never_accepted() {
    let plan = plan(2);
    let files: Vec<_> = offline(&plan).iter().enumerate().map(|(i, m)| encode(&plan, i, m)).collect();
    let folder = Folder::new("faults");
    let path = store::path(&folder.0, &BATCH);
    let mut rng = Rng(0xfau64);
    for case in 0..faults() {
        let party = rng.below(3) as usize;
        let mut bytes = files[party].clone();
        for _ in 0..1 + rng.below(4) {
            let (at, length) = (rng.below(bytes.len() as u64) as usize, 1 + rng.below(40) as usize);
            let end = (at + length).min(bytes.len());
            match rng.below(6) {
                0 => bytes[at] ^= 1 << rng.below(8),
                1 => bytes[at..end].fill(0),
                2 => bytes[at..end].iter_mut().for_each(|b| *b = rng.below(256) as u8),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let part = bytes[at..end].to_vec();
                    bytes.splice(at..at, part).for_each(drop);
                }
                // A piece of another party's file.
                _ => {
                    let other = &files[(party + 1) % 3];
                    let (at, end) = (at.min(other.len()), end.min(other.len()));
                    bytes[at..end].copy_from_slice(&other[at..end]);
                }
            }
            if bytes.is_empty() {
                break;
            }
        }
        if bytes == files[party] {
            continue;
        }
        assert!(decode(&plan, party, &bytes).is_err(), "case {case}");
        // Every so often through a file, as a party does it.
        if case % 50 == 0 {
            std::fs::write(&path, &bytes).unwrap();
            let _ = store::peek(&folder.0, &binding(&plan, party));
            let claimed = store::claim(
                &folder.0,
                &Suite::default(),
                &AnyDevice::default(),
                &binding(&plan, party),
                &PREPARATION,
            );
            assert!(claimed.is_err() && !path.exists(), "case {case}");
        }
    }
}
