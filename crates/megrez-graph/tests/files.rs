//! What old and unusual files hold: operator sets below 7, weights in files of their own,
//! sequences.

use crate::common::onnx::{Message, float, int, int_tensor, message, model, node, tensor, value};
use megrez_graph::onnx::{ImportOptions, read, read_file};
use megrez_graph::{Graph, Tensor, plain};
use std::fs;
use std::path::{Path, PathBuf};

fn run(graph: &Graph, x: Tensor) -> Vec<f32> {
    plain::run(graph, &[x]).unwrap().remove(0).data
}

fn one(opset: i64, op: &str, inputs: &[&str], attributes: &[Message], dims: &[i64]) -> Result<Graph, String> {
    let tensors = [
        tensor("row", &[3], &[1.0, 2.0, 3.0]),
        tensor("column", &[2], &[10.0, 20.0]),
        tensor("one", &[2], &[1.0, 1.0]),
        tensor("zero", &[2], &[0.0, 0.0]),
    ];
    let nodes = [node("n", op, inputs, &["y"], attributes)];
    let bytes = model(opset, &nodes, &tensors, &[value("x", dims)], &[value("y", dims)]);
    read(&bytes, &ImportOptions::default()).map_err(|e| e.to_string())
}

#[test]
fn broadcasting_below_set_7_begins_at_an_axis() {
    let x = || Tensor::new([1, 2, 3], vec![0.0, 1.0, 2.0, 3.0, 4.0, 5.0]);
    let at = |axis| [int("broadcast", 1), int("axis", axis)];
    let along = one(6, "Add", &["x", "column"], &at(1), &[1, 2, 3]).unwrap();
    assert_eq!(run(&along, x()), [10.0, 11.0, 12.0, 23.0, 24.0, 25.0]);
    let counted = one(6, "Add", &["x", "column"], &at(-2), &[1, 2, 3]).unwrap();
    assert_eq!(run(&counted, x()), run(&along, x()));
    let last = one(6, "Mul", &["x", "row"], &[int("broadcast", 1)], &[1, 2, 3]).unwrap();
    assert_eq!(run(&last, x()), [0.0, 2.0, 6.0, 3.0, 8.0, 15.0]);
    assert!(one(6, "Add", &["x", "row"], &[], &[1, 2, 3]).unwrap_err().contains("does not broadcast"));
    assert!(one(6, "Add", &["x", "column"], &at(7), &[1, 2, 3]).unwrap_err().contains("axis 7"));
    // From set 7 on there is no such attribute.
    assert!(one(7, "Add", &["x", "row"], &at(1), &[1, 2, 3]).unwrap_err().contains("axis"));
    let slopes = one(6, "PRelu", &["x", "column"], &[], &[1, 2, 3]).unwrap();
    let negative = Tensor::new([1, 2, 3], vec![-1.0, 1.0, -2.0, -1.0, 4.0, -3.0]);
    assert_eq!(run(&slopes, negative), [-10.0, 1.0, -20.0, -20.0, 4.0, -60.0]);
}

#[test]
fn training_was_the_default_below_set_7() {
    let norm = ["x", "one", "zero", "zero", "one"];
    let test = [int("is_test", 1), float("epsilon", 0.0)];
    let graph = one(6, "BatchNormalization", &norm, &test, &[1, 2, 2]).unwrap();
    assert_eq!(run(&graph, Tensor::new([1, 2, 2], vec![1.0, 2.0, 3.0, 4.0])), [1.0, 2.0, 3.0, 4.0]);
    for (op, inputs) in [("BatchNormalization", &norm[..]), ("Dropout", &norm[..1])] {
        assert!(one(6, op, inputs, &[], &[1, 2, 2]).unwrap_err().contains("model.eval()"), "{op}");
    }
    assert!(one(5, "Tile", &["x", "row", "row"], &[], &[1, 2, 3]).unwrap_err().contains("set 5"));
}

/// A folder of its own for a test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("megrez-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(path.join("model")).unwrap();
        Folder(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn outside(name: &str, dims: &[i64], entries: &[(&str, &str)]) -> Message {
    let head = dims.iter().fold(message(), |m, &d| m.int(1, d)).int(2, 1).text(8, name).int(14, 1);
    entries.iter().fold(head, |m, (key, value)| m.message(13, &message().text(1, key).text(2, value)))
}

fn product(tensors: &[Message]) -> Vec<u8> {
    let nodes: Vec<Message> = (0..tensors.len())
        .map(|i| {
            let from = if i == 0 { "x".into() } else { format!("y{}", i - 1) };
            node("", "Mul", &[&from, &format!("w{i}")], &[&format!("y{i}")], &[])
        })
        .collect();
    let last = format!("y{}", tensors.len() - 1);
    model(17, &nodes, tensors, &[value("x", &[1, 2])], &[value(&last, &[1, 2])])
}

#[test]
fn weights_may_lie_beside_the_model() {
    let folder = Folder::new("beside");
    let here = folder.0.join("model");
    let words: Vec<u8> = [0.5f32, 2.0, 3.0, 4.0].iter().flat_map(|v| v.to_le_bytes()).collect();
    fs::write(here.join("weights.bin"), &words).unwrap();
    fs::write(folder.0.join("secret"), &words).unwrap();
    let load = |tensors: &[Message]| -> Result<Vec<f32>, String> {
        fs::write(here.join("model.onnx"), product(tensors)).unwrap();
        let graph =
            read_file(&here.join("model.onnx"), &ImportOptions::default()).map_err(|e| e.to_string())?;
        Ok(run(&graph, Tensor::new([1, 2], vec![1.0, 1.0])))
    };
    let at = |entries: &[(&str, &str)]| load(&[outside("w0", &[2], entries)]);
    let file = ("location", "weights.bin");
    assert_eq!(at(&[file, ("offset", "8"), ("length", "8")]).unwrap(), [3.0, 4.0]);
    assert_eq!(at(&[file]).unwrap(), [0.5, 2.0]);
    assert_eq!(at(&[("location", "./weights.bin")]).unwrap(), [0.5, 2.0]);
    for (place, why) in [
        ("../secret", "not in the model's folder"),
        ("", "not in the model's folder"),
        ("a\\b", "not in the model's folder"),
        ("nothing", "nothing"),
        (".", "no file"),
    ] {
        let said = at(&[("location", place)]).unwrap_err();
        assert!(said.contains(why), "{place}: {said}");
    }
    let absolute = folder.0.join("secret").display().to_string();
    assert!(at(&[("location", &absolute)]).unwrap_err().contains("not in the model's folder"));
    assert!(at(&[file, ("offset", "12")]).unwrap_err().contains("the file has 16"));
    assert!(at(&[file, ("offset", "18446744073709551615")]).unwrap_err().contains("the file has 16"));
    assert!(at(&[file, ("length", "4")]).unwrap_err().contains("it needs 8"));
    assert!(at(&[file, ("offset", "-1")]).unwrap_err().contains("offset"));
    assert!(load(&[outside("w0", &[1 << 20, 1 << 8], &[file])]).unwrap_err().contains("the file has 16"));
    // A file that is named often enough would fill the memory.
    let often: Vec<Message> = (0..9).map(|i| outside(&format!("w{i}"), &[2], &[file])).collect();
    assert!(load(&often[..4]).is_ok());
    assert!(load(&often).unwrap_err().contains("too often"));
    // Bytes alone have no folder.
    let bytes = product(&[outside("w0", &[2], &[file])]);
    let said = read(&bytes, &ImportOptions::default()).unwrap_err().to_string();
    assert!(said.contains("give the path of the model"), "{said}");
    #[cfg(unix)]
    {
        std::os::unix::fs::symlink(folder.0.join("secret"), here.join("link")).unwrap();
        assert!(at(&[("location", "link")]).unwrap_err().contains("not in the model's folder"));
        std::os::unix::fs::symlink("weights.bin", here.join("inside")).unwrap();
        assert_eq!(at(&[("location", "inside")]).unwrap(), [0.5, 2.0]);
    }
    assert_eq!(megrez_graph::onnx::folder(Path::new("model.onnx")), Path::new("."));
}

fn sequence(nodes: &[Message], out: &[i64]) -> Result<Graph, String> {
    let tensors =
        [int_tensor("first", &[], &[0]), int_tensor("last", &[], &[-1]), int_tensor("two", &[], &[2])];
    let bytes = model(17, nodes, &tensors, &[value("x", &[1, 5])], &[value("y", out)]);
    read(&bytes, &ImportOptions::default()).map_err(|e| e.to_string())
}

#[test]
fn sequences_are_lists_of_values() {
    let x = || Tensor::new([1, 5], vec![1.0, 2.0, 3.0, 4.0, 5.0]);
    let split = node("split", "SplitToSequence", &["x", "two"], &["parts"], &[int("axis", 1)]);
    let graph = sequence(&[split.clone(), node("", "SequenceAt", &["parts", "last"], &["y"], &[])], &[1, 1]);
    assert_eq!(run(&graph.unwrap(), x()), [5.0]);
    let turned = [
        split.clone(),
        node("", "SequenceAt", &["parts", "first"], &["head"], &[]),
        node("", "SequenceErase", &["parts", "first"], &["tail"], &[]),
        node("", "SequenceInsert", &["tail", "head"], &["all"], &[]),
        node("", "ConcatFromSequence", &["all"], &["y"], &[int("axis", 1)]),
    ];
    assert_eq!(run(&sequence(&turned, &[1, 5]).unwrap(), x()), [3.0, 4.0, 5.0, 1.0, 2.0]);
    // Before the last one, as Python counts.
    let before = [
        split.clone(),
        node("", "SequenceInsert", &["parts", "x", "last"], &["all"], &[]),
        node("", "SequenceAt", &["all", "two"], &["y"], &[]),
    ];
    assert_eq!(run(&sequence(&before, &[1, 5]).unwrap(), x()), [1.0, 2.0, 3.0, 4.0, 5.0]);
    let single = [
        node("", "SplitToSequence", &["x"], &["parts"], &[int("axis", 1), int("keepdims", 0)]),
        node("", "ConcatFromSequence", &["parts"], &["y"], &[int("axis", 0), int("new_axis", 1)]),
    ];
    assert_eq!(sequence(&single, &[5, 1]).unwrap().outputs.len(), 1);
    let refused = |nodes: &[Message]| sequence(nodes, &[1]).unwrap_err();
    assert!(
        refused(&[split.clone(), node("r", "Relu", &["parts"], &["y"], &[])]).contains("reads a sequence")
    );
    assert!(refused(&[node("", "SequenceAt", &["x", "first"], &["y"], &[])]).contains("is no sequence"));
    assert!(refused(&[split, node("", "SequenceAt", &["parts", "x"], &["y"], &[])]).contains("not known"));
    let made = node("y", "SequenceConstruct", &["x", "x"], &["y"], &[]);
    assert!(refused(&[made]).contains("is a sequence"));
}
