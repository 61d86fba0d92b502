//! How a command ends.

use serde_json::Value;
use std::process::ExitCode;

/// Success, or the failure of something whose result is wrong.
pub(crate) fn verdict(right: bool) -> ExitCode {
    if right { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Prints a measurement, and says whether its results are right.
pub(crate) fn reported(report: &Value) -> ExitCode {
    println!("{report}");
    verdict(report["verified"] == true)
}
