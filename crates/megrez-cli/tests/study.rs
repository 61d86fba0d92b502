//! `megrez study`: its reports, and what it refuses.

use crate::common::{cli, example};

#[test]
fn studies_print_versioned_reports() {
    let folder = example("");
    let small = "--images 2 --form aby3-printed,exact --samples 2000 --frac 13 --ring 64";
    let report = cli(&format!("study truncation --json {small} --folder {{}}"), &[&folder])
        .json("megrez.study.truncation/1");
    let forms: Vec<_> = report["accuracy"].as_array().unwrap().iter().map(|a| &a["form"]).collect();
    assert_eq!(forms, ["aby3-printed", "exact", "aby3-printed", "exact"], "two models, two forms");
    assert!(report["rates"][0]["rate"].as_f64().unwrap() > 0.1, "slack 2: {}", report["rates"][0]);

    let model = example("lenet.onnx");
    let small = "--images 2 --calibrate 2 --bits 8";
    let report =
        cli(&format!("study relu-bits --json {small} --folder {{}} --model {{}}"), &[&folder, &model])
            .json("megrez.study.relu-bits/1");
    assert_eq!(report["models"][0]["width"], serde_json::json!([8, 8]));
    assert_eq!(report["relu"][0]["bits"], 8);

    let text = cli(&format!("study relu-bits {small} --folder {{}}"), &[&folder]).ok();
    assert!(text.contains("lenet on Z_2^64") && text.contains("cnn on Z_2^64"), "{text}");
}

#[test]
fn the_printed_msb_is_studied() {
    let small = "study meteor-msb --ring 8 --values 4 --draws 10";
    let report = cli(&format!("{small} --json"), &[]).json("megrez.study.meteor-msb/1");
    assert_eq!((&report["rows"][0]["wrong"], &report["rows"][0]["zeros"]), (&0.5.into(), &0.0.into()));
    assert!(cli(small, &[]).ok().contains("corrected"));
    cli("study meteor-msb --ring 64", &[]).refused(&["4 to 16"]);
}

#[test]
fn studies_refuse_what_they_do_not_know() {
    let folder = example("");
    let refused = |arguments: &str, word: &str| {
        cli(&format!("study {arguments} --folder {{}}"), &[&folder]).refused(&[word]);
    };
    refused("truncation --form round --images 2", "mizar-fig10");
    refused("truncation --ring 16 --images 2", "32 and 64");
    refused("truncation --images 361 --samples 1 --frac 13", "360");
    refused("truncation --images 0 --samples 1 --frac 13", "labelled inputs");
    refused("relu-bits --bits 1", "1 bits");
}

/// No protocol that a user can name truncates inexactly.
#[test]
fn inexact_forms_exist_in_studies_only() {
    for form in megrez_lab::study::forms::Form::ALL {
        assert!(megrez_protocols::registry::find(form.name()).is_none_or(|p| p.insecure), "{}", form.name());
    }
}
