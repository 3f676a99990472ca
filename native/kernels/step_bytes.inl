// Weights of 4 bits whose scales are whole multiples of one step, as single bytes.
//
// Where each row's scales of a run of columns are -15 to 16 times the same step, codes times these
// numbers fit in a byte, and a product's sums need no scaling before the end of the run: the form
// that pack.h gives to q4. Included by the files for many rows, with sixteen lanes.

namespace satchel {
namespace {

// A run of columns of one tile, which begins at a multiple of kRunColumns.
struct TileRun {
  const uint8_t* codes;
  const uint16_t* scales;
  const float* run_steps = nullptr;  // of q4_steps, instead of scales
  const int8_t* multiples = nullptr;
  int64_t groups, group;

  int64_t columns() const { return groups * group; }

  TileRun(const PackedMatrix& w, int64_t tile, int64_t first) : group(w.group) {
    const int64_t left = w.cols - first;
    groups = (left < kRunColumns ? left : kRunColumns) / group;
    codes = w.codes + (tile * w.cols + first) * 8;
    scales = w.scales + tile * scales_in_tile(w);
    if (w.encoding != MatrixEncoding::q4_steps) {
      scales += first / group * kTileRows;
    } else {
      scales += (first / kRunColumns * 4 + first / group) * kTileRows / 2;
      run_steps = reinterpret_cast<const float*>(scales);
      multiples = reinterpret_cast<const int8_t*>(run_steps + kTileRows);
    }
  }

  F scale(int64_t g) const {
    return run_steps ? load_int8(multiples + g * kTileRows) * load(run_steps)
                     : load_half(scales + g * kTileRows);
  }

  // Each row's step. Of q4, it is a sixteenth of the largest scale.
  F steps() const {
    if (run_steps) return load(run_steps);
    F largest = broadcast(0.0f);
    for (int64_t g = 0; g < groups; ++g) {
      const F scale = load_half(scales + g * kTileRows);
      const __mmask16 more =
          _mm512_cmp_ps_mask(_mm512_abs_ps(scale), _mm512_abs_ps(largest), _CMP_GT_OQ);
      largest = _mm512_mask_mov_ps(largest, more, scale);
    }
    return largest * broadcast(1.0f / 16);
  }

  // Whether all scales are such multiples of them.
  bool has_steps() const {
    if (run_steps) {
      __m128i low = _mm_setzero_si128(), high = low;
      for (int64_t g = 0; g < groups; ++g) {
        const __m128i bytes =
            _mm_loadu_si128(reinterpret_cast<const __m128i*>(multiples + g * kTileRows));
        low = _mm_min_epi8(low, bytes), high = _mm_max_epi8(high, bytes);
      }
      return (_mm_cmplt_epi8_mask(low, _mm_set1_epi8(-15)) |
              _mm_cmpgt_epi8_mask(high, _mm_set1_epi8(16))) == 0;
    }
    const F step = steps(), inverse = inverse_of(step);
    __mmask16 fits = 0xffff;
    for (int64_t g = 0; g < groups; ++g) {
      const F scale = load_half(scales + g * kTileRows), whole = multiple(scale, inverse);
      fits &= _mm512_cmp_ps_mask(whole * step, scale, _CMP_EQ_OQ);
      fits &= _mm512_cmp_ps_mask(whole, broadcast(-15.0f), _CMP_GE_OQ);  // the largest has 16
    }
    return fits == 0xffff;
  }

  // Code times multiple plus `offset`, of columns [begin, end) as bytes [cols/4][16][4]. With a
  // negative multiple, products are those of the codes from the other end, so that none of a
  // register's bytes borrows from another.
  void bytes(const float* steps, int32_t offset, int64_t begin, int64_t end, uint8_t* out) const {
    const F inverse = run_steps ? broadcast(0.0f) : inverse_of(load(steps));
    const uint8_t* from = codes + begin * 8;
    const __m512i nibble = _mm512_set1_epi8(15);
    // Of each row's 32 bits, the lowest byte in all four places, or in two of them beside zeros.
    const __m512i four_times =
        _mm512_broadcast_i32x4(_mm_setr_epi32(0, 0x04040404, 0x08080808, 0x0c0c0c0c));
    const __m512i twice = _mm512_or_si512(four_times, _mm512_set1_epi16(-256));
    for (int64_t g = begin / group, column = begin; column < end; ++g) {
      const __m512i whole = multiples_of(g, inverse), times = _mm512_abs_epi32(whole);
      const __mmask16 negative = _mm512_movepi32_mask(whole);
      const __m512i factor = _mm512_shuffle_epi8(times, twice);
      __m512i start = _mm512_sub_epi32(_mm512_set1_epi32(offset), _mm512_slli_epi32(times, 3));
      start = _mm512_shuffle_epi8(_mm512_mask_add_epi32(start, negative, start, times), four_times);
      const __m512i turned = _mm512_maskz_mov_epi32(negative, nibble);
      const auto put = [&](__m512i nibbles) {
        constexpr int kAndXor = 0x6a;  // (a & b) ^ c, of a: bytes, b: nibble, c: turned
        const __m512i code = _mm512_ternarylogic_epi32(nibbles, nibble, turned, kAndXor);
        _mm512_store_si512(out, _mm512_add_epi8(_mm512_mullo_epi16(code, factor), start));
        out += 64;
      };
      for (const int64_t stop = lesser(end, (g + 1) * group); column < stop;
           column += 8, from += 64) {
        const __m512i both = _mm512_loadu_si512(from);
        put(both);
        put(_mm512_srli_epi16(both, 4));
      }
    }
  }

  // Asks for what is read of the scales.
  void ask_scales() const {
    const auto* line = reinterpret_cast<const char*>(scales);
    const int64_t bytes = run_steps ? (groups + 4) * kTileRows : groups * kTileRows * 2;
    for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(line + at, _MM_HINT_T1);
  }

 private:
  // A group's, as whole numbers.
  __m512i multiples_of(int64_t g, F inverse) const {
    if (!run_steps) return _mm512_cvtps_epi32(scale(g) * inverse);
    return _mm512_cvtepi8_epi32(
        _mm_loadu_si128(reinterpret_cast<const __m128i*>(multiples + g * kTileRows)));
  }
  static F inverse_of(F step) {
    const __mmask16 some = _mm512_cmp_ps_mask(step, broadcast(0.0f), _CMP_NEQ_UQ);
    return _mm512_maskz_div_ps(some, broadcast(1.0f), step);
  }
  static F multiple(F scale, F inverse) {
    return _mm512_roundscale_ps(scale * inverse, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
  }
};

// Whether it is made of such runs, with steps or without.
inline bool has_runs(const PackedMatrix& w) {
  return (w.encoding == MatrixEncoding::q4 || w.encoding == MatrixEncoding::q4_steps) &&
         kRunColumns % w.group == 0;
}

// Whether all runs of a tile have steps.
inline bool have_steps(const PackedMatrix& w, int64_t tile) {
  if (!has_runs(w)) return false;
  for (int64_t first = 0; first < w.cols; first += kRunColumns) {
    if (!TileRun(w, tile, first).has_steps()) return false;
  }
  return true;
}

}  // namespace
}  // namespace satchel
