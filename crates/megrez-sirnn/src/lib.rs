//! Integer arithmetic between two parties who trust nobody else: the blocks of SIRNN (Rathee et al., S&P 2021) and of SECFLOAT's
//! Table I, from oblivious transfer. Party 0 and party 1, semi-honest, no dealer.

pub mod ot;
#[cfg(test)]
mod testing;
