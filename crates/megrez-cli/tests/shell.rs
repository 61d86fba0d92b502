//! What the command says of itself and of models: completions, man pages, disclosure.

use crate::common::{Folder, cli, example};
use serde_json::json;

#[test]
fn completions_know_the_commands_and_their_options() {
    for shell in ["bash", "zsh", "fish", "powershell", "elvish"] {
        let script = cli(&format!("completions {shell}"), &[]).ok();
        for word in ["upload-model", "input-range", "completions"] {
            assert!(script.contains(word), "{word} is not in the completions of {shell}");
        }
    }
    assert_eq!(cli("completions csh", &[]).code, Some(2));
}

#[test]
fn there_is_a_man_page_for_every_command_that_help_lists() {
    let folder = Folder::new();
    let place = folder.path("man");
    let missing = cli("man {}", &[&place]);
    assert_eq!(missing.code, Some(2));
    assert!(missing.err.contains("man"), "{}", missing.err);
    std::fs::create_dir_all(&place).unwrap();
    cli("man {}", &[&place]).ok();
    let help = cli("--help", &[]).ok();
    let commands = help.split_once("Commands:").unwrap().1.split_once("\n\n").unwrap().0;
    let mut pages = 0;
    for name in
        commands.lines().filter_map(|line| line.split_whitespace().next()).filter(|name| *name != "help")
    {
        let page = std::fs::read_to_string(place.join(format!("megrez-{name}.1"))).unwrap();
        assert!(page.contains(".TH") && page.contains("SYNOPSIS"), "{name}");
        pages += 1;
    }
    assert!(pages > 10, "{help}");
    let infer = std::fs::read_to_string(place.join("megrez-infer.1")).unwrap();
    assert!(infer.contains("input\\-range"), "{infer}");
}

#[test]
fn plan_show_says_who_learns_what() {
    let model = example("lenet.onnx");
    let text = cli("plan show {} --recipient carol", &[&model]).ok();
    for part in [
        "gives",
        "carol: output",
        "everybody sees",
        "2 Conv",
        "nothing but the outputs",
        "mizar, 3 parties",
        "proven",
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let report =
        cli("--json plan show {} --protocol clear --data-owner alice", &[&model]).json("megrez.disclosure/1");
    assert_eq!(report["gives"][0]["owner"], "alice");
    assert_eq!(report["gives"][0]["shape"], json!([1, 1, 28, 28]));
    assert_eq!(report["insecure"], true);
    assert_eq!(report["opened"], json!([]));
    let absent = cli("plan show nothing", &[]);
    assert_eq!(absent.code, Some(2));
    assert!(absent.err.contains("there is no such network"), "{}", absent.err);
}

#[test]
fn nothing_is_coloured_where_nobody_looks() {
    let help = cli("--help", &[]).ok();
    assert!(!help.contains('\u{1b}'));
    let wrong = cli("infer --protcol x", &[]);
    assert_eq!(wrong.code, Some(2));
    assert!(!wrong.err.contains('\u{1b}'));
    assert!(wrong.err.contains("--protocol"), "a near name is suggested: {}", wrong.err);
}
