//! What a party's operator changes while it runs, and what the party looks after by itself.

use super::rights::Rights;
use super::service::Service;
use super::settings::Settings;
use super::upkeep::Upkeep;
use crate::Result;
use crate::heap;
use crate::log::{Event, Level, Log};
use megrez_net::Identity;
use std::sync::{Arc, PoisonError};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

impl Service {
    /// Reads anew what clients may ask for; what is running goes on.
    ///
    /// # Errors
    /// If the file is of no use: the rights stay as they were.
    pub fn read_rights(&self) -> Result<()> {
        let Some(path) = &self.host.policy.rights else { return Ok(()) };
        let read = Rights::load(path)?;
        let mut rights = self.rights.write().unwrap_or_else(PoisonError::into_inner);
        *rights = Arc::new(read.replaces(&rights));
        Ok(())
    }

    /// What is allowed and how much at a time, from now on; what runs goes on.
    pub fn set(&self, settings: Settings) {
        self.host.settings.set(settings);
        self.admission.look_again();
    }

    /// Whether a session runs, or something has been asked and is not answered.
    pub(super) fn working(&self) -> bool {
        self.admission.sessions() > 0 || self.connections.busy() > 0
    }

    /// Who this party is to those who connect from now on, by a certificate that `expires` at that
    /// second since 1970, and whose certificates are revoked: their connections are closed. Says
    /// how many were.
    ///
    /// # Errors
    /// If it is another party.
    pub fn set_identity(&self, identity: Identity, expires: i64) -> Result<usize> {
        self.host.endpoint.set_identity(identity.clone())?;
        self.metrics.expires(expires);
        Ok(self.connections.close_revoked(|certificate| identity.revokes(certificate)))
    }

    /// Looks after what is due, which is mostly nothing.
    pub(super) fn look_after(&self, upkeep: &mut Upkeep, log: &Log, now: Instant) {
        if upkeep.gives_back(self.working(), now) {
            self.host.recent.forget();
            heap::give_back();
        }
        if upkeep.looks_through(now) {
            self.expire(log);
        }
        let Some(expires) = self.metrics.expiry() else { return };
        let since_1970 = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let days = expires.saturating_sub(since_1970 as i64).div_euclid(24 * 3600);
        if upkeep.tells(expires, days, now) {
            let message = format!("this party's certificate has {days} days left: megrez certs --renew");
            log.write(Level::Warn, Event::new("certificate", message));
        }
    }
}
