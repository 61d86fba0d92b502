//! Progress on a terminal, nothing elsewhere.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use megrez::Result;
use std::io::IsTerminal;

/// A bar of so many runs.
pub(crate) fn bar(runs: u32, what: &str) -> ProgressBar {
    let target = if std::io::stderr().is_terminal() && runs > 1 {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let style =
        ProgressStyle::with_template("{msg} {bar:30} {pos}/{len} {elapsed}").expect("a fixed template");
    ProgressBar::with_draw_target(Some(u64::from(runs)), target)
        .with_style(style)
        .with_message(what.to_owned())
}

/// Shows that a run begins.
pub(crate) fn tick(bar: &ProgressBar, run: u32) -> Result<()> {
    bar.set_position(run.into());
    Ok(())
}
