//! A language model on shares: LayerNormalization, masked attention, GELU, a secret token's
//! embedding, keys and values that stay with the parties between runs. Under every protocol, letter
//! by letter against the clear.

use crate::common::{cli, example};

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
