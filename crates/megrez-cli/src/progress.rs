//! Progress of what takes long: a bar on a terminal, a line every ten seconds elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use megrez::Result;
use std::io::IsTerminal;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

/// How often a line is written where there is no terminal.
const EVERY: Duration = Duration::from_secs(10);

/// Shows how far something is until it is dropped.
pub(crate) struct Progress {
    bar: ProgressBar,
    /// Its end ends the lines.
    _lines: Option<Sender<()>>,
}

/// A progress of so many runs.
pub(crate) fn bar(runs: u32, what: &str) -> Progress {
    let terminal = std::io::stderr().is_terminal();
    let target = if terminal { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let template = match runs {
        0 | 1 => "{spinner} {msg} {elapsed}",
        _ => "{msg} {bar:30} {pos}/{len} {elapsed}, {eta} left",
    };
    let style = ProgressStyle::with_template(template).expect("a fixed template");
    let bar = ProgressBar::with_draw_target(Some(u64::from(runs)), target)
        .with_style(style)
        .with_message(what.to_owned());
    if terminal {
        bar.enable_steady_tick(Duration::from_millis(200));
        return Progress { bar, _lines: None };
    }
    let (end, ended) = channel();
    let (theirs, what) = (bar.clone(), what.to_owned());
    // Without a thread there are no lines.
    let started =
        std::thread::Builder::new().name("progress".into()).spawn(move || lines(&theirs, &what, &ended));
    Progress { bar, _lines: started.ok().map(|_| end) }
}

/// Writes lines until the other end is dropped.
fn lines(bar: &ProgressBar, what: &str, ended: &Receiver<()>) {
    while let Err(RecvTimeoutError::Timeout) = ended.recv_timeout(EVERY) {
        let (done, of, seconds) = (bar.position(), bar.length().unwrap_or(0), bar.elapsed().as_secs());
        match done {
            0 => eprintln!("{what}: {seconds} s"),
            _ => eprintln!("{what}: {done} of {of}, {seconds} s, about {} s left", bar.eta().as_secs()),
        }
    }
}

/// Shows that a run begins.
pub(crate) fn tick(progress: &Progress, run: u32) -> Result<()> {
    progress.bar.set_position(run.into());
    Ok(())
}

impl Drop for Progress {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
