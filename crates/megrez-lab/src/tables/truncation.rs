//! Tables 1 to 3 of probabilistic truncation: ReLU on few bits, accuracy of truncations, networks.

use super::table::{Column, Row, Table, model, model_on_bits, op};
use crate::bench::BenchOptions;
use crate::study::forms::Form;
use crate::study::{Subject, truncation};
use megrez::Result;
use megrez::choices::List;
use megrez::request::sign_bit;
use serde_json::{Value as Json, json};
use std::path::Path;

/// The most bits that Bicoptor compares.
const MOST: Option<u32> = Some(30);
/// Magnitude bits that few-bit ReLU looks at, and the sign.
const FEW: u32 = 7 + 1;

/// Table 1.
pub(super) const RELU: Table = Table {
    name: "truncation-1",
    title: "Probabilistic truncation, Table 1: bits of a ReLU online",
    counts: "The paper's figures are its formulas at ℓ = 64 and, where few bits are compared, ℓx = 7; its own is 2·(ℓx + 1)² + 5ℓ. \
             Here: bits that all parties send online for one of 1000 ReLU. Comparing few bits is exact only where values are known to be \
             that short.",
    nets: &[("none", "loopback")],
    columns: &[
        Column { name: "bits", per_net: false, ours: |m| m.report()["bits_per_element"]["online"].as_f64() },
        Column { name: "rounds", per_net: false, ours: |m| m.rounds("online") },
    ],
    rows: || {
        let mut rows = vec![];
        for (system, whole, few, rounds) in [
            ("Edabits", 11_136.0, 3444.0, f64::NAN),
            ("Orca", 17_280.0, 2374.0, 1.0),
            ("ABY2.0", 8512.0, 1415.0, 2.0),
            ("Bicoptor", 8768.0, 1728.0, 2.0),
        ] {
            rows.push(Row::new("all bits", system).paper(&[whole, rounds]));
            rows.push(Row::new("7 bits", system).paper(&[few, rounds]));
        }
        let on = |bits: Option<u32>| {
            move |o: &mut BenchOptions| {
                o.batch = 1000;
                o.sign = sign_bit(o.ring, List::Digits, None, bits, 0).expect("bits of the ring");
            }
        };
        for (label, printed, bits) in [("all bits", 2179.0, None), ("7 bits", 884.0, Some(FEW))] {
            let row = Row::new(label, "Falcon").paper(&[printed, f64::NAN]);
            rows.push(row.bench(op("relu", "falcon", 13, on(bits))).note("here P-Falcon's comparison"));
        }
        let row = Row::new("7 bits", "improved Bicoptor").paper(&[704.0, 2.0]);
        rows.push(row.bench(op("relu", "bicoptor", 13, on(Some(FEW)))));
        rows.push(Row::new("7 bits", "MIZAR").bench(op("relu", "mizar", 13, on(Some(FEW)))));
        rows.push(Row::new("all bits", "MIZAR").bench(op("relu", "mizar", 13, on(None))));
        rows.sort_by_key(|row| row.label == "7 bits");
        rows
    },
};

/// Inputs of which the accuracy is taken.
const IMAGES: usize = 100;
/// The example's folder, in the repository.
const FOLDER: &str = "examples/digits";

/// Table 2.
pub(super) const ACCURACY: Table = Table {
    name: "truncation-2",
    title: "Probabilistic truncation, Table 2: accuracy with 26 fraction bits on the 64-bit ring",
    counts: "The paper's figures are those of P-Falcon; SecureML's and Fantastic's differ by less than a percent. Its networks are not at hand with their weights, so ours are two that were trained on digits, on 100 images, in the arithmetic of the shares: no protocol here has these truncations. Run it where examples/digits is.",
    nets: &[("none", "loopback")],
    columns: &[Column { name: "accuracy %", per_net: false, ours: |m| m.report()["accuracy"].as_f64() }],
    rows: || {
        let mut rows = vec![];
        for (network, [fixed, random, first]) in [
            ("AlexNet, CIFAR-10", [69.63, 12.73, 69.64]),
            ("AlexNet, Tiny ImageNet", [26.39, 0.44, 26.35]),
            ("VGG16, CIFAR-10", [88.31, 9.89, 88.31]),
            ("VGG16, Tiny ImageNet", [54.89, 0.41, 54.92]),
        ] {
            rows.push(Row::new(network, "constant r").paper(&[fixed]));
            rows.push(Row::new(network, "random r").paper(&[random]));
            rows.push(Row::new(network, "truncated first").paper(&[first]));
        }
        for network in ["lenet", "cnn"] {
            let row = |system, form| {
                Row::new(format!("{network}, digits"), system).bench(move |_| accuracy(network, form))
            };
            rows.push(row("constant r", Form::FixedR).note("A constant r opens the secret: no mask at all"));
            rows.push(row("random r", Form::Aby3Printed));
            rows.push(row("truncated first", Form::TruncateFirst));
            rows.push(row("exact, as here", Form::Exact));
        }
        rows
    },
};

/// The accuracy of a network of the example under a form of truncation.
fn accuracy(network: &str, form: Form) -> Result<Json> {
    let file = |name: &str| Path::new(FOLDER).join(name);
    let model = file(&format!("{network}.onnx"));
    let subject = Subject::load(&model, &file("test_images.npy"), &file("test_labels.npy"))?;
    let options = truncation::Options {
        rings: vec![64],
        fracs: vec![26],
        forms: vec![form],
        images: IMAGES,
        samples: 1,
    };
    let study = truncation::study(&[subject], &options, &|_| {})?;
    Ok(json!({ "accuracy": 100.0 * study.accuracy[0].score.accuracy, "verified": true }))
}

/// Table 3.
pub(super) const NETWORKS: Table = Table {
    name: "truncation-3",
    title: "Probabilistic truncation, Table 3: networks on 128 images",
    counts: "Seconds on one P100 for each party, P-Falcon's with constants for randomness; the paper's own compares 8 bits. Here: seconds online on one machine's processors, P-Falcon's with random masks, all bits compared, under Bicoptor 30, as many as it can. The paper's ResNet18 of CIFAR-10 and all networks of Tiny ImageNet are not among the built-in ones.",
    nets: &[("lan1", "0.2ms,5gbps")],
    columns: &[Column { name: "s", per_net: true, ours: |m| m.seconds("online") }],
    rows: || {
        let mut rows = vec![];
        for (network, name, [falcon, few, plain]) in [
            ("AlexNet, CIFAR-10", "alexnet-cifar", [1.75, 0.61, 0.03]),
            ("VGG16, CIFAR-10", "vgg16-cifar-max", [30.48, 7.12, 0.29]),
        ] {
            let row = Row::new(network, "P-Falcon").paper(&[falcon]);
            rows.push(row.bench(model(name, "falcon", 13, 128)).large());
            let row = Row::new(network, "improved Bicoptor").paper(&[few]);
            rows.push(row.bench(model_on_bits(name, "bicoptor", 13, 128, MOST)).large());
            rows.push(Row::new(network, "MIZAR").bench(model(name, "mizar", 13, 128)).large());
            rows.push(Row::new(network, "in the clear").paper(&[plain]));
        }
        for (network, [falcon, few, plain]) in [
            ("AlexNet, Tiny ImageNet", [7.81, 2.41, 0.03]),
            ("VGG16, Tiny ImageNet", [f64::NAN, 28.80, 0.29]),
            ("ResNet18, CIFAR-10", [14.77, 5.12, 0.13]),
            ("ResNet18, Tiny ImageNet", [20.46, 6.33, 0.14]),
        ] {
            rows.push(Row::new(network, "P-Falcon").paper(&[falcon]));
            rows.push(Row::new(network, "improved Bicoptor").paper(&[few]));
            rows.push(Row::new(network, "in the clear").paper(&[plain]));
        }
        for (network, name) in
            [("AlexNet, one image", "alexnet-cifar"), ("VGG16, one image", "vgg16-cifar-max")]
        {
            for (system, protocol, bits) in [
                ("P-Falcon", "falcon", None),
                ("improved Bicoptor", "bicoptor", MOST),
                ("MIZAR", "mizar", None),
            ] {
                rows.push(Row::new(network, system).bench(model_on_bits(name, protocol, 13, 1, bits)));
            }
        }
        rows
    },
};
