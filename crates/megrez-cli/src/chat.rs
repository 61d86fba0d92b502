//! `megrez chat`: lines of a person, each continued by a language model that has seen all before.

use crate::cluster::{Needs, Place};
use crate::generate::{Alphabet, Drawing};
use crate::options::Common;
use clap::Args;
use megrez::choices::Ranges;
use megrez::generate::{Choice, Generation, LanguageModel};
use megrez::report::Cost;
use megrez::{Backend, Error, Recipe, Result};
use serde_json::{Value, json};
use std::io::{BufRead as _, IsTerminal as _, Write as _};
use std::path::PathBuf;
use std::process::ExitCode;

/// The model that the command carries, and its letters.
const CARRIED: (&[u8], &str) = (
    include_bytes!("../../../examples/language/model.onnx"),
    include_str!("../../../examples/language/letters.txt"),
);

#[derive(Args)]
pub(crate) struct Chat {
    /// The language model, as for `megrez generate` [default: one that the command carries, which
    /// continues text letter by letter].
    #[arg(long)]
    model: Option<PathBuf>,
    /// The letter of every token, in order; without, lines are numbers of tokens.
    #[arg(long = "letters", value_name = "LETTERS", requires = "model")]
    vocabulary: Option<PathBuf>,
    /// How many tokens an answer has.
    #[arg(long, default_value_t = 40)]
    tokens: usize,
    /// Who finds the next token: the parties, on shares, or the client, who then learns how likely
    /// each is.
    #[arg(long, value_name = "WHO", default_value = "parties", value_parser = ["client", "parties"])]
    choose: String,
    #[command(flatten)]
    drawing: Drawing,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    place: Place,
}

impl Chat {
    fn model(&self) -> Result<(LanguageModel, Alphabet)> {
        let publisher = self.common.request.publisher()?;
        let publisher = publisher.as_ref();
        match &self.model {
            Some(path) => {
                Ok((LanguageModel::load(path, publisher)?, Alphabet::load(self.vocabulary.as_deref())?))
            }
            None => Ok((LanguageModel::read(CARRIED.0)?, Alphabet::of(CARRIED.1))),
        }
    }

    /// What the carried model is run with, where nobody says otherwise: no range of it is proven.
    fn common(&self) -> Common {
        let mut common = self.common.clone();
        if self.model.is_none() && common.request.ranges == Ranges::Prove {
            common.request.ranges = Ranges::Assume;
        }
        common
    }
}

pub(crate) fn run(args: &Chat, json: bool) -> Result<ExitCode> {
    let (model, alphabet) = args.model()?;
    let common = args.common();
    if args.tokens == 0 {
        return Err(Error::Refused("an answer has at least one token".into()));
    }
    common.request.only_fixed()?;
    let (choice, sampling) = (Choice::named(&args.choose)?, args.drawing.sampling()?);
    let mut backend = match args.place.connect(Needs::Any)? {
        Some(cluster) => Backend::Remote(cluster),
        None => common.backend()?,
    };
    let recipe = common.request.recipe(&model.graph(0, 1)?, backend.client())?;
    let Recipe::Fixed(options) = recipe else { unreachable!("floating point is refused above") };
    let draft = args.drawing.model()?;
    let mut generation =
        Generation::new(&model, &mut backend, *options, common.run(1))?.choosing(choice).sampling(sampling);
    if let Some(draft) = &draft {
        generation = generation.drafting(draft, args.drawing.draft_tokens)?;
    }
    let asks = std::io::stdin().is_terminal();
    let mut turns: Vec<Value> = vec![];
    let mut lines = std::io::stdin().lock().lines();
    loop {
        if asks {
            eprint!("> ");
        }
        let Some(line) = lines.next() else { break };
        let line = line.map_err(|e| Error::Refused(format!("standard input: {e}")))?;
        let prompt = match alphabet.tokens(&line.to_lowercase()) {
            Ok(prompt) if prompt.is_empty() => continue,
            Ok(prompt) => prompt,
            // A slip of the finger does not end what was said before.
            Err(error) if asks => {
                eprintln!("{error}");
                continue;
            }
            Err(error) => return Err(error),
        };
        let anew = generation.make_room(prompt.len() + args.tokens)?;
        if anew && !json {
            eprintln!("(the model reads no more: it has forgotten what was before)");
        }
        if !json {
            print!("{line}");
        }
        let mut seconds = vec![];
        let text = generation.write(&prompt, args.tokens, &mut |token, cost: Cost| {
            seconds.push(cost.online_seconds());
            if !json {
                print!("{}{}", alphabet.gap(), alphabet.text(&[token]));
                // Who has closed the other end does not wait for the rest.
                std::io::stdout().flush().map_err(|e| Error::Refused(format!("standard output: {e}")))?;
            }
            Ok(())
        })?;
        if !json {
            println!();
        }
        let answer = alphabet.text(&text[prompt.len()..]);
        turns.push(json!({ "line": line, "answer": answer, "anew": anew, "online_seconds": seconds }));
    }
    let range = if generation.proven { "proven" } else { "assumed" };
    if json {
        println!(
            "{}",
            json!({ "schema": "megrez.chat/1", "turns": turns, "protocol": common.protocol(),
            "insecure": common.insecure, "range": range, "choose": args.choose,
            "temperature": args.drawing.temperature, "top": args.drawing.top })
        );
    } else if !turns.is_empty() {
        println!("\nranges: {range}; nobody but this client has seen a letter");
    }
    Ok(ExitCode::SUCCESS)
}
