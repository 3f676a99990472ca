// Weights to the layouts of kernels.h, for export. The numbers are those of
// satchel/encodings/packing.py, exactly.
#pragma once

#include "kernels.h"

namespace satchel {

struct PackedSizes {
  size_t codes;    // bytes
  size_t scales;   // bytes, with the factors of lpbq4
  size_t factors;  // where in the scales the factors start; 0 where there are none
};

struct PackStats {
  double squared_error = 0.0;   // sum of (w - what the codes mean)^2
  double squared_weight = 0.0;  // sum of w^2
  int64_t first_bad = -1;       // index of the first value, in reading order, that is NaN or
                                // infinite, or whose group's scale (f16: value) overflows fp16
};

// Throws std::invalid_argument when the group does not fit the encoding or does not divide cols.
PackedSizes packed_sizes(MatrixEncoding encoding, int64_t rows, int64_t cols, int64_t group);

// Quantises and packs `rows` [n_rows, cols]. A block of a larger matrix has a multiple of 16 rows,
// except the last one, which is padded with rows of zeros (q = 0, scale 0).
// Per group, with m the value of largest magnitude (the first of equals):
//   q4, q4_steps  needed = m / -8,     q = clamp(rint(w / scale), -8, 7)
//   q8  scale = fp16(|m| / 127),       q = clamp(rint(w / scale), -127, 127)
// in f32, and q = 0 where the scale is 0. Stats do not depend on `threads`.
//
// q4: the groups of a run of kRunColumns columns have scales of -15 to 16 times one step, so that
// codes times these numbers fit in a byte (see step_bytes.inl). The step is a sixteenth of the
// run's needed scale of largest magnitude, to seven bits, and that group gets 16. Of the others'
// whole numbers ceil(|needed / step|) - 2 .. + 0 with its sign, and ceil(|needed / step| * 8 / 7) -
// 2 .. + 0 with the other, the one with the least sum of the errors' fourth powers (in f64; of
// equals the first, from the largest on) is taken. Scales are fp16(needed) where the run's sum
// would be more than twice theirs, where a group needs less than a step, and where the step is
// under 2^-18 (its multiples are not exact in fp16) or overflows.
//
// q4_steps: in these runs instead, the step is 1/127 of the needed scale of largest magnitude,
// rounded up to four bits and to whole numbers of 2^-24, and numbers are -127 to 127, at most 65504
// / step: all products are exact in fp16. Of ceil(|needed / step|) - 2 .. + 0 and of the other
// sign's, the best is taken as above, for all groups. A run of zeros has the step 2^-24.
//
// lpbq4: a group needs the step s = max(largest / 7, smallest / -8), and the row's factor is its
// largest s / 16, in f32. Of the whole numbers ceil(s / factor) - 3 .. + 1, within 1 .. 16, the
// group's scale is the one with the least squared error (in f64, of equals the lowest), where
// q = clamp(rint(w / (scale * factor)), -8, 7). After the scales, at the next multiple of 64 bytes,
// come the factors. A row whose factor is 0 has q = 0 and scales of 1.
//
// i8: whole numbers as they are, in steps of four columns, and in the place of scales the rows'
// sums as i32; the first bad value is one that is no whole number of -127 .. 127.
void pack_rows(MatrixEncoding encoding, const float* rows, int64_t n_rows, int64_t cols,
               int64_t group, uint8_t* codes, uint16_t* scales, PackStats* stats, int threads);

}  // namespace satchel
