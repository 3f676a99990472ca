#include "run_case.h"

#include <algorithm>

#include "../kernels/half.h"
#include "guarded.h"

using namespace satchel;

namespace {

using Floats = Guarded<float>;

size_t size_of(int64_t n) { return static_cast<size_t>(n); }

Floats floats(const Case& c, const std::string& key) {
  const auto found = c.floats.find(key);
  if (found == c.floats.end()) throw std::runtime_error(c.name + ": there is no array " + key);
  return Floats(found->second);
}

// The values of an array that need not be there.
template <class T>
std::vector<T> values(const std::map<std::string, std::vector<T>>& arrays, const std::string& key) {
  const auto found = arrays.find(key);
  return found == arrays.end() ? std::vector<T>{} : found->second;
}

template <class T>
std::vector<double> widened(const Guarded<T>& values) {
  return {values.get(), values.get() + values.size()};
}

// Room for quantised rows.
struct Rows {
  Guarded<int8_t> codes;
  Floats scales;
  Guarded<int32_t> sums;
  QuantizedRows view;

  Rows(int64_t rows, int64_t cols, int64_t group)
      : codes(size_of(rows * ((cols + 63) / 64 * 64))),
        scales(size_of(rows)),
        sums(size_of(rows * (cols / group))),
        view{rows, cols, (cols + 63) / 64 * 64, group, codes.get(), scales.get(), sums.get()} {}
};

void run_quantize_rows(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Floats x = floats(c, "x");
  const int64_t cols = c.integer("cols"), rows = static_cast<int64_t>(x.size()) / cols;
  const bool two_digits = c.op == "quantize_rows16";
  const Rows quantized(two_digits ? 2 * rows : rows, cols, c.integer("group"));
  (two_digits ? kernels.quantize_rows16 : kernels.quantize_rows)(x.get(), cols, quantized.view);
  outcome.outputs["codes"] = widened(quantized.codes);
  outcome.outputs["scales"] = widened(quantized.scales);
  outcome.outputs["sums"] = widened(quantized.sums);
}

void run_quantize_cache(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const int64_t dim = c.integer("dim");
  const Floats x = floats(c, "x");
  std::vector<double>& rows = outcome.outputs["rows"];
  for (size_t i = 0; i < x.size(); i += size_of(dim)) {
    Guarded<uint8_t> row(size_of(dim + kCacheTail));
    kernels.quantize_cache(x.get() + i, dim, row.get());
    rows.insert(rows.end(), row.get(), row.get() + row.size());
  }
}

// A packed matrix in guarded memory.
struct Weights {
  Guarded<uint8_t> codes;
  Guarded<uint16_t> scales;
  PackedMatrix view;

  explicit Weights(const Case& c)
      : codes(c.bytes.at("codes")),
        scales(values(c.words, "scales")),
        view{static_cast<MatrixEncoding>(c.integer("encoding")),
             c.integer("rows"),
             c.integer("cols"),
             c.integer("group"),
             codes.get(),
             scales.get()} {}
};

struct LinearCall {
  const KernelTable& kernels;
  const PackedMatrix& w;
  const float* bias;

  // Rows [first, first + m) of x against a range of tiles, into those places of y.
  void operator()(const Floats& x, int64_t first, int64_t m, int64_t tile_begin, int64_t tile_end,
                  Floats& y) const {
    const bool from_zero =
        w.encoding == MatrixEncoding::q4_min || w.encoding == MatrixEncoding::q5_min;
    const bool floats = w.encoding == MatrixEncoding::f32 || w.encoding == MatrixEncoding::f16;
    const float* input = x.get() + first * w.cols;
    float* output = y.get() + first * w.rows;
    if (!floats) {
      const Rows rows(m, w.cols, w.group);
      kernels.quantize_rows(input, w.cols, rows.view);
      if (from_zero) std::fill_n(rows.view.sums, m * (w.cols / w.group), 0);
      quantized_kernel(kernels, w, 1, m)
          .run(rows.view, w, bias, tile_begin, tile_end, output, w.rows);
    } else {
      const bool f32 = w.encoding == MatrixEncoding::f32;
      (f32 ? kernels.linear_f32 : kernels.linear_f16)(input, w.cols, m, w, bias, Activation::none,
                                                      tile_begin, tile_end, output, w.rows);
    }
  }
};

void run_linear(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Floats x = floats(c, "x");
  const Weights weights(c);
  const PackedMatrix& w = weights.view;
  const Floats bias(values(c.floats, "bias"));
  const LinearCall linear{kernels, w, bias.size() != 0 ? bias.get() : nullptr};
  const int64_t m = static_cast<int64_t>(x.size()) / w.cols;
  const int64_t tiles = (w.rows + kTileRows - 1) / kTileRows;
  const size_t values = size_of(m * w.rows);

  Floats whole(values), again(values), alone(values), by_tile(values);
  linear(x, 0, m, 0, tiles, whole);
  linear(x, 0, m, 0, tiles, again);
  for (int64_t i = 0; i < m; ++i) linear(x, i, 1, 0, tiles, alone);
  for (int64_t t = 0; t < tiles; ++t) linear(x, 0, m, t, t + 1, by_tile);
  outcome.outputs["y"] = widened(whole);
  if (!whole.same_bits(again)) outcome.changed_bits.push_back("again");
  if (!whole.same_bits(alone)) outcome.changed_bits.push_back("each row alone");
  if (!whole.same_bits(by_tile)) outcome.changed_bits.push_back("each tile alone");
}

void run_unpack(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Weights weights(c);
  Floats out(size_of(weights.view.rows * weights.view.cols));
  for (int64_t row = 0; row < weights.view.rows; ++row) {
    Floats one(size_of(weights.view.cols));
    kernels.unpack_row(weights.view, row, one.get());
    std::copy_n(one.get(), one.size(), out.get() + row * weights.view.cols);
  }
  outcome.outputs["y"] = widened(out);
}

// Keys or values, of one of three types.
struct Cache {
  Floats floats;
  Guarded<uint16_t> halves;
  Guarded<uint8_t> bytes;

  Cache(const Case& c, const std::string& key)
      : floats(values(c.floats, key)), halves(values(c.words, key)), bytes(values(c.bytes, key)) {}
  const void* start() const {
    if (bytes.size() != 0) return bytes.get();
    if (halves.size() != 0) return halves.get();
    return floats.get();
  }
};

void run_attention(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Floats q = floats(c, "q");
  const Cache k(c, "k"), v(c, "v");
  AttentionArgs args{};
  args.q = q.get();
  args.k = k.start();
  args.v = v.start();
  args.heads = c.integer("heads");
  args.kv_heads = c.integer("kv_heads");
  args.dim = c.integer("dim");
  args.position = c.integer("position");
  args.window = c.integer("window");
  args.scale = static_cast<float>(c.number("scale"));
  args.softcap = static_cast<float>(c.number("softcap"));
  args.half_cache = k.halves.size() != 0;
  args.byte_cache = k.bytes.size() != 0;
  lay_in_line(args, c.integer("capacity"));
  args.queries = static_cast<int64_t>(q.size()) / (args.heads * args.dim);
  const auto run = [&](Floats& out, int64_t step) {
    args.out = out.get();
    for (int64_t head = 0; head < args.kv_heads; ++head) {
      for (int64_t i = 0; i < args.queries; i += step) {
        Floats scratch(attention_scratch(args.heads / args.kv_heads, args.dim));
        kernels.attention(args, head, i, std::min(i + step, args.queries), scratch.get());
      }
    }
  };
  Floats whole(q.size()), again(q.size()), alone(q.size());
  run(whole, args.queries);
  run(again, args.queries);
  run(alone, 1);
  outcome.outputs["y"] = widened(whole);
  if (!whole.same_bits(again)) outcome.changed_bits.push_back("again");
  if (!whole.same_bits(alone)) outcome.changed_bits.push_back("each query alone");
}

void run_norm(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Floats x = floats(c, "x"), weight = floats(c, "weight");
  const int64_t cols = static_cast<int64_t>(weight.size());
  const int64_t rows = static_cast<int64_t>(x.size()) / cols;
  const float eps = static_cast<float>(c.number("eps"));
  Floats out(x.size());
  if (c.op == "rms_norm") {
    kernels.rms_norm(x.get(), weight.get(), eps, rows, cols, out.get());
  } else {
    const Floats bias(values(c.floats, "bias"));
    kernels.layer_norm(x.get(), weight.get(), bias.size() != 0 ? bias.get() : nullptr, eps, rows,
                       cols, out.get());
  }
  outcome.outputs["y"] = widened(out);
}

void run_rope(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Floats x = floats(c, "x"), cos_sin = floats(c, "cos_sin");
  const int64_t rotary = c.integer("rotary"), dim = c.integer("dim"), heads = c.integer("heads");
  Floats out(x.size());
  kernels.rope(x.get(), cos_sin.get(), static_cast<int64_t>(cos_sin.size()) / rotary, heads, dim,
               rotary, out.get());
  outcome.outputs["y"] = widened(out);
}

void run_float_to_half(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Floats x = floats(c, "x");
  Guarded<uint16_t> out(x.size());
  kernels.float_to_half(x.get(), static_cast<int64_t>(x.size()), out.get());
  std::vector<double>& y = outcome.outputs["y"];
  for (size_t i = 0; i < out.size(); ++i) y.push_back(half_bits_to_float(out.get()[i]));
}

void run_half_to_float(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Guarded<uint16_t> x(c.words.at("x"));
  Floats out(x.size());
  kernels.half_to_float(x.get(), static_cast<int64_t>(x.size()), out.get());
  outcome.outputs["y"] = widened(out);
}

void run_pairwise(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Floats a = floats(c, "a"), b = floats(c, "b");
  Floats out(a.size());
  const auto function = c.op == "add"        ? kernels.add
                        : c.op == "mul"      ? kernels.mul
                        : c.op == "silu_mul" ? kernels.silu_mul
                                             : kernels.gelu_tanh_mul;
  function(a.get(), b.get(), static_cast<int64_t>(a.size()), out.get());
  outcome.outputs["y"] = widened(out);
}

}  // namespace

Outcome run_case(const Case& c, const KernelTable& kernels) {
  static const std::map<std::string, Runner> runners{{"linear", run_linear},
                                                     {"quantize_rows", run_quantize_rows},
                                                     {"quantize_rows16", run_quantize_rows},
                                                     {"quantize_cache", run_quantize_cache},
                                                     {"unpack_row", run_unpack},
                                                     {"attention", run_attention},
                                                     {"rms_norm", run_norm},
                                                     {"layer_norm", run_norm},
                                                     {"rope", run_rope},
                                                     {"float_to_half", run_float_to_half},
                                                     {"half_to_float", run_half_to_float},
                                                     {"add", run_pairwise},
                                                     {"mul", run_pairwise},
                                                     {"silu_mul", run_pairwise},
                                                     {"gelu_tanh_mul", run_pairwise}};
  const auto& table = image_runners().count(c.op) != 0 ? image_runners() : runners;
  const auto found = table.find(c.op);
  if (found == table.end()) throw std::runtime_error("there is no op named '" + c.op + "'");
  Outcome outcome;
  found->second(c, kernels, outcome);
  return outcome;
}
