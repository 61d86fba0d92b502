//! Private training: a model's step as a plan that runs again and again on shares that stay with
//! the parties.
//!
//! [`differentiate`] makes the step of a model, [`Boosting`] that of trees; [`rehearse`] finds in
//! the clear how large its numbers get; [`compile`] makes a plan of it; [`Training`] shares the
//! weights once, runs epochs, and reveals the weights at the end. No protocol is in here.
//!
//! What is opened: the mean loss of each epoch, and the weights when they are asked for, both to
//! the client; of a job what it declares, such as how many rows of a validation set are right, and
//! to the parties whether its numbers have kept to bounds. Nothing else is: no logit, no gradient,
//! no loss of a batch.

mod boosting;
mod data;
mod indicators;
mod job;
mod looks;
mod predict;
mod privacy;
mod rehearsal;
mod session;
mod stored;

pub use boosting::{Grows, imagine_trees, rehearse_trees, tree_options};
pub use data::{Course, Learning, Network, Rows, accuracy, with_weights};
pub use indicators::{MAX_BINS, Thresholds};
pub use job::{History, Proposal, Wanted, fresh, history, propose, wait};
pub use looks::validation_batch;
pub use megrez_graph::boosting::{Boosting, Objective};
pub use megrez_graph::differentiate::{
    BACKWARD, Loss, Optimiser, Privacy, Rate, Squares, State, Step, Trained, differentiate,
    differentiate_in_shards, differentiate_privately,
};
pub use megrez_service::client::Standing;
pub use megrez_service::training::{
    Bound, Consent, Job, JobId, Keep, Opening, RowSet, Shards, Stage, Stands, Validation, ids,
};
pub use predict::{Asked, PREDICTED, Predicts, propose_predictions};
pub use privacy::{Budget, OfJob, epsilon, guaranteed, of_job, rho};
pub use rehearsal::{Clear, MARGIN, Rehearsal, rehearse, room};
pub use session::{Epoch, Training, compile};
pub use stored::{Form, NewRows, ROWS, StoredRows, describe_rows, upload_rows};
