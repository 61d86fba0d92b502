//! Language models on shares: normalisations, masked attention, GELU and SiLU, a secret token's
//! embedding, keys and values that stay with the parties between runs. Under every protocol, token
//! by token against the clear.

use crate::common::{cli, example, told};
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

/// Whoever finds the token, the same is drawn as in the clear: of all, or of the likeliest.
#[test]
fn tokens_are_drawn_as_in_the_clear() {
    for (options, top) in [
        ("--temperature 0.7", serde_json::Value::Null),
        ("--temperature 1.5 --top 4", 4.into()),
        ("--top 1 --temperature 2", 1.into()),
    ] {
        for choose in ["client", "parties"] {
            let report = generate(&format!("--tokens 3 --activations fine --choose {choose} {options}"));
            assert_eq!(report["same"], true, "{choose}, {options}: {report}");
            assert_eq!(report["top"], top);
        }
    }
    let hot = || {
        let report = generate("--activations fine --temperature 50 --tokens 5");
        report["text"].as_str().unwrap().to_owned()
    };
    // All letters are as good as equally likely: the same five twice would be 1 in 34^5.
    assert_ne!(hot(), hot());
    let refused = |options: &str, word: &str| {
        let line = format!(
            "generate --model llama-tiny --range assume --tokens 1 --prompt 7 --choose parties {options}"
        );
        cli(&line, &[]).refused(&[word]);
    };
    refused("--temperature 101", "from 0 to 100");
    refused("--temperature 1 --top 0", "at least one");
    refused("--temperature 1 --top 5", "64 logits");
}

/// What a small model proposes is taken where it is right: the text is the same, in fewer runs.
#[test]
fn drafts_save_runs_and_change_nothing() {
    let passes = |report: &serde_json::Value| {
        assert_eq!(report["same"], true, "{report}");
        report["passes"].as_u64().unwrap()
    };
    // Its own proposals are right: four and one, then three and one.
    let model = example("../language/model.onnx");
    for options in ["", "--choose parties", "--protocol aby3", "--temperature 0.8"] {
        let line = format!("--tokens 9 --activations fine --draft {} {options}", model.display());
        let report = generate(&line);
        assert_eq!(passes(&report), 2, "{options}: {report}");
        let seconds = report["online_seconds"].as_array().unwrap();
        assert_eq!((seconds.len(), seconds[4].as_f64()), (9, Some(0.0)));
    }
    // Another model is right now and then.
    let drawn = |options: &str| {
        let line = format!(
            "generate --model gpt2-tiny --draft llama-tiny --draft-tokens 3 --range assume --json --tokens 16 --temperature 0.7 {options} --prompt {{}}"
        );
        passes(&cli(&line, &[Path::new("17 4 250")]).json("megrez.generate/1"))
    };
    let all = ["", "--choose parties", "", "--choose parties"].map(drawn);
    assert!(all.iter().all(|&n| (4..=16).contains(&n)) && all.iter().any(|&n| n > 4), "{all:?}");
    let refused = |options: &str, word: &str| {
        let line = format!("generate --range assume --tokens 3 --prompt {{}} {options}");
        cli(&line, &[Path::new("7")]).refused(&[word]);
    };
    refused("--model llama-tiny --draft gpt2-tiny --temperature 1 --top 5", "no --top");
    refused("--model llama-tiny --draft gpt2-tiny --draft-tokens 0", "at least one token");
    refused(&format!("--model {} --draft llama-tiny", model.display()), "the model knows 34");
}

#[test]
fn a_chat_remembers_what_was_said() {
    let chat = |input: &str, options: &str| {
        let line = format!("chat --json --tokens 4 --activations fine {options}");
        told(input, line.split(' ').filter(|word| !word.is_empty()))
    };
    let turns = |input: &str| chat(input, "").json("megrez.chat/1")["turns"].as_array().unwrap().clone();
    let answer = |turn: &serde_json::Value| turn["answer"].as_str().unwrap().to_owned();
    let talk = turns("the parties \n\nof the\n");
    assert_eq!(talk.len(), 2, "{talk:?}");
    let letters = answer(&talk[0]);
    assert_eq!(letters.chars().count(), 4);
    // What a model that has read all of it in one piece goes on with.
    let whole = turns(&format!("the parties {letters}of the\n"));
    assert_eq!(answer(&whole[0]), answer(&talk[1]), "{talk:?} {whole:?}");
    // 96 letters are all that it reads.
    let long = turns(&format!("{0}\n{0}\n", "the parties hold shares ".repeat(3).trim_end()));
    assert_eq!((&long[0]["anew"], &long[1]["anew"]), (&false.into(), &true.into()));
    assert_eq!(answer(&long[0]), answer(&long[1]));
    chat("a 5\n", "").refused(&["letter `5`"]);
    chat(&"a".repeat(97), "").refused(&["axis of 96"]);
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
