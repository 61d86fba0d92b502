//! `megrez example proximity`: are two points on Earth nearer to each other than a threshold?
//! SECFLOAT, Appendix M, between two parties, or with a dealer.
//!
//! Scenario I: each party knows a point. Scenario II: both points are shared, latitude and
//! longitude apart, as what comes out of another computation. The parties open whether the points
//! are near; the distances only afterwards, to say how exact they are, and neither their opening
//! nor that of the answers is in the cost.

use crate::supplied::{self, Part, Priced, Sent, SetUp, all_sent, cost, sent, sent_since};
use megrez::{Error, Result, Work};
use megrez_float::accuracy::error;
use megrez_float::programs::{FIXED, chord, half_vector, haversine, nearer, threshold};
use megrez_float::{AnyBlocks, Bit, Failure, Float, Format, Int, Plain, in_the_clear, plain_bits};
use megrez_net::{NetProfile, Network};
use megrez_prg::Key;
use megrez_service::pair::{self, Job};
use megrez_session::Phase;
use megrez_twoparty::Supplier;
use serde::{Deserialize, Serialize};
use serde_json::{Value as Json, json};
use std::time::Instant;

/// Tests that go together; more take more memory and save few rounds.
const TOGETHER: usize = 1 << 15;

/// Latitude and longitude in degrees of some cities.
const CITIES: [[f64; 2]; 24] = [
    [52.5200, 13.4050],
    [48.8566, 2.3522],
    [51.5074, -0.1278],
    [40.4168, -3.7038],
    [41.9028, 12.4964],
    [59.3293, 18.0686],
    [64.1466, -21.9426],
    [30.0444, 31.2357],
    [6.5244, 3.3792],
    [-1.2921, 36.8219],
    [-33.9249, 18.4241],
    [25.2048, 55.2708],
    [28.6139, 77.2090],
    [19.0760, 72.8777],
    [13.7563, 100.5018],
    [1.3521, 103.8198],
    [39.9042, 116.4074],
    [35.6762, 139.6503],
    [-33.8688, 151.2093],
    [-36.8509, 174.7645],
    [40.7128, -74.0060],
    [37.7749, -122.4194],
    [19.4326, -99.1332],
    [-23.5505, -46.6333],
];

/// Earth's mean circumference in metres is 360 degrees.
const DEGREE: f64 = 6_371_008.8 * std::f64::consts::PI / 180.0;

/// What to test.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Proximity {
    /// The protocol: one on floats.
    pub protocol: String,
    /// 1: each party knows a point; 2: both points are shared.
    pub scenario: u8,
    /// How many pairs of points.
    pub tests: usize,
    /// The distance in metres below which two points are near.
    pub metres: f64,
    /// Bits of a group of the OT extension, 1, 2, 4 or 8: more is fewer bytes and more work.
    pub group: u32,
    /// The network between the parties: loopback, lan, wan, or RTT,RATE such as 20ms,500mbps.
    #[serde(skip, default = "NetProfile::loopback")]
    pub net: NetProfile,
    /// Seed of the points, never of shares.
    pub seed: u64,
}

/// What a party measured, and what was opened.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    setup_seconds: f64,
    seconds: f64,
    rounds: u32,
    sent: Sent,
    /// What is opened, to the parties that compute.
    near: Vec<bool>,
    /// δ as bits of single precision.
    delta: Vec<u32>,
}

/// A point: latitude and longitude in half-turns, both numbers of single precision.
type Point = [f64; 2];

/// Test `number`: where the parties are. One is in a city; the other one in any city, anywhere
/// within twenty times the threshold, within the threshold, or close to it.
fn points(o: &Proximity, number: usize) -> [Point; 2] {
    let key = Key::agree("megrez 2026 points", &o.seed.to_le_bytes(), &(number as u64).to_le_bytes());
    let words = key.stream().words(6);
    let unit = |i: usize| (words[i] >> 11) as f64 / (1u64 << 53) as f64;
    let city = |i: usize| CITIES[(words[i] % CITIES.len() as u64) as usize];
    // Up to 5 km from the middle of the city.
    let here = moved(city(0), 5000.0 * unit(1), 360.0 * unit(2));
    let there = match number % 4 {
        0 => moved(city(3), 5000.0 * unit(4), 360.0 * unit(5)),
        1 => moved(here, 20.0 * o.metres * unit(4), 360.0 * unit(5)),
        2 => moved(here, o.metres * unit(4), 360.0 * unit(5)),
        _ => moved(here, o.metres * (0.9 + 0.2 * unit(4)), 360.0 * unit(5)),
    };
    [here, there].map(|degrees| degrees.map(|d| f64::from((d / 180.0) as f32)))
}

/// A point some metres from another one, both in degrees.
fn moved([latitude, longitude]: [f64; 2], metres: f64, direction: f64) -> [f64; 2] {
    let (sine, cosine) = direction.to_radians().sin_cos();
    let north = metres * cosine / DEGREE;
    [latitude + north, longitude + metres * sine / (DEGREE * latitude.to_radians().cos())]
}

/// δ in double precision.
fn exact([a, b]: [Point; 2]) -> f64 {
    let pi = std::f64::consts::PI;
    let square = |x: f64| (x * pi / 2.0).sin().powi(2);
    square(a[0] - b[0]) + (a[0] * pi).cos() * (b[0] * pi).cos() * square(a[1] - b[1])
}

/// Points of one party that nobody sees.
enum Secret {
    /// For scenario I: [`half_vector`]s, all first coordinates, then all second and all third ones.
    Vectors(Int),
    /// For scenario II: latitudes, and longitudes.
    Angles(Box<[Float; 2]>),
}

fn coordinates(points: &[Point]) -> Vec<u64> {
    let vectors: Vec<_> = points.iter().map(|p| half_vector(p[0], p[1])).collect();
    (0..3).flat_map(|i| vectors.iter().map(move |v| v[i])).collect()
}

fn angles(points: &[Point], i: usize) -> Plain {
    Plain::from_f32(&points.iter().map(|p| p[i] as f32).collect::<Vec<_>>())
}

/// Points that the program takes for secret.
fn secret(b: &AnyBlocks, scenario: u8, points: &[Point]) -> Secret {
    match scenario {
        1 => Secret::Vectors(b.secret_ints(FIXED.0, &coordinates(points))),
        _ => Secret::Angles(Box::new([0, 1].map(|i| b.secret(&angles(points, i))))),
    }
}

/// Points of party `owner`, who gives them.
fn shared<S: Supplier>(
    b: &mut S,
    scenario: u8,
    owner: usize,
    lanes: usize,
    points: Option<&[Point]>,
) -> Result<Secret> {
    if scenario == 1 {
        let mine = points.map(coordinates);
        let name = format!("vectors {owner}");
        return Ok(Secret::Vectors(b.share_ints(owner, &name, FIXED.0, 3 * lanes, mine.as_deref())?));
    }
    let mut share = |i: usize| {
        let mine = points.map(|p| angles(p, i));
        b.share(owner, &format!("angles {owner} {i}"), Format::FLOAT32, lanes, mine.as_ref())
    };
    Ok(Secret::Angles(Box::new([share(0)?, share(1)?])))
}

/// δ, and whether it is below the threshold.
fn test(b: &mut AnyBlocks, metres: f64, [p, q]: &[Secret; 2]) -> std::result::Result<(Float, Bit), Failure> {
    let delta = match (p, q) {
        (Secret::Vectors(p), Secret::Vectors(q)) => chord(b, p, q)?,
        (Secret::Angles(p), Secret::Angles(q)) => haversine(b, p, q)?,
        _ => unreachable!("both points are of one scenario"),
    };
    let near = nearer(b, &delta, threshold(metres))?;
    Ok((delta, near))
}

/// The tests in slices: the first one of each, and how many.
fn slices(tests: usize) -> impl Iterator<Item = (usize, usize)> {
    (0..tests).step_by(TOGETHER).map(move |from| (from, TOGETHER.min(tests - from)))
}

impl Job for Proximity {
    const NAME: &'static str = "example proximity";
    type Report = Report;

    fn parties(&self) -> usize {
        supplied::parties(&self.protocol).unwrap_or(2)
    }

    fn run(&self, network: Network) -> Result<Report> {
        supplied::party(network, self.work(), self)
    }
}

impl Part for Proximity {
    type Report = Report;

    fn run<S: Supplier>(&self, b: &mut S, set_up: SetUp) -> Result<Report> {
        let me = b.party().me();
        let (mut seconds, mut rounds) = (0.0, 0);
        let (mut near, mut delta) = (vec![], vec![]);
        let before = sent(b);
        for (run, (from, lanes)) in slices(self.tests).enumerate() {
            let all = (from..from + lanes).map(|i| points(self, i));
            let mine: Option<Vec<Point>> = all.map(|pair| pair.get(me).copied()).collect();
            let run = run as u32;
            b.enter(Phase::Input, run);
            let mut bring =
                |owner| shared(b, self.scenario, owner, lanes, mine.as_deref().filter(|_| owner == me));
            let secrets = [bring(0)?, bring(1)?];
            b.enter(Phase::Online, run);
            b.party_mut().barrier("start")?;
            let start = Instant::now();
            let (distance, is_near) = b.step("test", |b| test(b, self.metres, &secrets))?;
            seconds += start.elapsed().as_secs_f64();
            rounds += b.party().rounds();
            b.enter(Phase::Output, run);
            near.extend(b.open_bits(&is_near)?.into_iter().flatten());
            let opened = b.open(&distance)?.map(|opened| opened.to_bits());
            delta.extend(opened.into_iter().flatten().map(|v| v as u32));
        }
        let sent = sent_since(b, &before);
        Ok(Report { setup_seconds: set_up.seconds, seconds, rounds, sent, near, delta })
    }
}

impl Priced for Proximity {
    fn ask(&self, b: &mut AnyBlocks) -> std::result::Result<(), Failure> {
        for (_, lanes) in slices(self.tests) {
            let secrets = [(); 2].map(|()| secret(b, self.scenario, &vec![[0.0; 2]; lanes]));
            test(b, self.metres, &secrets)?;
        }
        Ok(())
    }
}

impl Proximity {
    fn work(&self) -> Work {
        Work { group: self.group, threads: 1 }
    }
}

/// Runs the example, with processes or threads for parties, and reports as `megrez.proximity/1`.
///
/// # Errors
/// If there is nothing to test, or the parties fail.
pub fn run(o: &Proximity, processes: bool) -> Result<Json> {
    if o.tests == 0 || !(o.metres > 0.0 && o.metres < 180.0 * DEGREE) {
        return Err(Error::Refused("give at least one test, and a distance on Earth".into()));
    }
    supplied::parties(&o.protocol)?;
    let reports = if processes { pair::in_processes(o, &o.net)? } else { pair::in_threads(o, &o.net)? };
    let report = &reports[0];
    let pairs: Vec<[Point; 2]> = (0..o.tests).map(|i| points(o, i)).collect();
    let truth: Vec<f64> = pairs.iter().map(|&p| exact(p)).collect();
    let limit = (o.metres * std::f64::consts::PI / (360.0 * DEGREE)).sin().powi(2);
    let errors: Vec<f64> =
        report.delta.iter().zip(&truth).map(|(&d, &want)| error(f32::from_bits(d), want)).collect();
    let agree = report.near.iter().zip(&truth).filter(|(near, want)| **near == (**want < limit)).count();
    let sides = [0, 1].map(|i| pairs.iter().map(|p| p[i]).collect::<Vec<_>>());
    let (delta, near) = in_the_clear(|b| {
        let secrets = sides.map(|side| secret(b, o.scenario, &side));
        test(b, o.metres, &secrets)
    });
    let same = delta.plain().to_bits().iter().zip(&report.delta).all(|(&a, &b)| a == u64::from(b))
        && plain_bits(&near).0.iter().zip(&report.near).all(|(&a, &b)| (a == 1) == b);
    let parties = supplied::parties(&o.protocol)?;
    let sent = all_sent(reports.iter().map(|r| &r.sent));
    let cost = cost(o, parties, o.work(), 1);
    let each = |bytes: u64| bytes as f64 / o.tests as f64;
    let seconds = reports.iter().map(|r| r.seconds).fold(0.0, f64::max);
    Ok(json!({
        "schema": "megrez.proximity/1",
        "scenario": o.scenario,
        "tests": o.tests,
        "metres": o.metres,
        "protocol": o.protocol,
        "options": supplied::options(parties, o.work()),
        "net": { "name": o.net.name, "rtt_ms": o.net.rtt_ms, "mbps": o.net.mbps },
        "parties": if processes { "process" } else { "thread" },
        "near": report.near.iter().filter(|&&near| near).count(),
        "agree": agree,
        "average_ulp": errors.iter().sum::<f64>() / o.tests as f64,
        "max_ulp": errors.iter().fold(0.0, |a: f64, &b| a.max(b)),
        "bytes_per_test": each(sent.iter().flatten().flatten().sum()),
        "formula_bytes_per_test": each(cost.bytes()),
        "rounds": reports.iter().map(|r| r.rounds).max(),
        "seconds": seconds,
        "setup_seconds": reports.iter().map(|r| r.setup_seconds).fold(0.0, f64::max),
        "verified": same && sent == cost.sent,
    }))
}

/// The report for people.
#[must_use]
pub fn text(report: &Json) -> String {
    let number = |key: &str| report[key].as_f64().unwrap_or(f64::NAN);
    let known = if report["scenario"] == 1 { "each party knows a point" } else { "both points are shared" };
    format!(
        "{} pairs of points, {known}, under {}: {} are nearer than {} m; {} answers as in double precision\n\
         error of the haversine: {:.3} ULP on average, {:.2} at most\n\
         {:.2} KiB a test of all parties (by the formula {:.2}), {} rounds, {:.2} s, and {:.2} s to set up\n\
         bit for bit what it is in the clear, at the predicted cost: {}\n",
        report["tests"],
        report["protocol"].as_str().unwrap_or_default(),
        report["near"],
        report["metres"],
        report["agree"],
        number("average_ulp"),
        number("max_ulp"),
        number("bytes_per_test") / 1024.0,
        number("formula_bytes_per_test") / 1024.0,
        report["rounds"],
        number("seconds"),
        number("setup_seconds"),
        if report["verified"] == true { "yes" } else { "NO" },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_scenarios_are_exact_and_within_their_price() {
        for (protocol, scenario, limit) in
            [("secfloat", 1, 25.0), ("secfloat", 2, 70.0), ("mizar-float", 1, 4.0), ("mizar-float", 2, 8.0)]
        {
            let o = Proximity {
                protocol: protocol.into(),
                scenario,
                tests: 400,
                metres: 500.0,
                group: 4,
                net: NetProfile::loopback(),
                seed: 1,
            };
            let report = run(&o, false).unwrap();
            assert_eq!(report["verified"], json!(true), "{report}");
            assert_eq!(report["agree"], json!(400), "{report}");
            assert!(report["near"].as_u64().is_some_and(|near| (100..300).contains(&near)), "{report}");
            assert!(report["average_ulp"].as_f64().unwrap() < 1.05, "{report}");
            assert!(report["bytes_per_test"].as_f64().unwrap() < limit * 1024.0, "{report}");
        }
        let o = Proximity {
            protocol: "secfloat".into(),
            scenario: 1,
            tests: 1,
            metres: 1.0,
            group: 4,
            net: NetProfile::loopback(),
            seed: 1,
        };
        assert!(run(&Proximity { tests: 0, ..o.clone() }, false).is_err());
        let fixed = run(&Proximity { protocol: "meteor".into(), ..o }, false);
        assert!(fixed.unwrap_err().to_string().contains("`meteor` does not compute in floating point"));
    }
}
