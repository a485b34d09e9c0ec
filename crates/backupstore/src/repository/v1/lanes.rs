//! SHA-512 of eight blocks at once, one in each lane of the vector registers: where the processor has
//! AVX-512 it is three to four times as fast as one block after the other, and hashing is what a
//! backup costs most. Four lanes would leave the processor waiting for itself: they take as long as
//! eight.

#![expect(clippy::indexing_slicing, reason = "lengths are checked once, before the loops")]
#![expect(clippy::many_single_char_names, reason = "the names of the standard")]

pub(super) const LANES: usize = 8;
/// With fewer blocks than these, one after the other is faster.
pub(super) const LANES_MIN: usize = 3;

pub(super) const SUM_BYTES: usize = 64;

/// Bytes that go into one step.
const STEP_BYTES: usize = 128;

/// One word of each lane.
type Lane = [u64; LANES];

const IV: [u64; 8] = [
    0x6a09_e667_f3bc_c908,
    0xbb67_ae85_84ca_a73b,
    0x3c6e_f372_fe94_f82b,
    0xa54f_f53a_5f1d_36f1,
    0x510e_527f_ade6_82d1,
    0x9b05_688c_2b3e_6c1f,
    0x1f83_d9ab_fb41_bd6b,
    0x5be0_cd19_137e_2179,
];

const K: [u64; 80] = [
    0x428a_2f98_d728_ae22,
    0x7137_4491_23ef_65cd,
    0xb5c0_fbcf_ec4d_3b2f,
    0xe9b5_dba5_8189_dbbc,
    0x3956_c25b_f348_b538,
    0x59f1_11f1_b605_d019,
    0x923f_82a4_af19_4f9b,
    0xab1c_5ed5_da6d_8118,
    0xd807_aa98_a303_0242,
    0x1283_5b01_4570_6fbe,
    0x2431_85be_4ee4_b28c,
    0x550c_7dc3_d5ff_b4e2,
    0x72be_5d74_f27b_896f,
    0x80de_b1fe_3b16_96b1,
    0x9bdc_06a7_25c7_1235,
    0xc19b_f174_cf69_2694,
    0xe49b_69c1_9ef1_4ad2,
    0xefbe_4786_384f_25e3,
    0x0fc1_9dc6_8b8c_d5b5,
    0x240c_a1cc_77ac_9c65,
    0x2de9_2c6f_592b_0275,
    0x4a74_84aa_6ea6_e483,
    0x5cb0_a9dc_bd41_fbd4,
    0x76f9_88da_8311_53b5,
    0x983e_5152_ee66_dfab,
    0xa831_c66d_2db4_3210,
    0xb003_27c8_98fb_213f,
    0xbf59_7fc7_beef_0ee4,
    0xc6e0_0bf3_3da8_8fc2,
    0xd5a7_9147_930a_a725,
    0x06ca_6351_e003_826f,
    0x1429_2967_0a0e_6e70,
    0x27b7_0a85_46d2_2ffc,
    0x2e1b_2138_5c26_c926,
    0x4d2c_6dfc_5ac4_2aed,
    0x5338_0d13_9d95_b3df,
    0x650a_7354_8baf_63de,
    0x766a_0abb_3c77_b2a8,
    0x81c2_c92e_47ed_aee6,
    0x9272_2c85_1482_353b,
    0xa2bf_e8a1_4cf1_0364,
    0xa81a_664b_bc42_3001,
    0xc24b_8b70_d0f8_9791,
    0xc76c_51a3_0654_be30,
    0xd192_e819_d6ef_5218,
    0xd699_0624_5565_a910,
    0xf40e_3585_5771_202a,
    0x106a_a070_32bb_d1b8,
    0x19a4_c116_b8d2_d0c8,
    0x1e37_6c08_5141_ab53,
    0x2748_774c_df8e_eb99,
    0x34b0_bcb5_e19b_48a8,
    0x391c_0cb3_c5c9_5a63,
    0x4ed8_aa4a_e341_8acb,
    0x5b9c_ca4f_7763_e373,
    0x682e_6ff3_d6b2_b8a3,
    0x748f_82ee_5def_b2fc,
    0x78a5_636f_4317_2f60,
    0x84c8_7814_a1f0_ab72,
    0x8cc7_0208_1a64_39ec,
    0x90be_fffa_2363_1e28,
    0xa450_6ceb_de82_bde9,
    0xbef9_a3f7_b2c6_7915,
    0xc671_78f2_e372_532b,
    0xca27_3ece_ea26_619c,
    0xd186_b8c7_21c0_c207,
    0xeada_7dd6_cde0_eb1e,
    0xf57d_4f7f_ee6e_d178,
    0x06f0_67aa_7217_6fba,
    0x0a63_7dc5_a2c8_98a6,
    0x113f_9804_bef9_0dae,
    0x1b71_0b35_131c_471b,
    0x28db_77f5_2304_7d84,
    0x32ca_ab7b_40c7_2493,
    0x3c9e_be0a_15c9_bebc,
    0x431d_67c4_9c10_0d4c,
    0x4cc5_d4be_cb3e_42b6,
    0x597f_299c_fc65_7e2a,
    0x5fcb_6fab_3ad6_faec,
    0x6c44_198c_4a47_5817,
];

/// The sums of eight blocks, or nothing where this processor, or the length of these blocks, is none for
/// it.
pub(super) fn together(blocks: [&[u8]; LANES]) -> Option<[[u8; SUM_BYTES]; LANES]> {
    let len = blocks[0].len();
    if !len.is_multiple_of(STEP_BYTES) || blocks.iter().any(|block| block.len() != len) {
        return None;
    }
    dispatch(&blocks).map(|sums| {
        sums.map(|words| {
            let mut sum = [0; SUM_BYTES];
            for (to, word) in sum.chunks_exact_mut(8).zip(words) {
                to.copy_from_slice(&word.to_be_bytes());
            }
            sum
        })
    })
}

#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "only so is a function called that needs more of a processor")]
fn dispatch(blocks: &[&[u8]; LANES]) -> Option<[[u64; 8]; LANES]> {
    let has_all = is_x86_feature_detected!("avx512f") && is_x86_feature_detected!("avx512vl");
    // SAFETY: the processor has what the function is compiled for.
    has_all.then(|| unsafe { with_avx512(blocks) })
}

#[cfg(not(target_arch = "x86_64"))]
fn dispatch(_: &[&[u8]; LANES]) -> Option<[[u64; 8]; LANES]> {
    None
}

/// The compiler makes vector instructions of the loops over lanes, with rotations and all.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512vl")]
fn with_avx512(blocks: &[&[u8]; LANES]) -> [[u64; 8]; LANES] {
    sums(blocks)
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the processor of its caller")]
fn sums(blocks: &[&[u8]; LANES]) -> [[u64; 8]; LANES] {
    let mut state: [Lane; 8] = std::array::from_fn(|word| [IV[word]; LANES]);
    let mut words = [[0; LANES]; 16];
    let steps = blocks[0].len() / STEP_BYTES;
    for step in 0..steps {
        for (word, lanes) in words.iter_mut().enumerate() {
            let at = step * STEP_BYTES + word * 8;
            *lanes = std::array::from_fn(|lane| {
                let mut bytes = [0; 8];
                bytes.copy_from_slice(&blocks[lane][at..at + 8]);
                u64::from_be_bytes(bytes)
            });
        }
        compress(&mut state, &mut words);
    }
    // A one, zeros, and the length in bits.
    words = [[0; LANES]; 16];
    words[0] = [1 << 63; LANES];
    words[15] = [(steps * STEP_BYTES * 8) as u64; LANES];
    compress(&mut state, &mut words);
    std::array::from_fn(|lane| std::array::from_fn(|word| state[word][lane]))
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the processor of its caller")]
fn add(one: Lane, other: Lane) -> Lane {
    std::array::from_fn(|lane| one[lane].wrapping_add(other[lane]))
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the processor of its caller")]
fn xor(one: Lane, other: Lane) -> Lane {
    std::array::from_fn(|lane| one[lane] ^ other[lane])
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the processor of its caller")]
fn and(one: Lane, other: Lane) -> Lane {
    std::array::from_fn(|lane| one[lane] & other[lane])
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the processor of its caller")]
fn rotate(word: Lane, by: u32) -> Lane {
    word.map(|x| x.rotate_right(by))
}

#[inline(always)]
#[expect(clippy::inline_always, reason = "it is compiled for the processor of its caller")]
fn compress(state: &mut [Lane; 8], words: &mut [Lane; 16]) {
    let [mut a, mut b, mut c, mut d, mut e, mut f, mut g, mut h] = *state;
    for turn in 0..5 {
        for at in 0..16 {
            if turn > 0 {
                let (early, late) = (words[(at + 1) & 15], words[(at + 14) & 15]);
                let early = xor(xor(rotate(early, 1), rotate(early, 8)), early.map(|x| x >> 7));
                let late = xor(xor(rotate(late, 19), rotate(late, 61)), late.map(|x| x >> 6));
                words[at] = add(add(words[at], early), add(words[(at + 9) & 15], late));
            }
            let mixed = xor(xor(rotate(e, 14), rotate(e, 18)), rotate(e, 41));
            let choice = xor(g, and(e, xor(f, g)));
            let first = add(add(add(h, mixed), choice), add([K[turn * 16 + at]; LANES], words[at]));
            let mixed = xor(xor(rotate(a, 28), rotate(a, 34)), rotate(a, 39));
            let most = xor(and(a, b), and(c, xor(a, b)));
            h = g;
            g = f;
            f = e;
            e = add(d, first);
            d = c;
            c = b;
            b = a;
            a = add(first, add(mixed, most));
        }
    }
    for (old, new) in state.iter_mut().zip([a, b, c, d, e, f, g, h]) {
        *old = add(*old, new);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(len: usize, seed: u8) -> Vec<u8> {
        (0..len).map(|at| (at.wrapping_mul(31) >> 3).to_le_bytes()[0] ^ seed).collect()
    }

    #[test]
    fn lanes_agree_with_the_library() {
        for len in [0, 128, 256, 4096] {
            let blocks: [Vec<u8>; LANES] = [1, 2, 3, 4, 5, 6, 7, 8].map(|seed| block(len, seed));
            let refs: [&[u8]; LANES] = std::array::from_fn(|lane| blocks[lane].as_slice());
            let library = refs.map(|block| {
                let sum = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA512, block);
                <[u8; SUM_BYTES]>::try_from(sum.as_ref()).unwrap()
            });
            let plain = sums(&refs).map(|words| {
                let bytes: Vec<u8> = words.iter().flat_map(|it| it.to_be_bytes()).collect();
                <[u8; SUM_BYTES]>::try_from(bytes).unwrap()
            });
            assert_eq!(plain, library, "of {len} bytes");
            if let Some(fast) = together(refs) {
                assert_eq!(fast, library, "of {len} bytes");
            }
        }
    }

    #[test]
    fn other_lengths_are_left_to_others() {
        let (short, long) = (block(128, 1), block(256, 1));
        let mut blocks: [&[u8]; LANES] = [&short; LANES];
        blocks[LANES - 1] = &long;
        assert_eq!(together(blocks), None);
        assert_eq!(together([&short[1..]; LANES]), None);
    }
}
