//! What the floating-point operations cost, without running them: `cargo run -p megrez-sirnn --example bill -- [k]`.

use megrez_float::{Float, Format, Plain};
use megrez_sirnn::ops::{OPS, run};
use megrez_sirnn::price::Price;

fn main() {
    let k = std::env::args().nth(1).and_then(|k| k.parse().ok()).unwrap_or(4);
    let lanes = 1 << 14;
    println!("{:6} {:>12} {:>8}   (k = {k}, both directions)", "op", "bytes/lane", "rounds");
    for op in OPS {
        let mut price = Price::new(k);
        let x = Float::public(&price, &Plain::from_bits(Format::FLOAT32, &vec![0x3f80_0000; lanes]));
        let y = x.clone();
        let Ok(_) = run(op, &mut price, &x, &y);
        let bytes: u64 = price.bill.bytes.iter().sum();
        println!("{op:6} {:>12.1} {:>8}", bytes as f64 / lanes as f64, price.bill.rounds);
    }
}
