// _native.kernels: what the CPU offers, packing for export, and every kernel by table name, so
// that tests reach each instruction set. Shapes are checked here; the kernels trust their caller.

#include "kernels.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <limits>
#include <memory>
#include <optional>
#include <stdexcept>

#include "bandwidth.h"
#include "int8_rate.h"
#include "machine.h"
#include "pack.h"

namespace nb = nanobind;
using namespace satchel;

namespace {

template <class T, size_t N>
using Array = nb::ndarray<const T, nb::ndim<N>, nb::c_contig, nb::device::cpu>;
using Vector = Array<float, 1>;
using Matrix = Array<float, 2>;
using Cube = Array<float, 3>;
using Codes = Array<uint8_t, 1>;
using Scales = Array<uint16_t, 1>;
template <class T>
using Result = nb::ndarray<nb::numpy, T>;

void require(bool holds, const char* message) {
  if (!holds) throw nb::value_error(message);
}

MatrixEncoding encoding_of(const std::string& name) {
  if (name == "f32") return MatrixEncoding::f32;
  if (name == "f16") return MatrixEncoding::f16;
  if (name == "q4") return MatrixEncoding::q4;
  if (name == "q8") return MatrixEncoding::q8;
  if (name == "lpbq4") return MatrixEncoding::lpbq4;
  if (name == "q4_min") return MatrixEncoding::q4_min;
  if (name == "q4_steps") return MatrixEncoding::q4_steps;
  if (name == "i8") return MatrixEncoding::i8;
  if (name == "q5") return MatrixEncoding::q5;
  if (name == "q5_min") return MatrixEncoding::q5_min;
  if (name == "q4_k") return MatrixEncoding::q4_k;
  if (name == "q5_k") return MatrixEncoding::q5_k;
  if (name == "q6_k") return MatrixEncoding::q6_k;
  throw nb::value_error(
      "an encoding is one of f32, f16, q4, q8, lpbq4, q4_min, q4_steps, i8, q5, q5_min, q4_k, "
      "q5_k, q6_k");
}

bool is_quantized(MatrixEncoding e) {
  return e == MatrixEncoding::q4 || e == MatrixEncoding::q8 || e == MatrixEncoding::q4_min ||
         e == MatrixEncoding::q4_steps || is_k(e);
}

// The encodings whose codes come from checkpoints.
bool is_kept(MatrixEncoding e) { return e == MatrixEncoding::q4_min || is_k(e); }

// A new numpy array and the memory that it owns.
template <class T>
struct Owned {
  std::vector<size_t> shape;
  std::unique_ptr<T[]> data;

  explicit Owned(std::vector<size_t> sizes, T fill = T{}) : shape(std::move(sizes)) {
    size_t count = 1;
    for (size_t s : shape) count *= s;
    data.reset(new T[count]);
    std::fill_n(data.get(), count, fill);
  }
  T* get() { return data.get(); }
  Result<T> array() {
    T* raw = data.release();
    nb::capsule owner(raw, [](void* p) noexcept { delete[] static_cast<T*>(p); });
    return Result<T>(raw, shape.size(), shape.data(), owner);
  }
};

size_t size_of(int64_t n) { return static_cast<size_t>(n); }

template <class A>
int64_t dim(const A& array, size_t axis) {
  return static_cast<int64_t>(array.shape(axis));
}

nb::tuple pack(const Matrix& rows, const std::string& encoding, int64_t group, int threads) {
  const MatrixEncoding e = encoding_of(encoding);
  require(!is_kept(e), "nothing is rounded to this encoding");
  const int64_t n = dim(rows, 0), cols = dim(rows, 1);
  const PackedSizes sizes = packed_sizes(e, n, cols, group);
  Owned<uint8_t> codes({sizes.codes});
  Owned<uint16_t> scales({sizes.scales / 2});
  PackStats stats;
  {
    nb::gil_scoped_release released;
    pack_rows(e, rows.data(), n, cols, group, codes.get(), scales.get(), &stats, threads);
  }
  nb::dict described;
  described["squared_error"] = stats.squared_error;
  described["squared_weight"] = stats.squared_weight;
  described["first_bad"] = stats.first_bad;
  return nb::make_tuple(codes.array(), scales.array(), described);
}

PackedMatrix packed_matrix(const Codes& codes, const std::optional<Scales>& scales,
                           const std::string& encoding, int64_t rows, int64_t cols, int64_t group) {
  const MatrixEncoding e = encoding_of(encoding);
  require(e != MatrixEncoding::lpbq4, "to a kernel, lpbq4 is q4");
  require(e != MatrixEncoding::i8, "the kernels of i8 are those of ops");
  const PackedSizes sizes = packed_sizes(e, rows, cols, group);
  require(codes.size() == sizes.codes, "codes have the wrong size for this matrix");
  require(!is_quantized(e) || scales.has_value(), "a quantised matrix needs scales");
  require(!is_quantized(e) || scales->size() * 2 == sizes.scales,
          "scales have the wrong size for this matrix");
  return {e, rows, cols, group, codes.data(), is_quantized(e) ? scales->data() : nullptr};
}

// Quantised rows and the memory behind them; those of 16 bits are two each.
struct OwnedRows {
  Owned<int8_t> codes;
  Owned<float> scales;
  Owned<int32_t> sums;
  QuantizedRows view;

  OwnedRows(const KernelTable& kernels, const Matrix& x, int64_t group, int bits = 8)
      : codes({x.shape(0) * size_of(bits / 8), (x.shape(1) + 63) / 64 * 64}, int8_t{1}),
        scales({codes.shape[0]}),
        sums({codes.shape[0], x.shape(1) / size_of(group)}),
        view{static_cast<int64_t>(codes.shape[0]),
             dim(x, 1),
             static_cast<int64_t>(codes.shape[1]),
             group,
             codes.get(),
             scales.get(),
             sums.get(),
             bits / 8} {
    const auto quantize = bits == 8 ? kernels.quantize_rows : kernels.quantize_rows16;
    quantize(x.data(), dim(x, 1), view);
  }
};

nb::tuple quantize_rows(const std::string& table, const Matrix& x, int64_t group, int bits) {
  require(group > 0 && dim(x, 1) % group == 0, "the group must divide the columns");
  require(bits == 8 || bits == 16, "activations have 8 or 16 bits");
  OwnedRows rows(kernels_by_name(table), x, group, bits);
  return nb::make_tuple(rows.codes.array(), rows.scales.array(), rows.sums.array());
}

Result<uint8_t> quantize_cache(const std::string& table, const Vector& x) {
  require(dim(x, 0) > 0, "a row of a cache has at least one value");
  Owned<uint8_t> out({x.shape(0) + size_of(kCacheTail)});
  kernels_by_name(table).quantize_cache(x.data(), dim(x, 0), out.get());
  return out.array();
}

// Columns of the result outside the range of tiles stay NaN.
Result<float> linear(const std::string& table, const Matrix& x, const Codes& codes,
                     const std::optional<Scales>& scales, const std::string& encoding, int64_t rows,
                     int64_t group, const std::optional<Vector>& bias, int64_t tile_begin,
                     std::optional<int64_t> tile_end, int bits) {
  const KernelTable& kernels = kernels_by_name(table);
  const int64_t m = dim(x, 0), cols = dim(x, 1), tiles = (rows + kTileRows - 1) / kTileRows;
  const PackedMatrix w = packed_matrix(codes, scales, encoding, rows, cols, group);
  const int64_t end = tile_end.value_or(tiles);
  require(0 <= tile_begin && tile_begin <= end && end <= tiles, "there are no such tiles");
  require(!bias || dim(*bias, 0) == rows, "the bias needs one value per row of the matrix");
  require(bits == 8 || bits == 16, "activations have 8 or 16 bits");
  const float* b = bias ? bias->data() : nullptr;
  Owned<float> y({size_of(m), size_of(rows)}, std::numeric_limits<float>::quiet_NaN());
  if (is_quantized(w.encoding)) {
    OwnedRows q(kernels, x, group, bits);
    if (w.encoding == MatrixEncoding::q4_min || w.encoding == MatrixEncoding::q5_min) {
      std::fill_n(q.sums.get(), q.view.rows * (cols / group), 0);
    }
    const QuantizedKernel kernel = quantized_kernel(kernels, w, q.view.digits, m);
    if (kernel.rows == 1) {
      kernel.run(q.view, w, b, tile_begin, end, y.get(), rows);
      return y.array();
    }
    require(!b, "a bias is added behind the sum of both digits");
    Owned<float> digits({size_of(2 * m), size_of(rows)}, std::numeric_limits<float>::quiet_NaN());
    kernel.run(q.view, w, nullptr, tile_begin, end, digits.get(), rows);
    for (int64_t i = 0; i < m * rows; ++i) {
      const int64_t high = (i / rows * 2) * rows + i % rows;
      y.get()[i] = digits.get()[high] + digits.get()[high + rows];
    }
  } else {
    const auto run = w.encoding == MatrixEncoding::f32 ? kernels.linear_f32 : kernels.linear_f16;
    run(x.data(), cols, m, w, b, Activation::none, tile_begin, end, y.get(), rows);
  }
  return y.array();
}

Result<float> unpack(const std::string& table, const Codes& codes,
                     const std::optional<Scales>& scales, const std::string& encoding, int64_t rows,
                     int64_t cols, int64_t group, int64_t row) {
  const PackedMatrix w = packed_matrix(codes, scales, encoding, rows, cols, group);
  require(0 <= row && row < rows, "the matrix has no such row");
  Owned<float> out({size_of(cols)});
  kernels_by_name(table).unpack_row(w, row, out.get());
  return out.array();
}

template <typename Cache>
Result<float> attention(const std::string& table, const Cube& q, const Array<Cache, 3>& k,
                        const Array<Cache, 3>& v, int64_t position, float scale, int64_t window,
                        float softcap, const std::optional<Array<int32_t, 1>>& parents,
                        const std::optional<Array<int32_t, 1>>& pages, bool level) {
  const KernelTable& kernels = kernels_by_name(table);
  const int64_t queries = dim(q, 0), heads = dim(q, 1), size = dim(q, 2);
  for (size_t axis = 0; axis < 3; ++axis) {
    require(k.shape(axis) == v.shape(axis), "keys and values differ in shape");
  }
  // In pages, k and v are [pages * kv_heads, kKeyBlock, row], all pages of which are named once.
  const int64_t blocks = pages ? dim(*pages, 0) : 1;
  require(blocks > 0 && dim(k, 0) % blocks == 0, "the pages do not fit the cache");
  require(!pages || dim(k, 1) == kKeyBlock, "a page has 64 rows");
  const int64_t kv_heads = dim(k, 0) / blocks, capacity = dim(k, 1) * blocks;
  constexpr int64_t tail = sizeof(Cache) == 1 ? kCacheTail : 0;
  require(dim(k, 2) == size + tail && size > 0, "queries and keys differ in their last size");
  require(kv_heads > 0 && heads > 0 && heads % kv_heads == 0, "the kv heads must divide the heads");
  require(position >= 0 && window >= 0, "position and window are not negative");
  require(position + (level ? 1 : queries) <= capacity,
          "the cache is too short for these positions");
  Owned<float> out({size_of(queries), size_of(heads), size_of(size)});
  const std::unique_ptr<float[]> scratch(new float[attention_scratch(heads / kv_heads, size)]);
  AttentionArgs args{};
  args.q = q.data(), args.k = k.data(), args.v = v.data(), args.out = out.get();
  args.queries = queries, args.heads = heads, args.kv_heads = kv_heads, args.dim = size;
  args.position = position, args.window = window, args.scale = scale, args.softcap = softcap;
  args.half_cache = sizeof(Cache) == 2, args.byte_cache = sizeof(Cache) == 1, args.level = level;
  lay_in_line(args, capacity);
  if (pages) {
    for (int64_t i = 0; i < blocks; ++i) {
      require(pages->data()[i] >= 0 && pages->data()[i] < blocks, "there is no such page");
    }
    lay_in_pages(args, pages->data());
  }
  std::vector<int32_t> depths;
  if (parents) {
    require(dim(*parents, 0) == queries, "there must be one parent for each query");
    for (int64_t i = 0; i < queries; ++i) {
      const int32_t parent = parents->data()[i];
      require(-1 <= parent && parent < i, "a parent is an earlier query, or -1");
      depths.push_back(parent < 0 ? 0 : depths[size_of(parent)] + 1);
    }
    args.parents = parents->data();
    args.depths = depths.data();
  }
  for (int64_t head = 0; head < kv_heads; ++head) {
    kernels.attention(args, head, 0, queries, scratch.get());
  }
  return out.array();
}

Result<float> rms_norm(const std::string& table, const Matrix& x, const Vector& weight, float eps) {
  require(weight.shape(0) == x.shape(1), "the weight needs one value per column");
  Owned<float> out({x.shape(0), x.shape(1)});
  kernels_by_name(table).rms_norm(x.data(), weight.data(), eps, dim(x, 0), dim(x, 1), out.get());
  return out.array();
}

Result<float> layer_norm(const std::string& table, const Matrix& x, const Vector& weight,
                         const std::optional<Vector>& bias, float eps) {
  require(weight.shape(0) == x.shape(1), "the weight needs one value per column");
  require(!bias || bias->shape(0) == x.shape(1), "the bias needs one value per column");
  Owned<float> out({x.shape(0), x.shape(1)});
  kernels_by_name(table).layer_norm(x.data(), weight.data(), bias ? bias->data() : nullptr, eps,
                                    dim(x, 0), dim(x, 1), out.get());
  return out.array();
}

Result<float> rope(const std::string& table, const Cube& x, const Matrix& cos_sin) {
  require(cos_sin.shape(0) == x.shape(0), "one row of cosines and sines per row of x");
  require(cos_sin.shape(1) % 2 == 0 && cos_sin.shape(1) <= x.shape(2),
          "the rotary size is even and not larger than a head");
  Owned<float> out({x.shape(0), x.shape(1), x.shape(2)});
  kernels_by_name(table).rope(x.data(), cos_sin.data(), dim(x, 0), dim(x, 1), dim(x, 2),
                              dim(cos_sin, 1), out.get());
  return out.array();
}

template <auto Member>
Result<float> pairwise(const std::string& table, const Vector& a, const Vector& b) {
  require(a.shape(0) == b.shape(0), "both arrays need the same size");
  Owned<float> out({a.shape(0)});
  (kernels_by_name(table).*Member)(a.data(), b.data(), dim(a, 0), out.get());
  return out.array();
}

Result<uint16_t> float_to_half(const std::string& table, const Vector& x) {
  Owned<uint16_t> out({x.shape(0)});
  kernels_by_name(table).float_to_half(x.data(), dim(x, 0), out.get());
  return out.array();
}

Result<float> half_to_float(const std::string& table, const Scales& x) {
  Owned<float> out({x.shape(0)});
  kernels_by_name(table).half_to_float(x.data(), dim(x, 0), out.get());
  return out.array();
}

std::vector<std::string> available() {
  std::vector<std::string> names;
  for (const KernelTable* table : available_kernels()) names.emplace_back(table->name);
  return names;
}

void bind_machine(nb::module_& m) {
  m.def("available", available, "The tables this CPU can run, slowest first.");
  m.def(
      "selected", [] { return std::string(selected_kernels().name); },
      "The table in use: the best one, or what SATCHEL_ISA names.");
  m.def("amx_status", amx_status, "'available', or why AMX is not used.");
  m.def("cpu_features", cpu_features);
  m.def(
      "measure_read_bandwidth",
      [](int threads, size_t bytes, int repeats) {
        require(threads > 0 && bytes > 0 && repeats > 0, "threads, bytes and repeats are positive");
        nb::gil_scoped_release released;
        return measure_read_bandwidth(threads, bytes, repeats);
      },
      nb::arg("threads"), nb::arg("bytes") = size_t{256} << 20, nb::arg("repeats") = 5,
      "Bytes per second that the threads read from memory together.");
  m.def(
      "measure_int8_rate",
      [](int threads, const std::string& table, int repeats) {
        require(threads > 0 && repeats > 0, "threads and repeats are positive");
        nb::gil_scoped_release released;
        return measure_int8_rate(threads, table, repeats);
      },
      nb::arg("threads"), nb::arg("table"), nb::arg("repeats") = 5,
      "8-bit multiply-accumulates per second of the threads with a table's instructions.");
}

void bind_packing(nb::module_& m) {
  m.def("pack", pack, nb::arg("rows"), nb::arg("encoding"), nb::arg("group") = 0,
        nb::arg("threads") = 1, "Quantises and packs rows: (codes, scales, stats).");
  m.def(
      "packed_sizes",
      [](const std::string& encoding, int64_t rows, int64_t cols, int64_t group) {
        const PackedSizes sizes = packed_sizes(encoding_of(encoding), rows, cols, group);
        return std::make_tuple(sizes.codes, sizes.scales);
      },
      nb::arg("encoding"), nb::arg("rows"), nb::arg("cols"), nb::arg("group") = 0,
      "Bytes of codes and of scales.");
}

}  // namespace

void bind_kernels(nb::module_& m) {
  bind_machine(m);
  bind_packing(m);
  m.def("quantize_rows", quantize_rows, nb::arg("table"), nb::arg("x"), nb::arg("group"),
        nb::arg("bits") = 8);
  m.def("quantize_cache", quantize_cache, nb::arg("table"), nb::arg("x"));
  m.def("linear", linear, nb::arg("table"), nb::arg("x"), nb::arg("codes"),
        nb::arg("scales").none(), nb::arg("encoding"), nb::arg("rows"), nb::arg("group") = 0,
        nb::arg("bias").none() = nb::none(), nb::arg("tile_begin") = 0,
        nb::arg("tile_end").none() = nb::none(), nb::arg("bits") = 8);
  m.def("unpack_row", unpack, nb::arg("table"), nb::arg("codes"), nb::arg("scales").none(),
        nb::arg("encoding"), nb::arg("rows"), nb::arg("cols"), nb::arg("group"), nb::arg("row"));
  // A half cache is passed as uint16, an 8-bit one as rows of codes, scale and zero.
  m.def("attention", attention<float>, nb::arg("table"), nb::arg("q"), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("position"), nb::arg("scale"), nb::arg("window") = 0,
        nb::arg("softcap") = 0.0f, nb::arg("parents").none() = nb::none(),
        nb::arg("pages").none() = nb::none(), nb::arg("level") = false);
  m.def("attention", attention<uint16_t>, nb::arg("table"), nb::arg("q"), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("position"), nb::arg("scale"), nb::arg("window") = 0,
        nb::arg("softcap") = 0.0f, nb::arg("parents").none() = nb::none(),
        nb::arg("pages").none() = nb::none(), nb::arg("level") = false);
  m.def("attention", attention<uint8_t>, nb::arg("table"), nb::arg("q"), nb::arg("k").noconvert(),
        nb::arg("v").noconvert(), nb::arg("position"), nb::arg("scale"), nb::arg("window") = 0,
        nb::arg("softcap") = 0.0f, nb::arg("parents").none() = nb::none(),
        nb::arg("pages").none() = nb::none(), nb::arg("level") = false);
  m.def("rms_norm", rms_norm, nb::arg("table"), nb::arg("x"), nb::arg("weight"), nb::arg("eps"));
  m.def("layer_norm", layer_norm, nb::arg("table"), nb::arg("x"), nb::arg("weight"),
        nb::arg("bias").none(), nb::arg("eps"));
  m.def("rope", rope, nb::arg("table"), nb::arg("x"), nb::arg("cos_sin"));
  m.def("silu_mul", pairwise<&KernelTable::silu_mul>);
  m.def("gelu_tanh_mul", pairwise<&KernelTable::gelu_tanh_mul>);
  m.def("add", pairwise<&KernelTable::add>);
  m.def("mul", pairwise<&KernelTable::mul>);
  m.def("float_to_half", float_to_half);
  m.def("half_to_float", half_to_float);
}
