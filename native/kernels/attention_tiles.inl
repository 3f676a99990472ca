// Queries, keys and values of attention as tiles of bfloat16, and where they are kept. A bfloat16
// has 8 bits of a number: one of a cache of 16-bit floats is the sum of two of them, a float of
// three. They are cut off, not rounded, and what is not a number stays so. (Tiles take parts below
// 2^-126 for zero, which no cached number has.) Included after elementwise.inl and
// attention_transposed.inl, for AVX-512.

namespace satchel {
namespace {

// Not inlined: what happens between tile products is called from many places.
#define SATCHEL_APART __attribute__((noinline))

constexpr int64_t kTileBytes = 1024;
constexpr int kRowTiles = kTileStepRows / kLanes;
constexpr int kKeyTiles = kTileStepKeys / kLanes;
constexpr int64_t kWeightPart = kRowTiles * kTileBytes;
constexpr int64_t kScoreBytes = kKeyTiles * kRowTiles * kTileBytes,
                  kWeightBytes = 3 * kWeightPart;  // of a step
// Of a number of a query, of the results, and of the cache, in all its parts.
constexpr int64_t kQueryBytes = 6, kSumBytes = 4, kCacheBytes = 4;

// What the scratch holds, in tiles. Numbers of 16 bits lie in pairs, i and i + 16 of each 32.
struct Space {
  uint8_t* queries;  // [step rows][3 parts][dim / 32][2 row tiles], 16 pairs of dim by 16 rows
  uint8_t* sums;     // [step rows][dim / 16][2 row tiles], 16 of dim by 16 rows, float
  uint8_t* keys;     // [step keys][2 parts][dim / 32][2 key tiles], 16 keys by 16 pairs of dim
  uint8_t* values;   // [step keys][2 parts][dim / 16], 16 of dim by 16 pairs of keys
  uint8_t* scores;   // [2 steps][2 key tiles][2 row tiles], 16 keys by 16 rows, float
  uint8_t* weights;  // [2 steps][3 parts][2 row tiles], 16 pairs of keys by 16 rows
  float *highest, *total, *rescale;  // of each row
  int32_t* query;                    // of each row, counted from the first of the pass

  Space(float* scratch, int64_t rows, int64_t padded) {
    uint8_t* at = reinterpret_cast<uint8_t*>(scratch);
    const auto take = [&](int64_t bytes) { return (at += bytes) - bytes; };
    queries = take(rows * padded * kQueryBytes);
    sums = take(rows * padded * kSumBytes);
    keys = take(tile_keys(padded) * padded * kCacheBytes);
    values = take(tile_keys(padded) * padded * kCacheBytes);
    scores = take(2 * kScoreBytes);
    weights = take(2 * kWeightBytes);
    highest = reinterpret_cast<float*>(at);
    total = highest + rows;
    rescale = total + rows;
    query = reinterpret_cast<int32_t*>(rescale + rows);
  }
};

inline float* floats(uint8_t* tile) { return reinterpret_cast<float*>(tile); }
inline F upper(F x) { return from_bits(to_bits(x) & 0xffff0000u); }
// The upper halves of two registers as pairs.
inline __m512i pairs(F first, F second) {
  return _mm512_mask_blend_epi16(0xaaaaaaaa, _mm512_srli_epi32((__m512i)first, 16),
                                 (__m512i)second);
}
// The three parts of two registers as pairs, so many bytes apart.
inline void store_parts(F first, F second, uint8_t* out, int64_t part) {
  SATCHEL_UNROLL
  for (int p = 0; p < 3; ++p) {
    _mm512_storeu_si512(out + p * part, pairs(first, second));
    first = first - upper(first);
    second = second - upper(second);
  }
}
inline F half_part(const uint16_t* row, int64_t left) {
  return left <= 0 ? broadcast(0.0f) : left >= kLanes ? load_half(row) : load_half_n(row, left);
}
inline F float_part(const float* row, int64_t left) {
  return left <= 0 ? broadcast(0.0f) : load_part(row, left);
}

// Makes tiles of the keys of a step, zeros where there are none.
class KeyTiles {
 public:
  KeyTiles() = default;
  KeyTiles(const uint16_t* k, int64_t dim, int64_t padded, int64_t count, uint8_t* out)
      : k_(k), dim_(dim), padded_(padded), count_(count), key_(0), out_(out) {}
  bool left() const { return key_ < kTileStepKeys; }
  SATCHEL_APART void next() {
    for (int i = 0; i < 2; ++i, ++key_) {
      const uint16_t* row = k_ + key_ * dim_;
      for (int64_t d = 0; d < padded_; d += 2 * kLanes) {
        const int64_t left = key_ < count_ ? dim_ - d : 0;
        const F a = half_part(row + d, left), b = half_part(row + d + kLanes, left - kLanes);
        uint8_t* to = out_ + d * kTileStepKeys * 2 + key_ * 64;
        _mm512_storeu_si512(to, pairs(a, b));
        _mm512_storeu_si512(to + padded_ * kTileStepKeys * 2, pairs(a - upper(a), b - upper(b)));
      }
    }
  }

 private:
  const uint16_t* k_ = nullptr;
  int64_t dim_ = 0, padded_ = 0, count_ = 0, key_ = kTileStepKeys;
  uint8_t* out_ = nullptr;
};

// The same of values, transposed.
class ValueTiles {
 public:
  ValueTiles() = default;
  ValueTiles(const uint16_t* v, int64_t dim, int64_t padded, int64_t count, uint8_t* out)
      : v_(v), dim_(dim), padded_(padded), count_(count), out_(out) {}
  bool left() const { return d_ < padded_; }
  SATCHEL_APART void next() {
    const int64_t rest = dim_ - d_;
    F high[kLanes], low[kLanes];
    SATCHEL_UNROLL
    for (int i = 0; i < kLanes; ++i) {
      const uint16_t *first = v_ + i * dim_ + d_, *second = first + kLanes * dim_;
      const F a = half_part(first, i < count_ ? rest : 0),
              b = half_part(second, i + kLanes < count_ ? rest : 0);
      high[i] = (F)pairs(a, b);
      low[i] = (F)pairs(a - upper(a), b - upper(b));
    }
    float* to = floats(out_ + d_ / kLanes * kTileBytes);
    transpose16(high, to, kLanes);
    transpose16(low, to + padded_ * kTileStepKeys / 2, kLanes);
    d_ += kLanes;
  }

 private:
  const uint16_t* v_ = nullptr;
  int64_t dim_ = 0, padded_ = 0, count_ = 0, d_ = 0;
  uint8_t* out_ = nullptr;
};

// 16 rows of queries, `row(i)` the i-th or null, as the tiles of a row tile.
template <class Row>
void turn_queries(Row row, float sign, int64_t dim, int64_t padded, uint8_t* out) {
  const float* rows_at[kLanes];
  for (int i = 0; i < kLanes; ++i) rows_at[i] = row(i);
  const int64_t part = padded * kTileStepRows * 2;
  for (int64_t first = 0; first < padded; first += 2 * kLanes, out += kRowTiles * kTileBytes) {
    alignas(64) float transposed[2 * kLanes][kLanes];
    for (int half = 0; half < 2; ++half) {
      const int64_t d = first + half * kLanes;
      F rows[kLanes];
      SATCHEL_UNROLL
      for (int i = 0; i < kLanes; ++i) {
        rows[i] = float_part(rows_at[i] + d, rows_at[i] ? dim - d : 0) * broadcast(sign);
      }
      transpose16(rows, transposed[half * kLanes], kLanes);
    }
    SATCHEL_UNROLL
    for (int i = 0; i < kLanes; ++i) {
      store_parts(load(transposed[i]), load(transposed[kLanes + i]), out + i * 64, part);
    }
  }
}

}  // namespace
}  // namespace satchel
