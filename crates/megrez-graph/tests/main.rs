//! One binary for all tests: every suite is compiled and linked once.

mod attention;
mod classical;
mod common;
mod control;
mod declared;
mod decoders;
mod decompositions;
mod estimators;
mod files;
mod floats;
mod functions;
mod gradients;
mod layers;
mod lowering;
mod networks;
mod onnx;
mod operators;
mod passes;
mod precision;
mod public;
mod quantized;
mod random;
mod rounds;
mod shares;
mod smooth;
mod training;
