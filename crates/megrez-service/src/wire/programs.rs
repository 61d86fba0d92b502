//! Programs of several clients, as bytes that may come from anywhere.

use super::{MAX_CLIENTS, MAX_ENTRIES, MAX_REFERENCES, Program};
use crate::{Error, ErrorKind, Result};
use megrez_net::PeerName;

/// Largest program in bytes.
pub const MAX_PROGRAM: usize = 16 << 20;

/// Longest name of a run of a program, in bytes.
pub const MAX_RUN_NAME: usize = 64;

/// A program from bytes that may come from anywhere, not yet
/// [checked](megrez_engine::float::Program::check).
///
/// # Errors
/// If it is too large, or none.
pub fn program(bytes: &[u8]) -> Result<Program> {
    if bytes.len() > MAX_PROGRAM {
        return Err(Error::Refused(format!("a program has at most {} MiB", MAX_PROGRAM >> 20)));
    }
    let what = || {
        let what = "this is no program, or one of too many clients, entries, outputs or operands: a program has at most";
        let most =
            format!("{what} {MAX_CLIENTS} clients, {MAX_ENTRIES} entries and {MAX_REFERENCES} operands");
        Error::Of(ErrorKind::Unsupported, most)
    };
    postcard::from_bytes::<Program>(bytes).map_err(|_| what())
}

/// The clients of a program, without the rest of it.
///
/// # Errors
/// If there are none, too many, or they are no names.
pub fn program_clients(bytes: &[u8]) -> Result<Vec<String>> {
    let wrong =
        || Error::Of(ErrorKind::Unsupported, format!("a program begins with 1 to {MAX_CLIENTS} clients"));
    let (count, mut rest) = postcard::take_from_bytes::<u64>(bytes).map_err(|_| wrong())?;
    if !(1..=MAX_CLIENTS as u64).contains(&count) {
        return Err(wrong());
    }
    let mut clients = vec![];
    for _ in 0..count {
        let (client, after) = postcard::take_from_bytes::<&str>(rest).map_err(|_| wrong())?;
        PeerName::client(client)?;
        clients.push(client.to_owned());
        rest = after;
    }
    Ok(clients)
}

/// What clients and parties compare of a program.
#[must_use]
pub fn program_hash(bytes: &[u8]) -> [u8; 32] {
    megrez_engine::hash("megrez 2026 program", bytes)
}

#[cfg(test)]
mod tests {
    use super::super::Opening;
    use super::*;
    use megrez_float::programs::tape::Entry;

    fn valid() -> Program {
        let apply = |op: &str, of: &[u64]| Entry::Apply { op: op.into(), of: of.to_vec() };
        Program {
            clients: vec!["alice".into(), "bob".into()],
            tape: vec![
                Entry::Input { owner: 0, lanes: 3 },
                Entry::Input { owner: 1, lanes: 3 },
                apply("mul", &[0, 1]),
                apply("lt", &[0, 1]),
                Entry::Concat(vec![2, 2]),
            ],
            outputs: vec![Opening { value: 2, to: vec![0, 1] }, Opening { value: 4, to: vec![1] }],
            group: 4,
            threads: 1,
        }
    }

    /// 3 + 3 + 3 + 3 + 6 numbers of the tape, 3 · 2 + 6 opened.
    const NUMBERS: usize = 30;

    #[test]
    fn programs_that_cannot_run_are_refused() {
        let bytes = postcard::to_allocvec(&valid()).unwrap();
        assert_eq!(program(&bytes).unwrap().check(NUMBERS).unwrap().len(), 5);
        let error = valid().check(NUMBERS - 1).unwrap_err();
        assert!(error.contains("more than 29 numbers"), "{error}");
        type Breaks = fn(&mut Program);
        let broken: [(Breaks, &str); 18] = [
            (|p| p.clients[1] = "alice".into(), "different names"),
            (|p| p.clients.clear(), "1 to 16 clients"),
            (|p| p.group = 3, "groups"),
            (|p| p.threads = 0, "threads"),
            (|p| p.threads = 65, "threads"),
            (|p| p.tape[0] = Entry::Input { owner: 2, lanes: 3 }, "entry 0: there is no client 2"),
            (|p| p.tape[0] = Entry::Input { owner: 0, lanes: 0 }, "no numbers"),
            (|p| p.tape[0] = Entry::Input { owner: 0, lanes: usize::MAX }, "more than"),
            (|p| p.tape[2] = Entry::Sum { of: 1, lanes: 0 }, "no blocks"),
            (|p| p.tape[2] = Entry::Not(3), "there is no value 3"),
            (|p| p.tape[4] = Entry::Concat(vec![u64::MAX]), "there is no value"),
            (|p| p.tape[4] = Entry::Gather { of: 0, lanes: vec![3] }, "lane 3 of 3"),
            (|p| p.outputs[0].value = 3, "no numbers 3 to open"),
            (|p| p.outputs[0].value = 9, "no numbers 9 to open"),
            (|p| p.outputs[0].to = vec![2], "for nobody"),
            (|p| p.outputs[0].to.clear(), "for nobody"),
            (|p| p.outputs[0].to = vec![1, 0, 1], "twice"),
            (|p| p.outputs.clear(), "nothing is opened"),
        ];
        for (breaks, why) in broken {
            let mut program = valid();
            breaks(&mut program);
            let error = program.check(NUMBERS).unwrap_err();
            assert!(error.contains(why), "{why}: {error}");
        }
    }

    #[test]
    fn what_a_dealer_sends_is_bounded_from_the_shapes() {
        let lanes = |n: usize| {
            let mut program = valid();
            (0..2).for_each(|i| program.tape[i] = Entry::Input { owner: i, lanes: n });
            program.tape.push(Entry::Sum { of: 2, lanes: 1 });
            program.tape.push(Entry::Choose { bit: 3, yes: 0, no: 1 });
            let shapes = program.check(usize::MAX).unwrap();
            program.dealt(&shapes)
        };
        assert!(lanes(3) > 3 * 100);
        assert_eq!(lanes(3000), 1000 * lanes(3));
        // No memory is taken for lanes.
        assert!(lanes(1 << 50) > 1 << 56);
    }

    #[test]
    fn bytes_that_are_no_program_are_refused_before_they_take_memory() {
        let bytes = postcard::to_allocvec(&valid()).unwrap();
        for end in 0..bytes.len() {
            assert!(program(&bytes[..end]).is_err(), "{end}");
        }
        assert!(program(&vec![0; MAX_PROGRAM + 1]).is_err());
        let mut many = valid();
        many.tape = vec![Entry::Not(0); MAX_ENTRIES + 1];
        assert!(program(&postcard::to_allocvec(&many).unwrap()).is_err());
        let mut crowd = valid();
        crowd.clients = vec![String::new(); MAX_CLIENTS + 1];
        assert!(program(&postcard::to_allocvec(&crowd).unwrap()).is_err());
        let mut wide = valid();
        wide.tape.push(Entry::Concat(vec![0; MAX_REFERENCES]));
        assert!(program(&postcard::to_allocvec(&wide).unwrap()).is_err());
        let mut open = valid();
        open.outputs = vec![Opening { value: 2, to: vec![] }; MAX_ENTRIES + 1];
        assert!(program(&postcard::to_allocvec(&open).unwrap()).is_err());
        assert_eq!(program_clients(&bytes).unwrap(), ["alice", "bob"]);
        assert!(program_clients(&postcard::to_allocvec(&crowd).unwrap()).is_err());
        assert!((0..10).all(|end| program_clients(&bytes[..end]).is_err()));
        let altered = |at: usize| [&bytes[..at], &[bytes[at] ^ 1], &bytes[at + 1..]].concat();
        assert!((0..bytes.len()).all(|at| program_hash(&altered(at)) != program_hash(&bytes)));
    }
}
