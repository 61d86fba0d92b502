//! A client's part in a program that it runs with other clients.

use super::Cluster;
use super::lines::unexpected;
use crate::wire::{self, Join, Reply, Request};
use crate::{Error, ErrorKind, Result};
use megrez_engine::PartyReport;
use megrez_engine::client::PartyPort;
use megrez_engine::float::{Program, collect_program, provide_program};
use std::collections::HashMap;
use std::time::Duration;

/// A run of a program, as all its clients know it.
#[derive(Clone, Copy, Debug)]
pub struct Joint<'a> {
    /// The protocol's name.
    pub protocol: &'a str,
    /// What the clients call this run.
    pub name: &'a str,
    /// The program: the same at every client, bit for bit.
    pub program: &'a Program,
    /// How long to wait for the other clients and until the program begins; parties wait no longer
    /// than for a turn.
    pub patience: Duration,
}

impl Cluster {
    /// Takes part in a program: gives the numbers of this client's inputs, by their places on the
    /// tape, once the parties agree that all its clients have brought the same program. Gives what
    /// this client learns, in the program's order, and what every party measured.
    ///
    /// # Errors
    /// If the clients' programs differ or not all come in time; if a party refuses or fails.
    pub fn join(
        &mut self,
        joint: Joint<'_>,
        numbers: &HashMap<usize, Vec<f32>>,
    ) -> Result<(Vec<Vec<f32>>, Vec<PartyReport>)> {
        let Joint { protocol, name, program, patience } = joint;
        let shapes = program.check(usize::MAX).map_err(|e| Error::of(ErrorKind::Unsupported, e))?;
        let me = program.clients.iter().position(|client| client == self.name());
        let me = me.ok_or_else(|| {
            Error::Refused(format!("`{}` takes no part in this program: nothing is asked of it", self.name()))
        })?;
        let bytes = postcard::to_allocvec(program).map_err(|e| Error::of(ErrorKind::Internal, e))?;
        wire::program(&bytes)?;
        self.repeated(true, |cluster| {
            cluster.ask(&Request::Join(Join {
                session: wire::fresh_name()?,
                protocol: protocol.into(),
                name: name.into(),
                program: bytes.clone(),
                seconds: u32::try_from(patience.as_secs()).unwrap_or(u32::MAX),
            }))?;
            cluster.each(|party, reply| match reply {
                Reply::Begun => Ok(()),
                other => Err(unexpected(party, &other)),
            })?;
            let opened = {
                let mut ports = cluster.ports();
                let mut ports: Vec<&mut dyn PartyPort> =
                    ports.iter_mut().map(|p| p as &mut dyn PartyPort).collect();
                provide_program(program, me, numbers, &mut ports)?;
                collect_program(program, &shapes, me, &mut ports)?
            };
            let reports = cluster.reports(1)?;
            Ok((opened, reports.into_iter().flatten().collect()))
        })
    }
}
