// qattention_qkv: attention of codes of 8 bits, in integers.
//
// Keys and values are packed as matrices of whole numbers, so that scores and results are the
// products of integer layers; between them, a row of scores becomes codes again.
#include <algorithm>
#include <cmath>

#include "../attention_windows.h"

namespace satchel {

namespace {

constexpr int64_t kQueries = 64;  // whose scores are held at a time
constexpr int64_t kMostTokens = 2048;
constexpr int32_t kZero = 128;          // the code of zero
constexpr uint32_t kFlip = 0x80808080;  // makes a code the signed number that it stands for

struct Problem {
  const uint8_t* x;     // [rows][3][heads][size]
  const float* scales;  // [3][heads]
  Windows windows;
  int64_t size;
  float scale;
  CodeStep8 out_step;
  bool to_codes;
  uint8_t* out;  // [rows][heads][size], codes or floats

  int64_t step() const { return 3 * windows.heads * size; }
  const uint8_t* token(int64_t entry, int64_t number) const {
    return x + windows.row(entry, number) * step();
  }
};

// A head's queries, keys or values: the same place of each of an entry's tokens.
struct Part {
  const uint8_t* const* tokens;
  int64_t offset;

  Part(const Problem& p, const uint8_t* const* rows, int64_t head, int64_t number)
      : tokens(rows), offset((number * p.windows.heads + head) * p.size) {}
  const uint8_t* operator[](int64_t token) const { return tokens[token] + offset; }
};

// A thread's scratch, in bytes.
struct Layout {
  int64_t padded, steps;  // keys in whole tiles, and in steps of four
  size_t tokens, keys, key_sums, values, value_sums, factors, queries, scores, codes, totals, sums,
      results, total;

  explicit Layout(const Problem& p)
      : padded(whole_tiles(p.windows.tokens)), steps((p.windows.tokens + 3) / 4) {
    const int64_t wide = std::max(padded, whole_tiles(p.size));
    size_t at = 0;
    const auto place = [&](int64_t bytes) {
      const size_t here = at;
      at += static_cast<size_t>((bytes + 63) / 64 * 64);
      return here;
    };
    tokens = place(p.windows.tokens * static_cast<int64_t>(sizeof(uint8_t*)));
    keys = place(padded * p.size);
    key_sums = place(padded * 4);
    values = place(whole_tiles(p.size) * steps * 4);
    value_sums = place(whole_tiles(p.size) * 4);
    factors = place(wide * 4);
    queries = place(p.windows.rows ? kQueries * p.size : 0);
    scores = place(kQueries * padded * 4);
    codes = place(kQueries * padded);
    totals = place(kQueries * 4);
    sums = place(kQueries * p.size * 4);
    results = place(p.to_codes ? kQueries * p.size : 0);
    total = at;
  }
};

// Copies a number of bytes that is a multiple of four.
inline void copy_fours(const uint8_t* from, int64_t bytes, uint8_t* to) {
  int64_t i = 0;
  for (; i + 16 <= bytes; i += 16) std::memcpy(to + i, from + i, 16);
  for (; i < bytes; i += 4) std::memcpy(to + i, from + i, 4);
}

// The sum of each row's numbers, of rows in tiles [padded/16][units][16][4]; what is missing counts
// as codes of zero.
void add_up_rows(const uint8_t* rows, int64_t padded, int64_t units, int32_t* out) {
  typedef uint32_t V __attribute__((vector_size(16)));
  constexpr int64_t kFitting = 128;  // units whose sums of two bytes have room in 16 bits
  const uint32_t pairs = 0x00ff00ff;
  const int64_t size = units * 4;
  for (int64_t first = 0; first < padded; first += 4) {
    const uint8_t* tile = rows + first / kTileRows * kTileRows * size + first % kTileRows * 4;
    V total{};
    for (int64_t unit = 0; unit < units;) {
      V sums{};
      for (const int64_t end = std::min(units, unit + kFitting); unit < end; ++unit) {
        V v;
        std::memcpy(&v, tile + unit * 4 * kTileRows, sizeof v);
        v ^= kFlip;
        sums += (v & pairs) + (v >> 8 & pairs);
      }
      total += (sums & 0xffff) + (sums >> 16);
    }
    total -= static_cast<uint32_t>(kZero * size);
    std::memcpy(out + first, &total, sizeof total);
  }
}

// Rows of codes to tiles [size/16][keys/4][16][4] of signed numbers.
void pack_values(const Part& values, int64_t tokens, int64_t size, int64_t steps, uint8_t* out) {
  typedef uint8_t V __attribute__((vector_size(16)));
  constexpr auto kCode = static_cast<uint8_t>(kZero);
  const V nothing = {kCode, kCode, kCode, kCode, kCode, kCode, kCode, kCode,
                     kCode, kCode, kCode, kCode, kCode, kCode, kCode, kCode};
  for (int64_t first = 0; first < size; first += kTileRows) {
    const int64_t there = std::min(kTileRows, size - first);
    for (int64_t step = 0; step < steps; ++step, out += 64) {
      V v[4] = {nothing, nothing, nothing, nothing};
      for (int64_t i = 0; i < 4; ++i) {
        const int64_t key = step * 4 + i;
        if (key >= tokens) continue;
        if (there == kTileRows) {
          std::memcpy(&v[i], values[key] + first, sizeof v[i]);
        } else {
          copy_fours(values[key] + first, there, reinterpret_cast<uint8_t*>(&v[i]));
        }
      }
      for (V& one : v) one ^= kCode;
#define LOW(a, b) \
  __builtin_shufflevector(a, b, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23)
#define HIGH(a, b) \
  __builtin_shufflevector(a, b, 8, 24, 9, 25, 10, 26, 11, 27, 12, 28, 13, 29, 14, 30, 15, 31)
      // Bytes 0 and 2 of a unit, and 1 and 3, then both.
      const V even[2] = {LOW(v[0], v[2]), HIGH(v[0], v[2])},
              odd[2] = {LOW(v[1], v[3]), HIGH(v[1], v[3])};
      const V units[4] = {LOW(even[0], odd[0]), HIGH(even[0], odd[0]), LOW(even[1], odd[1]),
                          HIGH(even[1], odd[1])};
#undef LOW
#undef HIGH
      std::memcpy(out, units, 64);
    }
  }
}

IntegerResult floats(int32_t x_zero, const float* scale, float* out, int64_t ldo) {
  IntegerResult r{};
  r.x_zero = x_zero;
  r.scale = scale;
  r.activation = Activation::none;
  r.out = out;
  r.ldo = ldo;
  return r;
}

void attend(const Problem& p, const KernelTable& k, int64_t entry, int64_t head, const Layout& at,
            uint8_t* scratch) {
  const int64_t heads = p.windows.heads, tokens = p.windows.tokens;
  const auto f32 = [&](size_t place) { return reinterpret_cast<float*>(scratch + place); };
  auto* key_sums = reinterpret_cast<int32_t*>(scratch + at.key_sums);
  auto* value_sums = reinterpret_cast<int32_t*>(scratch + at.value_sums);
  auto* rows_of = reinterpret_cast<const uint8_t**>(scratch + at.tokens);
  for (int64_t i = 0; i < tokens; ++i) rows_of[i] = p.token(entry, i);
  const Part all_queries(p, rows_of, head, 0), all_keys(p, rows_of, head, 1),
      all_values(p, rows_of, head, 2);
  pack_transposed(
      tokens, p.size / 4, kFlip, [&](int64_t i) { return all_keys[i]; },
      reinterpret_cast<uint32_t*>(scratch + at.keys));
  add_up_rows(scratch + at.keys, at.padded, p.size / 4, key_sums);
  pack_values(all_values, tokens, p.size, at.steps, scratch + at.values);
  add_up_rows(scratch + at.values, whole_tiles(p.size), at.steps, value_sums);
  const IntegerMatrix keys{tokens, p.size / 4, reinterpret_cast<const int8_t*>(scratch + at.keys),
                           key_sums};
  const IntegerMatrix values{p.size, at.steps, reinterpret_cast<const int8_t*>(scratch + at.values),
                             value_sums};
  const float score_scale = p.scales[head] * p.scales[heads + head] * p.scale;
  for (int64_t first = 0; first < tokens; first += kQueries) {
    const int64_t rows = std::min(kQueries, tokens - first);
    const uint8_t* queries = all_queries[first];
    int64_t step = p.step();
    if (p.windows.rows) {
      step = p.size;
      for (int64_t i = 0; i < rows; ++i)
        copy_fours(all_queries[first + i], step, scratch + at.queries + i * step);
      queries = scratch + at.queries;
    }
    std::fill_n(f32(at.factors), at.padded, score_scale);
    k.linear_i8(queries, step, rows, keys,
                floats(kZero, f32(at.factors), f32(at.scores), at.padded), 0,
                at.padded / kTileRows);
    k.softmax_codes({f32(at.scores), rows, tokens, at.padded,
                     p.windows.bias_row(entry, head, first), p.windows.bias_stride(),
                     scratch + at.codes, f32(at.totals)});
    std::fill_n(f32(at.factors), whole_tiles(p.size), p.scales[2 * heads + head]);
    k.linear_i8(scratch + at.codes, at.padded, rows, values,
                floats(0, f32(at.factors), f32(at.sums), p.size), 0,
                whole_tiles(p.size) / kTileRows);
    float* inverse = f32(at.totals);
    for (int64_t i = 0; i < rows; ++i) inverse[i] = 1.0f / std::max(inverse[i], 1.0f);
    const int64_t bytes = p.size * (p.to_codes ? 1 : static_cast<int64_t>(sizeof(float)));
    uint8_t* results = scratch + (p.to_codes ? at.results : at.sums);
    if (p.to_codes) {
      k.quantize_scaled(f32(at.sums), rows, p.size, inverse, p.out_step, results);
    } else {
      for (int64_t i = 0; i < rows; ++i) {
        float* row = f32(at.sums) + i * p.size;
        for (int64_t d = 0; d < p.size; ++d) row[d] *= inverse[i];
      }
    }
    for (int64_t i = 0; i < rows; ++i) {
      copy_fours(results + i * bytes, bytes,
                 p.out + (p.windows.row(entry, first + i) * heads + head) * bytes);
    }
  }
}

Problem problem_of(const NodeCall& call) {
  const Tensor& x = call.in(0);
  Problem p{};
  p.x = x.data;
  p.scales = call.in(1).f32();
  p.windows = windows_of(call, 2);
  p.size = x.shape[4];
  p.scale = static_cast<float>(call.params.number[0]);
  p.out_step = {static_cast<float>(call.params.number[1]),
                static_cast<int32_t>(call.params.integer[0])};
  p.to_codes = call.output->dtype == DType::u8;
  p.out = call.output->data;
  return p;
}

void check(NodeCall& call) {
  const Tensor &x = call.in(0), &scales = call.in(1), &y = *call.output;
  require_array(call, x, DType::u8);
  require_array(call, scales, DType::f32);
  require(x.rank == 5 && x.shape[2] == 3 && y.rank == 4 &&
              std::equal(y.shape, y.shape + 2, x.shape) &&
              std::equal(y.shape + 2, y.shape + 4, x.shape + 3),
          call, "need x [B, T, 3, H, D] and an output [B, T, H, D]");
  require(scales.rank == 2 && scales.shape[0] == 3 && scales.shape[1] == x.shape[3], call,
          "the scales must be [3, H]");
  require(x.shape[4] % 4 == 0, call, "heads must be of whole fours");
  check_windows(call, 2);
  call.params.number[0] = number_attribute(call, "scale");
  const double out_scale = number_attribute(call, "out_scale", 0.0);
  const int64_t out_zero = int_attribute(call, "out_zero", 0);
  require(out_scale == 0.0 || (out_scale >= 1e-30 && out_scale <= 1e30), call,
          "the scale is out of range");
  require(out_zero >= 0 && out_zero <= 255, call, "the zero point is not a code");
  require_array(call, y, out_scale == 0.0 ? DType::f32 : DType::u8);
  call.params.number[1] = out_scale;
  call.params.integer[0] = out_zero;
  const Problem p = problem_of(call);
  require(p.windows.tokens <= kMostTokens && p.size <= kMostTokens, call,
          "there are too many tokens");
}

size_t scratch_of(const NodeCall& call, int threads) {
  return Layout(problem_of(call)).total * static_cast<size_t>(threads);
}

void run(const NodeCall& call, const Workspace& work) {
  const Problem p = problem_of(call);
  require_rows(p.windows);
  const Layout at(p);
  const int64_t items = p.windows.entries * p.windows.heads;
  const int64_t grain = std::clamp<int64_t>(items / (4 * work.pool.size()), 1, p.windows.heads);
  work.pool.parallel_for(items, grain, [&](int64_t first, int64_t last, int thread) {
    uint8_t* scratch = work.scratch + static_cast<size_t>(thread) * at.total;
    for (int64_t item = first; item < last; ++item) {
      attend(p, work.kernels, item / p.windows.heads, item % p.windows.heads, at, scratch);
    }
  });
}

const OpDef kOps[] = {
    {{"qattention_qkv", 2, 5, false, {"scale", "out_scale", "out_zero"}, check}, {run, scratch_of}},
};

}  // namespace

std::span<const OpDef> attention_codes_ops() { return kOps; }

}  // namespace satchel
