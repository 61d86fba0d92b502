//! `megrez generate`: a text, continued token by token.

use crate::cluster::{Needs, Place};
use crate::options::Common;
use crate::outcome::verdict;
use clap::Args;
use megrez::generate::{Choice, Generation, LanguageModel, Sampling};
use megrez::report::Cost;
use megrez::{Backend, Error, Recipe, Result};
use serde_json::json;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Args)]
pub(crate) struct Generate {
    /// The language model, an ONNX file as in examples/language; or, with random weights, gpt2,
    /// gpt2-tiny, llama-tiny or llama-1b.
    #[arg(long)]
    model: PathBuf,
    /// The letter of every token, in order; without, texts are numbers of tokens: "17 4 250".
    #[arg(long = "letters", value_name = "LETTERS")]
    vocabulary: Option<PathBuf>,
    /// The text to continue.
    #[arg(long)]
    prompt: String,
    /// How many tokens to add.
    #[arg(long, default_value_t = 40)]
    tokens: usize,
    /// Who finds the likeliest token: the client, who learns how likely each is, or the parties, on
    /// shares.
    #[arg(long, value_name = "WHO", default_value = "client", value_parser = ["client", "parties"])]
    choose: String,
    /// Do not continue the text in the clear as well.
    #[arg(long)]
    no_clear: bool,
    #[command(flatten)]
    drawing: Drawing,
    #[command(flatten)]
    common: Common,
    #[command(flatten)]
    place: Place,
}

/// How tokens are drawn.
#[derive(Args)]
pub(crate) struct Drawing {
    /// Draw tokens with chances in proportion to e^(logit/TEMPERATURE); 0 takes the likeliest.
    #[arg(long, default_value_t = 0.0)]
    pub(crate) temperature: f64,
    /// Draw from so many of the likeliest tokens only.
    #[arg(long, value_name = "COUNT")]
    pub(crate) top: Option<usize>,
    /// A small language model, as for --model, that this client runs in the clear: it proposes
    /// tokens, and the parties say of several at once how many are right.
    #[arg(long, value_name = "MODEL")]
    pub(crate) draft: Option<PathBuf>,
    /// How many tokens it proposes at a time.
    #[arg(long, value_name = "COUNT", default_value_t = 4, requires = "draft")]
    pub(crate) draft_tokens: usize,
}

impl Drawing {
    pub(crate) fn sampling(&self) -> Result<Sampling> {
        Sampling::new(self.temperature, self.top)
    }

    pub(crate) fn model(&self) -> Result<Option<LanguageModel>> {
        self.draft.as_deref().map(|path| LanguageModel::load(path, None)).transpose()
    }
}

/// How a text is written: in letters, or as numbers.
pub(crate) struct Alphabet(Option<Vec<char>>);

impl Alphabet {
    /// Of these letters, one for each token.
    pub(crate) fn of(letters: &str) -> Self {
        Alphabet(Some(letters.chars().collect()))
    }

    pub(crate) fn load(path: Option<&Path>) -> Result<Self> {
        let read = |path| std::fs::read_to_string(path).map_err(|e| Error::file(path, e));
        Ok(Alphabet(path.map(read).transpose()?.map(|text| text.chars().collect())))
    }

    pub(crate) fn tokens(&self, text: &str) -> Result<Vec<u32>> {
        let Some(letters) = &self.0 else {
            let token = |word: &str| {
                let what =
                    || format!("`{word}` is no number of a token: give --letters for a text of letters");
                word.parse().map_err(|_| Error::Refused(what()))
            };
            return text.split_whitespace().map(token).collect();
        };
        let token = |c: char| {
            let place = letters.iter().position(|&l| l == c).map(|p| p as u32);
            place.ok_or_else(|| Error::Refused(format!("the model does not know the letter `{c}`")))
        };
        text.chars().map(token).collect()
    }

    pub(crate) fn text(&self, tokens: &[u32]) -> String {
        match &self.0 {
            Some(letters) => {
                tokens.iter().map(|&t| letters.get(t as usize).copied().unwrap_or('?')).collect()
            }
            None => tokens.iter().map(u32::to_string).collect::<Vec<_>>().join(" "),
        }
    }

    /// Between two parts of a text.
    pub(crate) fn gap(&self) -> &'static str {
        if self.0.is_some() { "" } else { " " }
    }
}

pub(crate) fn run(args: &Generate, json: bool) -> Result<ExitCode> {
    let alphabet = Alphabet::load(args.vocabulary.as_deref())?;
    let prompt = alphabet.tokens(&args.prompt)?;
    if prompt.is_empty() || args.tokens == 0 {
        return Err(Error::Refused("a prompt has at least one token, and so has its continuation".into()));
    }
    let choice = Choice::named(&args.choose)?;
    let request = &args.common.request;
    request.only_fixed()?;
    let model = LanguageModel::load(&args.model, request.publisher()?.as_ref())?;
    let mut backend = match args.place.connect(Needs::Any)? {
        Some(cluster) => Backend::Remote(cluster),
        None => args.common.backend()?,
    };
    // What is chosen for the prompt holds for every token after it.
    let recipe = request.recipe(&model.graph(0, prompt.len())?, backend.client())?;
    let Recipe::Fixed(options) = recipe else { unreachable!("floating point is refused above") };
    let draft = args.drawing.model()?;
    let mut generation = Generation::new(&model, &mut backend, *options, args.common.run(1))?
        .choosing(choice)
        .sampling(args.drawing.sampling()?);
    if let Some(draft) = &draft {
        generation = generation.drafting(draft, args.drawing.draft_tokens)?;
    }
    if !json {
        print!("{}", args.prompt);
    }
    let mut costs = vec![];
    let text = generation.write(&prompt, args.tokens, &mut |token, cost| {
        if !json {
            print!("{}{}", alphabet.gap(), alphabet.text(&[token]));
            let _ = std::io::stdout().flush();
        }
        costs.push(cost);
        Ok(())
    })?;
    // What came with the token before has no cost of its own.
    let passes: Vec<&Cost> = costs.iter().filter(|cost| !cost.phases.is_empty()).collect();
    // The same tokens are drawn of the same chances.
    let mut plain = prompt;
    for place in 0..if args.no_clear { 0 } else { args.tokens } {
        plain.push(generation.drawing().pick(place, &model.plain(&plain)?));
    }
    let same = (!args.no_clear).then_some(plain == text);
    let range = if generation.proven { "proven" } else { "assumed" };
    let seconds: Vec<f64> = costs.iter().map(Cost::online_seconds).collect();
    if json {
        let (written, clear) = (alphabet.text(&text), same.map(|_| alphabet.text(&plain)));
        println!(
            "{}",
            json!({ "schema": "megrez.generate/1", "text": written, "plain": clear, "same": same,
            "protocol": args.common.protocol(), "insecure": args.common.insecure, "range": range,
            "choose": args.choose, "temperature": args.drawing.temperature, "top": args.drawing.top, "passes": passes.len(), "online_seconds": seconds, "first": passes.first(), "last": passes.last() })
        );
    } else {
        match same {
            Some(true) => println!("\n\nin the clear: the same"),
            Some(false) => println!("\n\nin the clear: {}", alphabet.text(&plain)),
            None => println!("\n"),
        }
        let (first, later) = seconds.split_at(1);
        print!("online: {:.3} s for the prompt", first[0]);
        match later.len() {
            0 => println!(),
            n => println!(", then {:.3} s a token", later.iter().sum::<f64>() / n as f64),
        }
        if draft.is_some() {
            println!("{} tokens in {} runs", costs.len(), passes.len());
        }
        println!("ranges: {range}; the last run cost");
        passes.last().inspect(|cost| print!("{}", cost.table()));
    }
    Ok(verdict(same != Some(false)))
}
