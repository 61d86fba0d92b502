//! Language models on shares: normalisations, masked attention, GELU and SiLU, a secret token's
//! embedding, keys and values that stay with the parties between runs. Under every protocol, token
//! by token against the clear.

use crate::common::{cli, example};
use std::path::Path;

fn generate(options: &str) -> serde_json::Value {
    let (model, letters) = (example("../language/model.onnx"), example("../language/letters.txt"));
    let line = format!("generate --model {{}} --letters {{}} --range assume --json --prompt the {options}");
    cli(&line, &[&model, &letters]).json("megrez.generate/1")
}

#[test]
fn every_protocol_writes_the_text_of_the_clear() {
    for protocol in ["mizar", "aby3", "alkaid", "meteor"] {
        let report = generate(&format!("--protocol {protocol} --tokens 3 --activations fine"));
        assert_eq!(report["same"], true, "{protocol}: {report}");
        assert_eq!(report["text"].as_str().map(str::len), Some(6));
    }
}

/// A built-in model continues a text of tokens by three.
fn built_in(model: &str, protocol: &str, choose: &str) -> serde_json::Value {
    let line = format!(
        "generate --model {model} --range assume --json --tokens 3 --activations fine --protocol {protocol} --choose {choose} --prompt {{}}"
    );
    cli(&line, &[Path::new("17 4 250 9 9 31")]).json("megrez.generate/1")
}

#[test]
fn built_in_models_write_the_text_of_the_clear_whoever_chooses() {
    for (model, protocol) in
        [("gpt2-tiny", "mizar"), ("llama-tiny", "mizar"), ("llama-tiny", "aby3"), ("llama-tiny", "alkaid")]
    {
        let [client, parties] = ["client", "parties"].map(|choose| built_in(model, protocol, choose));
        for report in [&client, &parties] {
            assert_eq!(report["same"], true, "{model}, {protocol}: {report}");
            let text = report["text"].as_str().unwrap();
            assert!(text.starts_with("17 4 250 9 9 31 ") && text.split(' ').count() == 9, "{text}");
            assert_eq!(report["online_seconds"].as_array().map(Vec::len), Some(3));
        }
        // One more token is read alone, with what the parties have kept.
        let bytes = |report: &serde_json::Value, run: &str| {
            let links = report[run]["phases"]["online"]["sent_bytes"].as_object().unwrap().clone();
            links.values().map(|v| v.as_u64().unwrap()).sum::<u64>()
        };
        let (first, last) = (bytes(&client, "first"), bytes(&client, "last"));
        assert!(3 * last < first, "{model}, {protocol}: {first} bytes for the prompt, {last} for a token");
        // What the client does not learn is not sent to it.
        let rounds = |report: &serde_json::Value| report["last"]["phases"]["online"]["rounds"].as_u64();
        assert!(rounds(&parties) > rounds(&client));
    }
}

#[test]
fn what_cannot_be_continued_is_refused() {
    let refused = |model: &str, options: &str, prompt: &str, word: &str| {
        let line = format!("generate --model {model} --range assume --tokens 1 {options} --prompt {{}}");
        cli(&line, &[Path::new(prompt)]).refused(&[word]);
    };
    refused("llama-tiny", "", "seventeen", "--letters");
    refused("llama-tiny", "", "", "at least one token");
    refused("llama-tiny", "", "256", "below 256");
    refused("llama", "", "1", "llama");
    refused("llama-tiny", "", &vec!["1"; 2049].join(" "), "1 to 2048");
    refused("llama-tiny", "--parties thread --protocol clear --insecure", "1", "--parties process");
}
