//! What a TLS error means for whoever reads it.

use crate::error::NetError;
use rustls::{AlertDescription, Error as TlsError};

/// Says who is to blame and what to do.
pub(super) fn tls_error(peer: &str, error: &TlsError) -> NetError {
    match error {
        TlsError::AlertReceived(AlertDescription::CloseNotify) => NetError::Closed(peer.to_owned()),
        // These say nothing about certificates.
        TlsError::AlertReceived(
            alert @ (AlertDescription::BadRecordMac
            | AlertDescription::DecodeError
            | AlertDescription::RecordOverflow
            | AlertDescription::UnexpectedMessage),
        ) => NetError::Garbage(format!(
            "{peer} could not read what this side sent ({alert:?}): it was damaged on the way, or that is no megrez port"
        )),
        TlsError::AlertReceived(alert) => NetError::Identity(format!(
            "{peer} refused this side's certificate or TLS settings ({alert:?}); check that both sides use the \
             certificates of the same deployment"
        )),
        TlsError::InvalidCertificate(reason) => NetError::Identity(format!(
            "the certificate of {peer} is not acceptable ({reason}); check that both sides use the certificates of \
             the same deployment and that the address belongs to that party"
        )),
        TlsError::NoCertificatesPresented => {
            NetError::Identity(format!("{peer} sent no certificate; all sides of a deployment need one"))
        }
        TlsError::InvalidMessage(_) | TlsError::DecryptError => {
            NetError::Garbage(format!("{peer} sent bytes that are no TLS ({error}); is this a megrez port?"))
        }
        _ => NetError::Identity(format!("TLS with {peer} failed: {error}")),
    }
}
