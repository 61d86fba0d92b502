use super::*;
use megrez_graph::Interval;
use megrez_plan::List as Plan;

#[test]
fn what_a_choice_is_made_for_is_refused_where_none_is() {
    let graph = megrez_graph::models::build("lenet", 1, 1).unwrap();
    let of = |form, memory| {
        let request = CompileRequest { form, memory, ranges: Ranges::Assume, ..CompileRequest::default() };
        request.recipe(&graph, "client").map(|_| ())
    };
    of(Form::Auto, Some(512)).unwrap();
    of(Form::Key, None).unwrap();
    let error = of(Form::Key, Some(512)).unwrap_err().to_string();
    assert!(error.starts_with("`memory` says what form `auto` may choose"), "{error}");
}

#[test]
fn comparisons_fit_their_ring() {
    assert_eq!(sign_bit(64, List::Bits, None, None, 0).unwrap(), SignBit::FULL);
    assert!(matches!(sign_bit(32, List::Digits, None, Some(20), 0).unwrap().list, Plan::Digits(_)));
    assert!(sign_bit(32, List::Bits, Some(&[3]), None, 0).is_err());
    assert!(sign_bit(32, List::Digits, None, Some(33), 0).is_err());
    assert!(sign_bit(32, List::Bits, None, None, 32).is_err());
}

#[test]
fn a_request_is_the_same_in_json() {
    let request = CompileRequest {
        net: "20ms,500mbps".parse().unwrap(),
        input_range: "0,2".parse().unwrap(),
        input_ranges: [("x".to_owned(), Bounds::from(Interval::abs(3.0)))].into(),
        declared: Some("ranges.toml".parse().unwrap()),
        form: Form::Auto,
        pool: Some(Pool::AllPairs),
        ..CompileRequest::default()
    };
    let json = serde_json::to_value(&request).unwrap();
    assert_eq!((&json["form"], &json["input_range"]), (&"auto".into(), &serde_json::json!([0.0, 2.0])));
    assert_eq!(serde_json::from_value::<CompileRequest>(json).unwrap(), request);
    let typo = serde_json::from_str::<CompileRequest>(r#"{ "pools": "all-pairs" }"#).unwrap_err();
    assert!(typo.to_string().contains("`pools`"), "{typo}");
}

fn of(protocol: &str, numbers: Option<Numbers>) -> CompileRequest {
    CompileRequest { protocol: protocol.into(), numbers, ..CompileRequest::default() }
}

#[test]
fn numbers_that_a_protocol_lacks_are_refused_with_a_remedy() {
    let float = |protocol, numbers| of(protocol, numbers).is_float();
    assert!(float("secfloat", None).unwrap() && float("secfloat", Some(Numbers::Float32)).unwrap());
    assert!(!float("mizar", None).unwrap() && !float("mizar", Some(Numbers::Fixed)).unwrap());
    let said = |p, n| float(p, Some(n)).unwrap_err().to_string();
    assert!(said("meteor", Numbers::Float32).contains("--protocol secfloat"));
    for (protocol, runs) in [("mizar", "mizar-float"), ("alkaid", "mizar-float"), ("secfloat", "secfloat")] {
        assert!(float(protocol, Some(Numbers::Float32)).unwrap());
        assert_eq!(of(protocol, Some(Numbers::Float32)).runs_under(), runs);
        assert_eq!(of(protocol, None).runs_under(), protocol);
    }
    assert!(float("mizar-float", None).unwrap());
    assert!(said("secfloat", Numbers::Fixed).contains("--protocol mizar"));
    let fitted = CompileRequest { fit: true, ranges: Ranges::Assume, ..of("secfloat", None) };
    assert!(fitted.is_float().unwrap_err().to_string().contains("leave out --range, --fit"));
}

#[test]
fn transfers_are_silent_where_the_network_is_slow() {
    let group = |model: &str, net: &str, group: Option<u32>| {
        let net = net.parse().unwrap();
        let request = CompileRequest { group, net, ..of("secfloat", None) };
        let graph = megrez_graph::models::build(model, 1, 1).unwrap();
        match request.recipe(&graph, "client").unwrap() {
            megrez_model::model::Recipe::Float(work) => work.group,
            megrez_model::model::Recipe::Fixed(_) => panic!("in fixed point"),
        }
    };
    assert_eq!([group("net-a", "loopback", None), group("net-a", "lan", None)], [4; 2]);
    assert_eq!(group("net-a", "20ms,20mbps", None), 0);
    assert_eq!(group("net-a", "20ms,20mbps", Some(4)), 4);
}

#[test]
fn declared_ranges_come_from_files_and_values() {
    let value = serde_json::json!({ "*": 8.0, "fc1": [-1.0, 3.0] });
    let request: CompileRequest = serde_json::from_value(serde_json::json!({ "declared": value })).unwrap();
    let of = |request: &CompileRequest| request.options().unwrap().declared.unwrap();
    let declared = of(&request);
    assert_eq!(declared.all, Some(Interval::abs(8.0)));
    assert_eq!(declared.layers["fc1"], Interval { low: -1.0, high: 3.0 });
    let path = std::env::temp_dir().join(format!("megrez-declared-{}.toml", std::process::id()));
    std::fs::write(&path, "\"*\" = 8.0\nfc1 = [-1.0, 3.0]\n").unwrap();
    let file = CompileRequest {
        declared: Some(path.to_str().unwrap().parse().unwrap()),
        ..CompileRequest::default()
    };
    assert_eq!(of(&file), declared);
    std::fs::write(&path, "fc1 = \"large\"\n").unwrap();
    let error = file.options().unwrap_err().to_string();
    assert!(error.contains(path.to_str().unwrap()), "{error}");
    let _ = std::fs::remove_file(&path);
}

/// A bound is taken from data, which must then lie within it.
#[test]
fn bounds_in_json_are_read_to_the_last_bit() {
    let text = r#"{ "input_range": [0.38367754220962524, 0.9545904994010925] }"#;
    let request: CompileRequest = serde_json::from_str(text).unwrap();
    let Interval { low, high } = request.options().unwrap().input_range;
    assert_eq!((low, high), (0.38367754220962524, 0.9545904994010925));
    assert_eq!((low as f32, f64::from(low as f32)), (0.38367754, low));
}

/// A model of smooth functions, behind a product.
fn smooth() -> Graph {
    use megrez_graph::{Attributes, Tensor};
    let mut g = Graph::new("smooth");
    let x = g.input("x", [2, 4]).unwrap();
    let w = g.constant("w", Tensor::new([4, 4], (0..16).map(|i| i as f32 / 16.0 - 0.4).collect()));
    let mut y = x;
    for op in ["Gelu", "Sigmoid", "Softmax"] {
        let attributes = Attributes::none();
        let attributes = if op == "Softmax" { attributes.with("axis", -1) } else { attributes };
        y = g.add(&format!("{op}/product"), "MatMul", &[y, w], Attributes::none()).unwrap();
        y = g.add(op, op, &[y], attributes).unwrap();
    }
    let y = g.add("end", "MatMul", &[y, w], Attributes::none()).unwrap();
    g.output("y", y);
    g
}

/// Whatever stands for smooth functions by default, the protocol has its steps.
#[test]
fn every_protocol_runs_smooth_functions_by_default() {
    for protocol in protocols::all().filter(|p| !p.rings.is_empty()) {
        for ring in [64, 32] {
            if protocol.name == "bicoptor" {
                continue; // It compares nothing but in a ReLU.
            }
            let request =
                CompileRequest { protocol: protocol.name.into(), ring, ..CompileRequest::default() };
            for recipe in [request.recipe(&smooth(), "client"), request.recipe_by_layer(&smooth(), "client")]
            {
                let model = recipe.and_then(|recipe| recipe.compile(&smooth(), "client"));
                let model = model.unwrap_or_else(|e| panic!("{}, {ring} bits: {e}", protocol.name));
                let Model::Fixed(model) = model else { unreachable!("it is in fixed point") };
                let cost = protocols::cost(protocol.name, &model.compiled.plan);
                assert!(cost.is_ok(), "{}, {ring} bits: {}", protocol.name, cost.unwrap_err());
            }
        }
    }
}

/// What the earlier default ran, this one does.
#[test]
fn many_bits_and_many_fraction_bits_leave_tables_their_room() {
    for (bits, frac) in [(Some(56), None), (None, Some(30)), (Some(40), Some(28)), (None, Some(29))] {
        let compiled = |activations| {
            let input_range = "0.25".parse().unwrap();
            let request =
                CompileRequest { bits, frac, activations, input_range, ..CompileRequest::default() };
            request.recipe(&smooth(), "client").unwrap().compile(&smooth(), "client")
        };
        let splines = compiled(Smooth::Minimax).is_ok();
        assert!(splines || frac == Some(30));
        for activations in [Smooth::Auto, Smooth::Lookup] {
            let found = compiled(activations);
            assert!(found.is_ok() || !splines, "{bits:?} {frac:?} {activations}: {}", found.err().unwrap());
        }
    }
}
