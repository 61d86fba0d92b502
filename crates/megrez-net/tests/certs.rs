//! Certificates on disk.

use std::fs;
use std::path::PathBuf;

use megrez_net::{Identity, NetError, PeerName, certs};

/// A fresh folder, removed on drop.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("megrez-certs-{}-{name}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn request() -> certs::Request {
    certs::Request {
        parties: 3,
        clients: vec!["alice".into(), "bob".into()],
        hosts: vec![vec!["a.example.org".into(), "192.0.2.7".into()]],
        days: 30,
    }
}

fn client(name: &str) -> PeerName {
    PeerName::client(name).unwrap()
}

#[test]
fn generates_loads_and_inspects() {
    let folder = Folder::new("good");
    let files = certs::generate(&folder.0, &request()).unwrap();
    let names: Vec<_> = files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(
        names,
        [
            "ca.pem",
            "ca.key",
            "party0.pem",
            "party0.key",
            "party1.pem",
            "party1.key",
            "party2.pem",
            "party2.key",
            "alice.pem",
            "alice.key",
            "bob.pem",
            "bob.key"
        ]
    );
    for name in [PeerName::Party(0), PeerName::Party(2), client("alice")] {
        let report = certs::inspect(&folder.0, &name).unwrap();
        assert_eq!(report.problems, Vec::<String>::new());
        assert!(report.subject.contains(&name.to_string()), "{}", report.subject);
        assert!(report.days_left == 29 || report.days_left == 30, "{}", report.days_left);
        assert_eq!(report.not_after - report.not_before, 31 * 86_400);
        let identity = Identity::load(&folder.0, &name).unwrap();
        assert_eq!(identity.name(), &name);
        assert_eq!(format!("{identity:?}"), format!("Identity({name})"), "no key in it");
    }
}

#[cfg(unix)]
#[test]
fn keys_belong_to_their_owner() {
    use std::os::unix::fs::PermissionsExt;
    let folder = Folder::new("modes");
    for path in certs::generate(&folder.0, &request()).unwrap() {
        let mode = fs::metadata(&path).unwrap().permissions().mode() & 0o777;
        if path.extension().unwrap() == "key" {
            assert_eq!(mode, 0o600, "{}", path.display());
        }
    }
    let key = folder.0.join("party0.key");
    fs::set_permissions(&key, fs::Permissions::from_mode(0o644)).unwrap();
    let report = certs::inspect(&folder.0, &PeerName::Party(0)).unwrap();
    assert!(report.problems[0].contains("chmod 600"), "{:?}", report.problems);
}

#[test]
fn nothing_is_overwritten() {
    let folder = Folder::new("overwrite");
    fs::create_dir_all(&folder.0).unwrap();
    fs::write(folder.0.join("bob.key"), "precious").unwrap();
    assert!(
        matches!(certs::generate(&folder.0, &request()), Err(NetError::Config(text)) if text.contains("bob.key"))
    );
    assert_eq!(fs::read_to_string(folder.0.join("bob.key")).unwrap(), "precious");
    assert_eq!(fs::read_dir(&folder.0).unwrap().count(), 1, "nothing else was written");
}

#[test]
fn more_clients_can_be_added() {
    let folder = Folder::new("add");
    certs::generate(&folder.0, &request()).unwrap();
    certs::add_client(&folder.0, "carol", 10).unwrap();
    assert_eq!(certs::inspect(&folder.0, &client("carol")).unwrap().problems, Vec::<String>::new());
    assert!(certs::add_client(&folder.0, "carol", 10).is_err(), "she is there already");
    assert!(certs::add_client(&folder.0, "Carol", 10).is_err());
}

#[test]
fn mixed_up_files_are_noticed() {
    let (ours, theirs) = (Folder::new("ours"), Folder::new("theirs"));
    certs::generate(&ours.0, &request()).unwrap();
    certs::generate(&theirs.0, &request()).unwrap();
    let problems = |name: &PeerName| certs::inspect(&ours.0, name).unwrap().problems;
    // Another deployment's certificate and key.
    for end in ["pem", "key"] {
        fs::copy(theirs.0.join(format!("party0.{end}")), ours.0.join(format!("party0.{end}"))).unwrap();
    }
    assert!(problems(&PeerName::Party(0))[0].contains("certificate"), "{:?}", problems(&PeerName::Party(0)));
    // Somebody else's key.
    fs::copy(ours.0.join("party2.key"), ours.0.join("party1.key")).unwrap();
    assert!(problems(&PeerName::Party(1))[0].contains("private key"), "{:?}", problems(&PeerName::Party(1)));
    // Somebody else's certificate and key.
    for end in ["pem", "key"] {
        fs::copy(ours.0.join(format!("bob.{end}")), ours.0.join(format!("alice.{end}"))).unwrap();
    }
    assert!(problems(&client("alice"))[0].contains("belongs to client:bob"));
    assert!(matches!(Identity::load(&ours.0, &client("alice")), Err(NetError::Config(_))));
    fs::write(ours.0.join("bob.pem"), "no certificate").unwrap();
    assert!(certs::inspect(&ours.0, &client("bob")).is_err());
    assert!(
        matches!(certs::inspect(&ours.0, &client("nobody")), Err(NetError::Io(text)) if text.contains("nobody.pem"))
    );
}

#[test]
fn requests_are_checked() {
    let bad = [
        certs::Request { parties: 0, ..request() },
        certs::Request { parties: 65, ..request() },
        certs::Request { days: 0, ..request() },
        certs::Request { days: 4000, ..request() },
        certs::Request { clients: vec!["a".into(), "a".into()], ..request() },
        certs::Request { clients: vec!["party1".into()], ..request() },
        certs::Request { clients: vec!["../x".into()], ..request() },
        certs::Request { hosts: vec![vec!["party1.megrez".into()]], ..request() },
    ];
    for request in bad {
        assert!(matches!(certs::issue(&request), Err(NetError::Config(_))), "{request:?}");
    }
}
