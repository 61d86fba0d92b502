//! Writing ONNX files, right ones and wrong ones.
#![allow(dead_code, reason = "the tests of the command use a part of this")]

/// A message under construction.
#[derive(Clone, Default)]
pub struct Message(pub Vec<u8>);

impl Message {
    fn varint(&mut self, mut v: u64) {
        while v >= 0x80 {
            self.0.push(v as u8 | 0x80);
            v >>= 7;
        }
        self.0.push(v as u8);
    }
    pub fn int(mut self, field: u64, v: i64) -> Self {
        self.varint(field << 3);
        self.varint(v as u64);
        self
    }
    pub fn float(mut self, field: u64, v: f32) -> Self {
        self.varint(field << 3 | 5);
        self.0.extend(v.to_le_bytes());
        self
    }
    pub fn bytes(mut self, field: u64, v: &[u8]) -> Self {
        self.varint(field << 3 | 2);
        self.varint(v.len() as u64);
        self.0.extend(v);
        self
    }
    pub fn text(self, field: u64, v: &str) -> Self {
        self.bytes(field, v.as_bytes())
    }
    pub fn message(self, field: u64, v: &Message) -> Self {
        self.bytes(field, &v.0)
    }
}

pub fn message() -> Message {
    Message::default()
}

pub fn tensor(name: &str, dims: &[i64], data: &[f32]) -> Message {
    let raw: Vec<u8> = data.iter().flat_map(|v| v.to_le_bytes()).collect();
    let head = dims.iter().fold(message(), |m, &d| m.int(1, d));
    head.int(2, 1).text(8, name).bytes(9, &raw)
}

pub fn int_tensor(name: &str, dims: &[i64], data: &[i64]) -> Message {
    let head = dims.iter().fold(message(), |m, &d| m.int(1, d));
    data.iter().fold(head.int(2, 7).text(8, name), |m, &v| m.int(7, v))
}

/// A size of 0 stands for an open dimension.
pub fn value(name: &str, dims: &[i64]) -> Message {
    typed(name, 1, dims)
}

/// As [`value`], of elements of this type.
pub fn typed(name: &str, element: i64, dims: &[i64]) -> Message {
    let dim = |d: i64| if d == 0 { message().text(2, "N") } else { message().int(1, d) };
    let shape = dims.iter().fold(message(), |m, &d| m.message(1, &dim(d)));
    let tensor = message().int(1, element).message(2, &shape);
    message().text(1, name).message(2, &message().message(1, &tensor))
}

pub fn ints(name: &str, list: &[i64]) -> Message {
    list.iter().fold(message().text(1, name).int(20, 7), |m, &v| m.int(8, v))
}

pub fn int(name: &str, v: i64) -> Message {
    message().text(1, name).int(3, v).int(20, 2)
}

pub fn float(name: &str, v: f32) -> Message {
    message().text(1, name).float(2, v).int(20, 1)
}

pub fn floats(name: &str, list: &[f32]) -> Message {
    list.iter().fold(message().text(1, name).int(20, 6), |m, &v| m.float(7, v))
}

pub fn text(name: &str, v: &str) -> Message {
    message().text(1, name).text(4, v).int(20, 3)
}

pub fn texts(name: &str, list: &[&str]) -> Message {
    list.iter().fold(message().text(1, name).int(20, 8), |m, v| m.text(9, v))
}

pub fn text_tensor(name: &str, list: &[&str]) -> Message {
    let head = message().int(1, list.len() as i64).int(2, 8).text(8, name);
    list.iter().fold(head, |m, v| m.text(6, v))
}

pub fn node(name: &str, op: &str, inputs: &[&str], outputs: &[&str], attributes: &[Message]) -> Message {
    let m = inputs.iter().fold(message(), |m, i| m.text(1, i));
    let m = outputs.iter().fold(m, |m, o| m.text(2, o));
    let m = m.text(3, name).text(4, op);
    attributes.iter().fold(m, |m, a| m.message(5, a))
}

pub fn model(
    opset: i64,
    nodes: &[Message],
    tensors: &[Message],
    inputs: &[Message],
    outputs: &[Message],
) -> Vec<u8> {
    let graph = nodes.iter().fold(message(), |m, n| m.message(1, n)).text(2, "test");
    let graph = tensors.iter().fold(graph, |m, t| m.message(5, t));
    let graph = inputs.iter().fold(graph, |m, i| m.message(11, i));
    let graph = outputs.iter().fold(graph, |m, o| m.message(12, o));
    let opset = message().text(1, "").int(2, opset);
    message().int(1, 8).message(7, &graph).message(8, &opset).0
}

/// A small network with most of what a file can hold.
pub fn sample() -> Vec<u8> {
    let nodes = [
        node("/conv/Conv", "Conv", &["x", "w", "b"], &["c"], &[ints("pads", &[1, 1, 1, 1])]),
        node("", "Relu", &["c"], &["r"], &[]),
        node("pool", "MaxPool", &["r"], &["p"], &[ints("kernel_shape", &[2, 2]), ints("strides", &[2, 2])]),
        node("", "Shape", &["p"], &["s"], &[]),
        node("", "Gather", &["s", "zero"], &["n"], &[]),
        node("", "Unsqueeze", &["n", "axes"], &["n1"], &[]),
        node("", "Concat", &["n1", "rest"], &["to"], &[int("axis", 0)]),
        node("", "Reshape", &["p", "to"], &["flat"], &[]),
        node("fc", "Gemm", &["flat", "fw", "fb"], &["logits"], &[float("alpha", 1.0), int("transB", 1)]),
        node("", "Softmax", &["logits"], &["y"], &[int("axis", -1)]),
    ];
    let tensors = [
        tensor("w", &[2, 1, 3, 3], &(0..18).map(|i| i as f32 / 18.0 - 0.5).collect::<Vec<_>>()),
        tensor("b", &[2], &[0.25, -0.5]),
        int_tensor("zero", &[], &[0]),
        int_tensor("axes", &[1], &[0]),
        int_tensor("rest", &[1], &[-1]),
        tensor("fw", &[3, 8], &(0..24).map(|i| i as f32 / 24.0 - 0.4).collect::<Vec<_>>()),
        tensor("fb", &[3], &[0.0, 0.5, -0.5]),
    ];
    model(17, &nodes, &tensors, &[value("x", &[0, 1, 4, 4])], &[value("y", &[0, 3])])
}
