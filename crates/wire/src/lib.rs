//! The bytes of the data path: the frames between engine and replica, what a replica keeps of its
//! engines and of the other copies, and the NBD protocol.
//!
//! Owns: encoders, decoders and the NBD negotiation, as functions and machines over byte buffers.
//! Never: touches a socket, a clock, a file or a global; decides what a volume does with a request.
//! Start reading at [`frame`], then [`nbd`]. The bytes are described in `docs/protocols/`.
//!
//! Every decoder keeps the same promises: it checks a length before it reserves memory for it, it
//! consumes nothing until a whole message is there, it gives the same result however the stream is
//! cut, and no input makes it panic. An error means the stream is lost: close the connection.

#![forbid(unsafe_code)]

pub mod frame;
pub mod membership;
pub mod nbd;

/// The same bytes in pieces that end where `cuts` say, wherever that is.
#[cfg(test)]
pub(crate) fn pieces(whole: &[u8], cuts: &[usize]) -> Vec<Vec<u8>> {
    let mut ends: Vec<usize> = cuts.iter().map(|cut| cut % whole.len().max(1)).collect();
    ends.push(whole.len());
    ends.sort_unstable();
    let begins = std::iter::once(0).chain(ends.iter().copied());
    begins.zip(&ends).map(|(begin, end)| whole[begin..*end].to_vec()).collect()
}
