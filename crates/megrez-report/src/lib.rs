//! One page, in HTML, of what a run cost, whom it told what, and how exact it was: self-contained,
//! without scripts, light and dark.
//!
//! It is made of the JSON that commands print (docs/json.md), so the command, Python and whoever
//! kept such a report get the same page. A page holds no inputs, no weights and no outputs: of
//! `outputs` it takes names and shapes.

mod charts;
mod error;
mod html;
mod numbers;
mod sections;

pub use error::PageError;

use serde_json::Value;

/// What a page is made of.
#[derive(Clone, Copy, Default)]
pub struct Parts<'a> {
    /// The report of a run: `megrez.infer/1`, `megrez.demo/1`.
    pub run: Option<&'a Value>,
    /// The report of an earlier run, to compare with.
    pub before: Option<&'a Value>,
    /// Who gives what and who learns what: `megrez.disclosure/1`.
    pub disclosure: Option<&'a Value>,
    /// Every layer on shares against the clear: the `layers` of `megrez.check/1`.
    pub check: Option<&'a Value>,
    /// The model's layers, with their ranges in fixed point.
    pub layers: Option<&'a Value>,
}

/// The page.
///
/// # Errors
/// If a part is no such report.
pub fn page(parts: &Parts<'_>) -> Result<String, PageError> {
    let mut body = vec![];
    let mut title = "private inference".to_owned();
    if let Some(run) = parts.run {
        title = sections::title(run)?;
        body.push(sections::summary(run, &title)?);
    }
    if let Some(disclosure) = parts.disclosure {
        body.push(sections::disclosure(disclosure)?);
    }
    if let Some(run) = parts.run {
        body.push(sections::phases(run)?);
        body.push(sections::layers(run)?);
        if let Some(before) = parts.before {
            body.push(sections::comparison(run, before)?);
        }
    }
    if let Some(check) = parts.check {
        body.push(sections::check(check)?);
    }
    if let Some(layers) = parts.layers {
        body.push(sections::ranges(layers)?);
    }
    Ok(html::document(&title, &body.concat()))
}

/// A part of a page for a notebook: the cost alone, without a document around it.
///
/// # Errors
/// If this is no report of a run.
pub fn fragment(run: &Value) -> Result<String, PageError> {
    Ok(html::fragment(&format!("{}{}", sections::phases(run)?, sections::layers(run)?)))
}

#[cfg(test)]
mod tests {
    use super::{PageError, Parts, fragment, page};
    use serde_json::{Value, json};

    fn run() -> Value {
        let phase = |scale: f64| {
            json!({ "seconds": { "median": 0.01 * scale, "min": 0.009, "max": 0.02 }, "busy_seconds": [0.001, 0.001, 0.0],
                "rounds": 5, "sent_bytes": { "0>1": 1000, "0>2": 0, "1>0": 1200, "1>2": 0, "2>0": 5_000_000, "2>1": 10 } })
        };
        let layer = |name: &str| json!({ "layer": name, "offline_bytes": 4096, "online_bytes": 512, "online_rounds": 2, "online_seconds": 0.004 });
        json!({
            "schema": "megrez.infer/1", "shape": [1, 2], "output": [123.456, 2.0],
            "outputs": [{ "name": "y", "shape": [1, 2], "output": [123.456, 2.0] }],
            "protocol": "mizar", "insecure": false, "range": "proven", "batch": 1, "runs": 3,
            "cost": { "phases": { "offline": phase(1.0), "online": phase(2.0) }, "wire_bytes": { "0>1": 2000 },
                "layers": [layer("conv1"), layer("<script>alert(1)</script>")], "device": ["CPU", "CPU", "CPU"],
                "peak_rss_mib": [10.0, 11.0, null], "kernel_seconds": [null, null, null], "peak_device_mib": [null, null, null] },
        })
    }

    #[test]
    fn a_page_is_whole_and_holds_no_numbers_of_the_run() {
        let run = run();
        let html = page(&Parts { run: Some(&run), before: Some(&run), ..Parts::default() }).unwrap();
        for part in
            ["<!doctype html>", "</html>", "Content-Security-Policy", "mizar", "conv1", "<svg", "4.77 MiB"]
        {
            assert!(html.contains(part), "{part} is missing");
        }
        assert!(!html.contains("123.456"), "an output is in the page");
        assert!(!html.contains("<script"), "a name became markup");
        assert!(
            !html.contains("http://")
                || html.matches("http://").count() == html.matches("http://www.w3.org").count()
        );
        assert!(html.len() < 200_000);
        assert!(fragment(&run).unwrap().contains("conv1"));
    }

    #[test]
    fn checks_ranges_and_disclosures_are_shown() {
        let check = json!([{ "layer": "fc", "op": "Gemm", "max_error": 1e-4, "mean_error": 1e-5, "max_value": 3.0,
            "headroom_bits": 20.0, "proven": true, "calibrated": false, "outside": 0 }]);
        let disclosure = json!({ "schema": "megrez.disclosure/1", "protocol": "mizar", "security": "one curious party", "insecure": false,
            "parties": 3, "numbers": "fixed",
            "gives": [{ "name": "x", "owner": "alice", "kind": "data", "shape": [1, 4], "numbers": 4, "range": [-1.0, 1.0] }],
            "learns": [{ "name": "y", "recipient": "bob", "shape": [1, 2], "then": ["softmax"], "by_row": true }],
            "everybody_sees": ["the shapes"], "opened": [], "ranges": "proven", "warnings": ["a warning"] });
        let html =
            page(&Parts { check: Some(&check), disclosure: Some(&disclosure), ..Parts::default() }).unwrap();
        for part in ["alice", "bob", "a warning", "the shapes", "fc", "<svg"] {
            assert!(html.contains(part), "{part} is missing");
        }
    }

    #[test]
    fn what_is_no_report_is_refused_by_name() {
        let refused = |value: Value| page(&Parts { run: Some(&value), ..Parts::default() }).unwrap_err();
        assert_eq!(refused(json!({ "schema": "megrez.check/1" })), PageError::Kind("megrez.check/1".into()));
        assert_eq!(refused(json!([])), PageError::Kind("none".into()));
        let mut run = run();
        run["cost"]["layers"][0]["online_seconds"] = json!("soon");
        assert_eq!(refused(run), PageError::Field("cost.layers.0.online_seconds".into()));
    }
}
