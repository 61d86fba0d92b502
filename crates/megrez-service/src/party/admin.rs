//! What an operator's tools ask a party over HTTP, on an address of its own: whether it lives,
//! whether it is ready, what it counts, and the console, a page for people. It takes no commands.

use super::Service;
use super::console::{self, Console};
use crate::{Error, ErrorKind, Result};
use std::sync::Arc;
use tiny_http::{Header, Method, Request, Response, Server};

/// Requests that are answered at the same time.
const THREADS: usize = 2;

/// What an answer holds.
type Answer = (u16, &'static str, String);

const HTML: &str = "text/html; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";
const METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// Serves `/console`, `/livez`, `/readyz`, `/metrics` and `/version` on `address` until the process
/// ends.
///
/// # Errors
/// If the address cannot be listened on.
pub fn serve(service: &Arc<Service>, address: &str) -> Result<std::net::SocketAddr> {
    let cannot = |e: &dyn std::fmt::Display| {
        Error::of(ErrorKind::Invalid, format!("`admin`: cannot listen on {address}: {e}"))
    };
    let server = Arc::new(Server::http(address).map_err(|e| cannot(&e))?);
    let bound = server.server_addr().to_ip().ok_or_else(|| cannot(&"not an address of TCP"))?;
    let console = Arc::new(Console::new());
    for _ in 0..THREADS {
        let (service, server, console) = (Arc::clone(service), Arc::clone(&server), Arc::clone(&console));
        std::thread::Builder::new()
            .name("megrez-admin".into())
            .spawn(move || {
                while let Ok(request) = server.recv() {
                    respond(&service, &console, request);
                }
            })
            .map_err(|e| cannot(&e))?;
    }
    Ok(bound)
}

fn respond(service: &Service, console: &Console, request: Request) {
    let (status, kind, text) = match request.method() {
        Method::Get | Method::Head => match request.url().split('?').next().unwrap_or_default() {
            "/" | "/console" if request.headers().iter().any(is_trusted) => {
                (200, HTML, console.page(service))
            }
            "/" | "/console" => (403, PLAIN, "ask for the console by an IP address or as localhost\n".into()),
            path => answer(service, path),
        },
        _ => (405, PLAIN, "this address is read only\n".into()),
    };
    let mut response = Response::from_string(text).with_status_code(status);
    for (name, value) in std::iter::once(("Content-Type", kind)).chain(console::HEADERS) {
        response.add_header(Header::from_bytes(name, value).expect("a valid header"));
    }
    // Whoever asked may have gone.
    let _ = request.respond(response);
}

fn is_trusted(header: &Header) -> bool {
    header.field.equiv("Host") && console::trusted(header.value.as_str())
}

fn answer(service: &Service, path: &str) -> Answer {
    match path {
        // Whether this process works; never whether others do.
        "/livez" | "/healthz" => (200, PLAIN, "ok\n".into()),
        "/readyz" => {
            let checks = service.checks();
            let ready = checks.iter().all(|(_, problem)| problem.is_none());
            let lines = checks.iter().map(|(name, problem)| match problem {
                None => format!("[+] {name}: ok\n"),
                Some(problem) => format!("[-] {name}: {problem}\n"),
            });
            (if ready { 200 } else { 503 }, PLAIN, lines.collect())
        }
        "/metrics" => (200, METRICS, service.metrics()),
        "/version" => (200, PLAIN, format!("{}\n", env!("CARGO_PKG_VERSION"))),
        _ => (404, PLAIN, "there are /console, /livez, /readyz, /metrics and /version\n".into()),
    }
}
