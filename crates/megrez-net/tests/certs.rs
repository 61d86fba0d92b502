//! Certificates on disk.

use std::fs;
use std::path::PathBuf;
use std::time::Duration;

use megrez_net::{Config, Endpoint, Identity, Limits, NetError, PeerName, certs, dial};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject;

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
        authority_days: 60,
        only: vec![],
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

/// Whether two identities accept each other, each of its own files.
fn accept(party: &Identity, client: &Identity) -> Result<(), NetError> {
    let config = Config {
        me: 0,
        listen: "127.0.0.1:0".into(),
        peers: vec![String::new(); 3],
        identity: party.clone(),
        limits: Limits::default(),
    };
    let endpoint = Endpoint::bind(config).unwrap();
    let address = endpoint.local_addr().to_string();
    let mut channel = dial(&address, client, &PeerName::Party(0), Duration::from_secs(20))?;
    // Who is refused may hear of it only when it reads.
    channel.send(b"hello")?;
    let (_, mut served) = endpoint
        .accept_client_within(Duration::from_secs(5))?
        .ok_or_else(|| NetError::Identity("refused".into()))?;
    served.send(b"welcome")?;
    channel.recv(100).map(drop)
}

#[test]
fn certificates_are_renewed_with_their_hosts() {
    let folder = Folder::new("renewed");
    certs::generate(&folder.0, &request()).unwrap();
    let zero = PeerName::Party(0);
    let (old, key) =
        (Identity::load(&folder.0, &zero).unwrap(), fs::read(folder.0.join("party0.key")).unwrap());
    let files = certs::renew(&folder.0, &zero, 50).unwrap();
    assert_eq!(files, ["party0.key", "party0.pem"].map(|name| folder.0.join(name)));
    assert_ne!(fs::read(folder.0.join("party0.key")).unwrap(), key);
    let report = certs::inspect(&folder.0, &zero).unwrap();
    assert!(report.problems.is_empty() && report.days_left >= 49, "{report:?}");
    let pem = fs::read_to_string(folder.0.join("party0.pem")).unwrap();
    let der = CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    for host in [&b"a.example.org"[..], &[192, 0, 2, 7]] {
        assert!(der.windows(host.len()).any(|bytes| bytes == host), "{host:?} is gone");
    }
    // Both are good: nobody needs to change at the same time as anybody else.
    let alice = Identity::load(&folder.0, &client("alice")).unwrap();
    accept(&old, &alice).unwrap();
    accept(&Identity::load(&folder.0, &zero).unwrap(), &alice).unwrap();
    assert!(certs::renew(&folder.0, &client("nobody"), 50).is_err());
    let leftovers = fs::read_dir(&folder.0)
        .unwrap()
        .filter(|f| f.as_ref().unwrap().file_name().to_string_lossy().starts_with('.'));
    assert_eq!(leftovers.count(), 0);
}

#[test]
fn revoked_certificates_are_refused_on_both_sides() {
    let folder = Folder::new("revoked");
    certs::generate(&folder.0, &request()).unwrap();
    let load = |name: &PeerName| Identity::load(&folder.0, name);
    let (zero, alice, bob) = (PeerName::Party(0), client("alice"), client("bob"));
    let before = [load(&zero).unwrap(), load(&alice).unwrap(), load(&bob).unwrap()];
    certs::revoke(&folder.0, &alice).unwrap();
    let party = load(&zero).unwrap();
    accept(&before[0], &before[1]).expect("a party without the list knows of nothing");
    let refused = accept(&party, &before[1]).unwrap_err();
    assert!(matches!(refused, NetError::Identity(_) | NetError::Closed(_)), "{refused}");
    accept(&party, &before[2]).expect("others are as before");
    assert!(certs::inspect(&folder.0, &alice).unwrap().problems[0].contains("is revoked by crl.pem"));
    // Alice with a new certificate, and another name on the same list.
    certs::renew(&folder.0, &alice, 9).unwrap();
    certs::revoke(&folder.0, &bob).unwrap();
    let party = load(&zero).unwrap();
    accept(&party, &load(&alice).unwrap()).unwrap();
    assert!(accept(&party, &before[1]).is_err() && accept(&party, &before[2]).is_err());
    // A client with the list refuses a party of a revoked certificate.
    certs::revoke(&folder.0, &zero).unwrap();
    assert!(accept(&before[0], &load(&alice).unwrap()).is_err());
    let list = fs::read_to_string(folder.0.join("crl.pem")).unwrap();
    for damaged in
        ["-----BEGIN X509 CRL-----\nAAAA\n-----END X509 CRL-----\n", "nothing", &list[..list.len() / 2]]
    {
        fs::write(folder.0.join("crl.pem"), damaged).unwrap();
        assert!(matches!(load(&zero), Err(NetError::Config(text)) if text.contains("list")), "{damaged}");
    }
}

#[test]
fn an_authority_follows_another_without_a_gap() {
    let folder = Folder::new("authority");
    certs::generate(&folder.0, &request()).unwrap();
    assert!(certs::retire_authority(&folder.0).is_err(), "there is one only");
    let load = |name: &PeerName| Identity::load(&folder.0, name).unwrap();
    let (zero, alice, bob) = (PeerName::Party(0), client("alice"), client("bob"));
    certs::revoke(&folder.0, &bob).unwrap();
    certs::renew_authority(&folder.0, 90).unwrap();
    // Both sides hold old certificates and trust two authorities; then one is new; then both.
    let old = load(&alice);
    accept(&load(&zero), &old).unwrap();
    certs::renew(&folder.0, &zero, 30).unwrap();
    accept(&load(&zero), &old).unwrap();
    certs::renew(&folder.0, &alice, 30).unwrap();
    accept(&load(&zero), &load(&alice)).unwrap();
    // What the first authority has revoked stays revoked, and it alone could revoke its own.
    assert!(certs::inspect(&folder.0, &bob).unwrap().problems[0].contains("is revoked by crl.pem"));
    assert!(matches!(certs::revoke(&folder.0, &PeerName::Party(1)), Err(NetError::Config(_))));
    certs::revoke(&folder.0, &alice).unwrap();
    assert!(certs::inspect(&folder.0, &bob).unwrap().problems[0].contains("is revoked by crl.pem"));
    certs::renew(&folder.0, &alice, 30).unwrap();
    certs::retire_authority(&folder.0).unwrap();
    accept(&load(&zero), &load(&alice)).unwrap();
    assert!(accept(&load(&zero), &old).is_err(), "of an authority that nobody trusts any more");
    assert!(Identity::load(&folder.0, &PeerName::Party(1)).is_err());
}

/// Three organisations, each with an authority of its own for a party and some clients, and the
/// folder of each member, who trusts all three for their own.
fn organisations(name: &str) -> (Vec<Folder>, Folder) {
    let own = |i: usize, client: &str| {
        let folder = Folder::new(&format!("{name}-{i}"));
        let only = vec![PeerName::Party(i), PeerName::client(client).unwrap()];
        certs::generate(&folder.0, &certs::Request { only, ..request() }).unwrap();
        folder
    };
    let own: Vec<Folder> =
        ["alice", "bob", "carol"].iter().enumerate().map(|(i, client)| own(i, client)).collect();
    let all = Folder::new(name);
    fs::create_dir_all(&all.0).unwrap();
    for (i, folder) in own.iter().enumerate() {
        fs::copy(folder.0.join("ca.pem"), all.0.join(format!("authority{i}.pem"))).unwrap();
        for entry in fs::read_dir(&folder.0).unwrap() {
            let path = entry.unwrap().path();
            let file = path.file_name().unwrap();
            if !file.to_str().unwrap().starts_with("ca.") {
                fs::copy(&path, all.0.join(file)).unwrap();
            }
        }
    }
    let list = "\"authority0.pem\" = [\"party0\", \"alice\"]\n\
                \"authority1.pem\" = [\"party1\", \"bob\", \"bank-*\"]\n\
                \"authority2.pem\" = [\"party2\", \"carol\"]\n";
    fs::write(all.0.join("authorities.toml"), list).unwrap();
    (own, all)
}

#[test]
fn authorities_vouch_for_their_own_alone() {
    let (own, all) = organisations("own");
    assert_eq!(fs::read_dir(&own[1].0).unwrap().count(), 6, "nobody else's certificate or key");
    let load = |name: &PeerName| Identity::load(&all.0, name);
    let (zero, alice, bob) = (PeerName::Party(0), client("alice"), client("bob"));
    for name in [&zero, &alice, &bob] {
        assert_eq!(certs::inspect(&all.0, name).unwrap().problems, Vec::<String>::new());
    }
    let party = load(&zero).unwrap();
    accept(&party, &load(&alice).unwrap()).unwrap();
    accept(&party, &load(&bob).unwrap()).unwrap();
    // The second organisation makes another client and another party of its own accord.
    let forged = Folder::new("own-forged");
    certs::generate(
        &forged.0,
        &certs::Request { only: vec![zero.clone(), alice.clone(), client("bank-7")], ..request() },
    )
    .unwrap();
    fs::copy(forged.0.join("ca.pem"), all.0.join("authority1.pem")).unwrap();
    // As it sees itself: it vouches for everybody.
    let forger = |name: &PeerName| Identity::load(&forged.0, name).unwrap();
    let party = load(&zero).unwrap();
    for name in [&alice, &zero] {
        let refused = accept(&party, &forger(name)).unwrap_err();
        assert!(matches!(refused, NetError::Identity(_) | NetError::Closed(_)), "{name}: {refused}");
    }
    // A forged party is refused by a client as well, whatever it accepts itself.
    let refused = accept(&forger(&zero), &load(&alice).unwrap()).unwrap_err();
    assert!(matches!(refused, NetError::Identity(_)), "{refused}");
    // For those of the pattern it does vouch.
    for file in ["bank-7.pem", "bank-7.key"] {
        fs::copy(forged.0.join(file), all.0.join(file)).unwrap();
    }
    accept(&party, &load(&client("bank-7")).unwrap()).unwrap();
    // And whoever is not in the list is nobody, to itself as well.
    assert!(matches!(load(&bob), Err(NetError::Config(text)) if text.contains("UnknownIssuer")));
}

#[test]
fn lists_of_authorities_are_checked() {
    let (_own, all) = organisations("lists");
    let error = |list: &str| {
        fs::write(all.0.join("authorities.toml"), list).unwrap();
        Identity::load(&all.0, &client("alice")).unwrap_err().to_string()
    };
    for (list, what) in [
        ("", "names no authority"),
        ("\"authority0.pem\" = \"alice\"", "authorities.toml"),
        ("\"authority0.pem\" = [\"a*b*\"]", "a*b*"),
        ("\"authority0.pem\" = [\"alice\"]\n\"authority1.pem\" = [\"alice\"]", "more than one"),
        ("\"nothing.pem\" = [\"alice\"]", "nothing.pem"),
        ("\"alice.key\" = [\"alice\"]", "authority's certificate"),
        ("\"authority1.pem\" = [\"alice\"]", "UnknownIssuer"),
        ("\"authority0.pem\" = [\"party0\"]", "UnknownIssuer"),
    ] {
        let error = error(list);
        assert!(error.contains(what), "{list}: {error}");
    }
}

#[test]
fn signatures_are_of_one_message_for_one_purpose() {
    let (ours, theirs) = (Folder::new("signs"), Folder::new("signs-theirs"));
    certs::generate(&ours.0, &request()).unwrap();
    certs::generate(&theirs.0, &request()).unwrap();
    let [zero, alice] =
        [PeerName::Party(0), client("alice")].map(|name| Identity::load(&ours.0, &name).unwrap());
    let signature = alice.sign("approval", b"yes").unwrap();
    assert_eq!(zero.signer("approval", b"yes", &signature).unwrap(), client("alice"));
    for (purpose, message) in
        [("approval", &b"yes!"[..]), ("approva", b"lyes"), ("refusal", b"yes"), ("approval", b"")]
    {
        assert!(matches!(zero.signer(purpose, message, &signature), Err(NetError::Identity(_))), "{purpose}");
    }
    // Every bit of it matters: of its certificates, too.
    for at in (0..signature.len()).step_by(7) {
        let mut damaged = signature.clone();
        damaged[at] ^= 1 << (at % 8);
        assert!(zero.signer("approval", b"yes", &damaged).is_err(), "byte {at}");
        assert!(zero.signer("approval", b"yes", &signature[..at]).is_err(), "cut at {at}");
    }
    // Another deployment's alice is nobody here, and whoever is revoked signs no more.
    let stranger = Identity::load(&theirs.0, &client("alice")).unwrap().sign("approval", b"yes").unwrap();
    assert!(zero.signer("approval", b"yes", &stranger).is_err());
    certs::revoke(&ours.0, &client("alice")).unwrap();
    let zero = Identity::load(&ours.0, &PeerName::Party(0)).unwrap();
    let refused = zero.signer("approval", b"yes", &signature).unwrap_err().to_string();
    assert!(refused.contains("Revoked"), "{refused}");
    // Only the key makes signatures: its certificate is everybody's to show.
    let bob = Identity::load(&ours.0, &client("bob")).unwrap();
    let of_bob = bob.sign("approval", b"no").unwrap();
    assert_eq!(zero.signer("approval", b"no", &of_bob).unwrap(), client("bob"));
    assert!(zero.signer("approval", b"yes", &of_bob).is_err());
}
