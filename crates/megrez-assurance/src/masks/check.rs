//! Whether all that a party sees of a walk is masked, jointly.
//!
//! A party's view is what it holds (its streams, and a client's keys and values if it is that
//! client) and the messages that it gets. Rows of messages are *peeled*: a row goes if one of its
//! labels, with a unit as coefficient and a label of its own for every element, is unknown to the
//! party and is in no other row that is left, nor in anything on which a rest that is left may
//! depend. Such a row is uniform whatever all others are, so the view is as well distributed
//! without it. A view from which every row has gone is uniform and independent of all secrets: the
//! rows that go last to first are drawn one after the other. The order does not matter, for what
//! may go may go later, too: each term of a row is tried once, and again when what kept it from
//! being the mask has gone.

use super::deps::Deps;
use super::form::{Map, Run, Term};
use super::rests::Rests;
use super::world::{Source, State};
use std::collections::{BTreeMap, BTreeSet, HashMap};

/// Who looks: a party, and a client with whom it may be one.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Observer {
    /// The party.
    pub party: Option<usize>,
    /// The client.
    pub client: Option<String>,
}

impl std::fmt::Display for Observer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.party, &self.client) {
            (Some(party), None) => write!(f, "P{party}"),
            (Some(party), Some(client)) => write!(f, "P{party} who is also `{client}`"),
            (None, client) => write!(f, "`{}`", client.as_deref().unwrap_or("nobody")),
        }
    }
}

/// A message, or a part of one, that an observer sees without a mask.
#[derive(Clone, Debug)]
pub struct Unmasked {
    /// Who sees it.
    pub observer: String,
    /// The message: phase, step and label, sender.
    pub message: String,
    /// Which elements.
    pub elements: std::ops::Range<usize>,
    /// The messages that use its masks too: together they are left without one.
    pub with: Vec<String>,
    /// The labels that it carries and that the observer does not know.
    pub labels: Vec<String>,
}

impl std::fmt::Display for Unmasked {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Unmasked { observer, message, elements, with, labels } = self;
        write!(f, "{observer} sees elements {} to {} of {message} ", elements.start, elements.end)?;
        match labels.is_empty() {
            true => write!(f, "without a mask"),
            false => write!(
                f,
                "under masks that do not hide it ({}), which it also sees in {}",
                labels.join("; "),
                if with.is_empty() { "a value that it depends on".into() } else { with.join("; ") }
            ),
        }
    }
}

/// What a view was made of.
#[derive(Default)]
pub(super) struct Counted {
    /// Runs of elements that were peeled.
    pub rows: usize,
    /// Lists and tables for which a lemma was used, by lemma.
    pub lemmas: BTreeMap<&'static str, usize>,
    pub unmasked: Vec<Unmasked>,
}

/// Among so many rows that keep a term from being a mask the first is looked for.
const FEW: usize = 64;

struct Row<'a> {
    message: usize,
    at: usize,
    run: &'a Run,
    /// Without what the observer knows.
    terms: Vec<&'a Term>,
}

struct View<'a> {
    state: &'a State,
    unknown: Vec<bool>,
    /// The parts of unknown draws.
    hidden: Deps,
    rows: Vec<Option<Row<'a>>>,
    /// Rows by draw and labels, for their terms.
    linear: HashMap<u32, Ranges>,
    /// For each part, the first row whose rest depends on it.
    first: Vec<usize>,
    /// Rows from this one on have been tried.
    tried: usize,
    /// The rests of those that have stayed.
    stayed: Rests,
    /// Terms of rows that are tried again, by what must come first: by row, and by place in it.
    waiting: HashMap<Event, Vec<(usize, usize)>>,
    /// The parts of each draw.
    parts: HashMap<u32, Ranges>,
}

/// What may free the mask of a row.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Event {
    /// A row has been tried for the first time.
    Tried(usize),
    /// A row has gone.
    Gone(usize),
    /// All rows with one rest have gone, by the number of the rest.
    Without(usize),
}

/// Numbers by ranges of labels.
#[derive(Default)]
struct Ranges {
    /// By the logarithm of their lengths and by their starts: so no search walks over what is too
    /// short to reach it.
    by_length: BTreeMap<u32, BTreeMap<u64, Vec<(u64, usize)>>>,
    /// Those that stand for whole draws: few, and they overlap with everything.
    whole: Vec<usize>,
}

impl Ranges {
    fn insert(&mut self, (from, to): (u64, u64), number: usize) {
        if to == u64::MAX {
            self.whole.push(number);
            return;
        }
        let starts = self.by_length.entry(log_length((from, to))).or_default();
        starts.entry(from).or_default().push((to, number));
    }

    fn remove(&mut self, (from, to): (u64, u64), number: usize) {
        if to == u64::MAX {
            self.whole.retain(|n| *n != number);
        } else if let Some(found) =
            self.by_length.get_mut(&log_length((from, to))).and_then(|starts| starts.get_mut(&from))
        {
            found.retain(|(_, n)| *n != number);
        }
    }

    /// The numbers of ranges that overlap with one.
    fn overlapping(&self, (from, to): (u64, u64)) -> impl Iterator<Item = usize> + '_ {
        let near = self
            .by_length
            .iter()
            .flat_map(move |(log, starts)| starts.range(from.saturating_sub((2 << log) - 1)..to));
        let found = near
            .flat_map(move |(_, found)| found.iter().filter(move |(end, _)| *end > from).map(|(_, n)| *n));
        self.whole.iter().copied().chain(found)
    }

    fn all(&self) -> impl Iterator<Item = usize> + '_ {
        let ranged = self.by_length.values().flat_map(|starts| starts.values().flatten());
        self.whole.iter().copied().chain(ranged.map(|(_, n)| *n))
    }
}

fn log_length((from, to): (u64, u64)) -> u32 {
    (to - from).max(1).ilog2()
}

/// Examines what an observer sees.
pub(super) fn view(state: &State, observer: &Observer) -> Counted {
    let mut view = View::new(state, observer);
    let mut counted = Counted { rows: view.rows.iter().flatten().count(), ..Counted::default() };
    let mut before = Deps::default();
    for (at, row) in view.rows.iter().flatten().enumerate() {
        row.run.deps.beyond(&before).into_iter().for_each(|id| view.first[id] = at);
        // Nodes of the row where both are alike: the next row has them, too.
        before = row.run.deps.union(&before);
    }
    // From the last to the first: rests depend on what came before them.
    for at in (0..view.rows.len()).rev() {
        view.tried = at;
        if let Some(row) = &view.rows[at] {
            view.stayed.add(at, &row.run.deps);
        }
        let mut again = view.waiting.remove(&Event::Tried(at)).unwrap_or_default();
        let terms = view.rows[at].as_ref().map(|row| view.candidates(row)).unwrap_or_default();
        again.extend(terms.into_iter().rev().map(|term| (at, term)));
        while let Some((row, term)) = again.pop() {
            view.peel(row, term, &mut again, &mut counted);
        }
    }
    for at in 0..view.rows.len() {
        let Some(row) = &view.rows[at] else { continue };
        let others = row.terms.iter().flat_map(|t| view.linear[&t.draw].all()).filter(|&o| o != at);
        let others: BTreeSet<usize> = others.filter_map(|o| Some(view.rows[o].as_ref()?.message)).collect();
        let labels: BTreeSet<&str> =
            row.terms.iter().map(|t| state.draws[t.draw as usize].name.as_str()).collect();
        let with: BTreeSet<String> = others.into_iter().map(|message| message_name(state, message)).collect();
        counted.unmasked.push(Unmasked {
            observer: observer.to_string(),
            message: message_name(state, row.message),
            elements: row.at..row.at + row.run.len,
            with: with.into_iter().take(4).collect(),
            labels: labels.into_iter().take(4).map(str::to_owned).collect(),
        });
    }
    counted
}

fn overlap(a: (u64, u64), b: (u64, u64)) -> bool {
    a.0 < b.1 && b.0 < a.1
}

fn message_name(state: &State, message: usize) -> String {
    let name = &state.messages[message].name;
    let sender = match name.parties[0] {
        usize::MAX => "its owner".into(),
        party => format!("P{party}"),
    };
    format!("{:?} {}/{} from {sender}", name.phase, name.place, name.label)
}

impl<'a> View<'a> {
    fn new(state: &'a State, observer: &Observer) -> Self {
        let holds = |holders: u8| observer.party.is_some_and(|party| holders >> party & 1 == 1);
        let mut unknown: Vec<bool> = (state.draws.iter())
            .map(|draw| match &draw.source {
                Source::Stream | Source::List(_) | Source::Key(_) => !holds(draw.holders),
                Source::Input(owner) => observer.client.as_ref() != Some(owner),
            })
            .collect();
        // A client knows the keys that mask its own inputs.
        for message in &state.messages {
            for run in message.rows.runs.iter().filter(|_| message.name.parties[0] == usize::MAX) {
                let own = run.deps.beyond(&Deps::default()).into_iter().any(|id| {
                    let draw = &state.draws[state.parts[id].draw as usize];
                    matches!(&draw.source, Source::Input(owner) if observer.client.as_ref() == Some(owner))
                });
                if own {
                    run.terms.iter().for_each(|t| unknown[t.draw as usize] = false);
                }
            }
        }
        let mut parts: HashMap<u32, Ranges> = HashMap::new();
        for (id, part) in state.parts.iter().enumerate() {
            parts.entry(part.draw).or_default().insert(part.range, id);
        }
        let mut view = View {
            state,
            unknown,
            rows: vec![],
            linear: HashMap::new(),
            hidden: Deps::default(),
            first: vec![usize::MAX; state.parts.len()],
            tried: usize::MAX,
            stayed: Rests::default(),
            waiting: HashMap::new(),
            parts,
        };
        let parts = state.parts.iter().enumerate();
        view.hidden = Deps::of(parts.filter(|(_, part)| view.unknown[part.draw as usize]).map(|(id, _)| id));
        // Of the shares of an output one follows from the others and from the output itself.
        let mut given: BTreeSet<(&str, u32, usize)> = BTreeSet::new();
        let mut order: Vec<usize> = (0..state.messages.len()).collect();
        order.sort_by_cached_key(|&message| state.step(message));
        for number in order {
            let message = &state.messages[number];
            let seen = match &message.client {
                Some((client, _)) => observer.client.as_ref() == Some(client),
                None => observer.party == Some(message.name.parties[1]),
            };
            if !seen || message.name.parties[0] == observer.party.unwrap_or(usize::MAX - 1) {
                continue;
            }
            let mut at = 0;
            for run in &message.rows.runs {
                if let Some(row) = view.row(number, at, run) {
                    let free = match &message.client {
                        Some((_, output)) => given.insert((output, message.name.run, at)),
                        None => false,
                    };
                    if !free {
                        view.add(row);
                    }
                }
                at += run.len;
            }
        }
        view
    }

    /// A row without what the observer knows; `None` if that is all.
    fn row(&self, message: usize, at: usize, run: &'a Run) -> Option<Row<'a>> {
        let terms: Vec<&Term> = run.terms.iter().filter(|t| self.unknown[t.draw as usize]).collect();
        (!terms.is_empty() || run.deps.meets(&self.hidden)).then_some(Row { message, at, run, terms })
    }

    /// The draws whose labels mask a list or a key.
    fn made_of(&self, term: &Term) -> &'a [u32] {
        match &self.state.draws[term.draw as usize].source {
            Source::List(draws) => draws,
            Source::Key(roots) => roots,
            Source::Stream | Source::Input(_) => &[],
        }
    }

    fn add(&mut self, row: Row<'a>) {
        let at = self.rows.len();
        for term in &row.terms {
            self.linear.entry(term.draw).or_default().insert(term.range(row.run.len), at);
            // A list is masked by all labels of its draws, a key by all of its roots.
            for draw in self.made_of(term) {
                self.linear.entry(*draw).or_default().insert((0, u64::MAX), at);
            }
        }
        self.rows.push(Some(row));
    }

    /// Removes a row, if it is left, if a term masks it, and says what to try again; else notes
    /// what the term waits for.
    fn peel(&mut self, at: usize, term: usize, again: &mut Vec<(usize, usize)>, counted: &mut Counted) {
        let Some(row) = &self.rows[at] else { return };
        match self.masks(at, row, row.terms[term]) {
            Ok(lemma) => {
                if let Some(lemma) = lemma {
                    *counted.lemmas.entry(lemma).or_default() += 1;
                }
                self.remove(at);
                let rest = self.stayed.remove(at).map(Event::Without);
                for event in rest.into_iter().chain([Event::Gone(at)]) {
                    again.extend(self.waiting.remove(&event).unwrap_or_default());
                }
            }
            Err(Some(event)) => self.waiting.entry(event).or_default().push((at, term)),
            Err(None) => {}
        }
    }

    fn remove(&mut self, at: usize) {
        let Some(row) = self.rows[at].take() else { return };
        for term in row.terms {
            let draws = self.made_of(term).iter().map(|draw| (*draw, (0, u64::MAX)));
            for (draw, range) in draws.chain([(term.draw, term.range(row.run.len))]) {
                if let Some(rows) = self.linear.get_mut(&draw) {
                    rows.remove(range, at);
                }
            }
        }
    }

    /// The terms of a row that may mask it, if nothing else that is left has their labels: with a
    /// unit as coefficient, and no label that stands in another term of the row.
    fn candidates(&self, row: &Row) -> Vec<usize> {
        let range = |i: usize| row.terms[i].range(row.run.len);
        let mut order: Vec<usize> = (0..row.terms.len()).collect();
        order.sort_by_key(|&i| (row.terms[i].draw, range(i)));
        let mut shared = vec![false; row.terms.len()];
        for of_draw in order.chunk_by(|&a, &b| row.terms[a].draw == row.terms[b].draw) {
            let mut end = 0;
            for (i, &term) in of_draw.iter().enumerate() {
                shared[term] = end > range(term).0
                    || of_draw.get(i + 1).is_some_and(|&next| overlap(range(term), range(next)));
                end = end.max(range(term).1);
            }
        }
        let may = |&i: &usize| {
            let term = row.terms[i];
            let unit = term.coeff & 1 == 1;
            match (&self.state.draws[term.draw as usize].source, term.map) {
                (Source::Stream, Map::Each) => unit && !shared[i],
                (Source::List(draws), Map::Each) => {
                    unit && draws.iter().all(|&draw| self.unknown[draw as usize])
                }
                (Source::Key(roots), Map::Each) => {
                    unit && !shared[i] && roots.iter().any(|&root| self.unknown[root as usize])
                }
                (Source::Stream, Map::Pick(_)) => true,
                (_, Map::Group(_) | Map::Some | Map::Pick(_)) | (Source::Input(_), _) => false,
            }
        };
        (0..row.terms.len()).filter(may).collect()
    }

    /// What keeps labels of a range of a draw from being a mask: a row that is left other than
    /// `except`, or what some rest depends on.
    fn used(&self, draw: u32, range: (u64, u64), except: usize) -> Result<(), Option<Event>> {
        self.used_but(draw, range, |row| row == except)
    }

    /// As [`View::used`] with several rows excepted.
    fn used_but(
        &self,
        draw: u32,
        range: (u64, u64),
        except: impl Fn(usize) -> bool,
    ) -> Result<(), Option<Event>> {
        let rests = self.parts.get(&draw).into_iter().flat_map(|parts| parts.overlapping(range));
        let rests = rests.filter_map(|id| match self.first[id] {
            usize::MAX => None,
            first if first < self.tried => Some((first, Event::Tried(first))),
            first => {
                let rest = self.stayed.of_row.get(&first).copied().or_else(|| self.stayed.holder(id));
                rest.map(|rest| (first, Event::Without(rest)))
            }
        });
        let rows = self.linear.get(&draw).into_iter().flat_map(|rows| rows.overlapping(range));
        // Rows go from the last to the first, for the most part: a term had better wait for the
        // first.
        let row = rows.filter(|row| !except(*row)).take(FEW).min().map(Event::Gone);
        match row.or_else(|| rests.min_by_key(|(first, _)| *first).map(|(_, event)| event)) {
            Some(event) => Err(Some(event)),
            None => Ok(()),
        }
    }

    /// Whether a [candidate](Self::candidates) masks the whole row: with the lemma that says so, if
    /// one is needed. Else what must come before it can.
    fn masks(&self, at: usize, row: &Row, term: &Term) -> Result<Option<&'static str>, Option<Event>> {
        match (&self.state.draws[term.draw as usize].source, term.map) {
            (_, Map::Pick(group)) => self.table(at, term, group),
            (Source::List(draws), _) => {
                let mut all = draws.iter().chain([&term.draw]);
                all.try_for_each(|&draw| self.used(draw, (0, u64::MAX), at))?;
                Ok(Some("L: two masked lists"))
            }
            (Source::Key(roots), _) => {
                self.used(term.draw, term.range(row.run.len), at)?;
                // Other words of the key are made of the same root; that they are uniform beside
                // each other is the lemma.
                let alone = |&root: &u32| {
                    let of_key = |row: usize| {
                        self.rows[row].as_ref().is_some_and(|row| {
                            row.terms.iter().any(|t| t.draw == term.draw)
                                && row.terms.iter().all(|t| t.draw != root)
                        })
                    };
                    self.used_but(root, (0, u64::MAX), of_key)
                };
                let unknown = roots.iter().filter(|root| self.unknown[**root as usize]);
                let alone = unknown.map(alone).reduce(Result::or).unwrap_or(Err(None));
                alone.map(|()| Some("K: a key of a function"))
            }
            _ => self.used(term.draw, term.range(row.run.len), at).map(|()| None),
        }
    }

    /// An entry of a dealt table at a secret place, beside the other share of that table: their sum
    /// is the table's entry, which the dealer's bit masks, the same in every entry.
    fn table(&self, at: usize, pick: &Term, group: u32) -> Result<Option<&'static str>, Option<Event>> {
        let rows =
            self.linear.get(&pick.draw).into_iter().flat_map(|rows| rows.all().filter(|&row| row != at));
        let rows: Vec<usize> = rows.filter(|&row| self.rows[row].is_some()).take(2).collect();
        let &[number] = rows.as_slice() else {
            return Err(rows.first().copied().map(Event::Gone));
        };
        let Some(table) = &self.rows[number] else { return Err(None) };
        let dealt = |t: &&&Term| t.draw == pick.draw && t.map == Map::Each && t.start == pick.start;
        let bit = |t: &&&Term| t.map == Map::Group(group) && t.coeff & 1 == 1;
        match (table.terms.iter().find(dealt), table.terms.iter().find(bit)) {
            (Some(_), Some(bit)) => {
                self.used(bit.draw, bit.range(table.run.len), number).map(|()| Some("T: a table's entry"))
            }
            _ => Err(None),
        }
    }
}
