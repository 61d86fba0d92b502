//! A private LeNet on ten handwritten digits, with all three parties in threads of this process:
//! `cargo run --release -p megrez --example digits`.

use megrez::{Backend, CompileRequest, ModelFile, RunOptions, infer, infer_plain};
use std::path::Path;

fn main() -> megrez::Result<()> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples/digits");
    let file = ModelFile::open(&folder.join("lenet.onnx"))?;
    let images = megrez::npy::load(&folder.join("test_images.npy"))?;
    let ten = megrez::Tensor::new([10, 1, 28, 28], images.data[..10 * 784].to_vec());

    let mut parties = Backend::threads();
    let request = CompileRequest { protocol: "alkaid".into(), ..CompileRequest::default() };
    let graph = file.graph(Some(std::slice::from_ref(&ten)), &[], Some(10))?;
    let model = request.compile(&graph, parties.client())?;
    let data = [ten];
    let private = infer(&mut parties, &model, &data, &RunOptions::new("alkaid"), &|_| Ok(()))?;
    let plain = infer_plain(&model, &data)?;

    let largest = |row: &[f32]| (0..row.len()).fold(0, |best, i| if row[i] > row[best] { i } else { best });
    let rows = private.outputs[0].1.data.chunks(10).zip(plain[0].1.data.chunks(10));
    for (image, (private, plain)) in rows.enumerate() {
        println!("image {image}: {} on shares, {} in the clear", largest(private), largest(plain));
    }
    println!("\n{}", private.summary());
    Ok(())
}
