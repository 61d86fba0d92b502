//! The library's errors as Python's: one class for each kind.

use megrez::ErrorKind;
use pyo3::exceptions::PyRuntimeError;
use pyo3::prelude::*;

pyo3::create_exception!(megrez, Error, PyRuntimeError, "What went wrong, and what to do about it.");
pyo3::create_exception!(
    megrez,
    InvalidError,
    Error,
    "The request makes no sense as it was asked: an option, a name, a shape, a missing file."
);
pyo3::create_exception!(
    megrez,
    NotPermittedError,
    Error,
    "What was asked for is not permitted: no right to a model, a protocol that does not protect, a wrong certificate."
);
pyo3::create_exception!(
    megrez,
    UnsupportedError,
    Error,
    "megrez, or this release, protocol or device, cannot do what was asked for."
);
pyo3::create_exception!(
    megrez,
    OutOfRangeError,
    Error,
    "Numbers outside of what was declared, or a range that does not fit the ring."
);
pyo3::create_exception!(megrez, DamagedFileError, Error, "A file or a stored value is not what was written.");
pyo3::create_exception!(megrez, TimedOutError, Error, "A party is alive but did not answer in time.");
pyo3::create_exception!(
    megrez,
    PeerLostError,
    Error,
    "A party or a connection went away, or another party gave up."
);
pyo3::create_exception!(
    megrez,
    InternalError,
    Error,
    "Parties that disagree, a device that failed: nothing that the caller did."
);
pyo3::create_exception!(
    megrez,
    BusyError,
    Error,
    "The parties have too much to do, or are about to end: try again later."
);

/// An error of the library as Python's, of the class of its kind.
pub(crate) fn error(e: megrez::Error) -> PyErr {
    let text = e.to_string();
    match e.kind() {
        ErrorKind::Invalid => InvalidError::new_err(text),
        ErrorKind::NotPermitted => NotPermittedError::new_err(text),
        ErrorKind::Unsupported => UnsupportedError::new_err(text),
        ErrorKind::OutOfRange => OutOfRangeError::new_err(text),
        ErrorKind::DamagedFile => DamagedFileError::new_err(text),
        ErrorKind::TimedOut => TimedOutError::new_err(text),
        ErrorKind::PeerLost => PeerLostError::new_err(text),
        ErrorKind::Internal => InternalError::new_err(text),
        ErrorKind::Busy => BusyError::new_err(text),
        _ => Error::new_err(text),
    }
}

/// What makes no sense, in its own words.
pub(crate) fn refused(e: impl std::fmt::Display) -> PyErr {
    InvalidError::new_err(e.to_string())
}
