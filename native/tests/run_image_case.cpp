// The kernels of integer layers, of depthwise convolutions and of Winograd's convolution.
#include <algorithm>
#include <cstring>

#include "guarded.h"
#include "run_case.h"

using namespace satchel;

namespace {

size_t size_of(int64_t n) { return static_cast<size_t>(n); }

template <class T>
Guarded<T> array(const std::map<std::string, std::vector<T>>& arrays, const std::string& key) {
  const auto found = arrays.find(key);
  return Guarded<T>(found == arrays.end() ? std::vector<T>{} : found->second);
}

template <class T>
T* or_null(Guarded<T>& values) {
  return values.size() != 0 ? values.get() : nullptr;
}

template <class T>
std::vector<double> widened(const Guarded<T>& values) {
  return {values.get(), values.get() + values.size()};
}

FloatFinish finish_of(const Case& c, Guarded<float>& residual) {
  return {static_cast<Activation>(c.integer("activation")), or_null(residual)};
}

// An integer layer: its weight, and its result of so many rows.
struct IntegerLayer {
  Guarded<uint8_t> codes, sums, residual, out;
  Guarded<float> scale, bias;
  IntegerMatrix matrix;
  IntegerResult result;
  bool as_codes;

  IntegerLayer(const Case& c, int64_t rows)
      : codes(array(c.bytes, "codes")),
        sums(array(c.bytes, "sums")),
        residual(array(c.bytes, "residual")),
        out(size_of(rows * c.integer("outputs") * (c.number("inverse") > 0 ? 1 : 4))),
        scale(array(c.floats, "scale")),
        bias(array(c.floats, "bias")),
        as_codes(c.number("inverse") > 0) {
    const int64_t outputs = c.integer("outputs");
    matrix = {outputs, (c.integer("cols") + 3) / 4, reinterpret_cast<const int8_t*>(codes.get()),
              reinterpret_cast<const int32_t*>(sums.get())};
    result = {static_cast<int32_t>(c.integer("x_zero")),
              scale.get(),
              or_null(bias),
              static_cast<Activation>(c.integer("activation")),
              or_null(residual),
              outputs,
              static_cast<float>(c.number("residual_scale")),
              static_cast<int32_t>(c.integer("residual_zero")),
              static_cast<float>(c.number("inverse")),
              static_cast<int32_t>(c.integer("out_zero")),
              nullptr,
              out.get(),
              outputs};
  }

  std::vector<double> values() const {
    if (as_codes) return widened(out);
    std::vector<float> floats(out.size() / sizeof(float));
    std::memcpy(floats.data(), out.get(), out.size());
    return {floats.begin(), floats.end()};
  }
};

void run_linear_i8(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Guarded<uint8_t> x = array(c.bytes, "x");
  const int64_t cols = (c.integer("cols") + 3) / 4 * 4, m = static_cast<int64_t>(x.size()) / cols;
  IntegerLayer whole(c, m), by_tile(c, m);
  const int64_t tiles = (whole.matrix.rows + kTileRows - 1) / kTileRows;
  kernels.linear_i8(x.get(), cols, m, whole.matrix, whole.result, 0, tiles);
  for (int64_t tile = 0; tile < tiles; ++tile) {
    kernels.linear_i8(x.get(), cols, m, by_tile.matrix, by_tile.result, tile, tile + 1);
  }
  outcome.outputs["y"] = whole.values();
  if (!whole.out.same_bits(by_tile.out)) outcome.changed_bits.push_back("each tile alone");
}

// Where the windows of all rows of an image look, which is padded by the pixel `outside`.
template <class T>
struct Windows {
  std::vector<const T*> columns;
  DepthwisePixels<T> pixels;

  Windows(const Case& c, const T* image, const T* outside) {
    const int64_t height = c.integer("height"), width = c.integer("width"),
                  channels = c.integer("outputs");
    const int64_t kernel_h = c.integer("kernel_h"), kernel_w = c.integer("kernel_w"),
                  stride = c.integer("stride");
    const int64_t dilation = c.integer("dilation"), padding = c.integer("padding");
    const auto size = [&](int64_t n, int64_t k) {
      return (n + 2 * padding - dilation * (k - 1) - 1) / stride + 1;
    };
    const int64_t rows = size(height, kernel_h), across = size(width, kernel_w);
    const int64_t seen = (across - 1) * stride + dilation * (kernel_w - 1) + 1;
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t column = 0; column < seen; ++column) {
        for (int64_t ky = 0; ky < kernel_h; ++ky) {
          const int64_t y = row * stride - padding + ky * dilation, x = column - padding;
          const bool inside = y >= 0 && y < height && x >= 0 && x < width;
          columns.push_back(inside ? image + (y * width + x) * channels : outside);
        }
      }
    }
    pixels = {columns.data(), rows, across, seen, kernel_h, kernel_w, stride, dilation};
  }
};

void run_depthwise_i8(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Guarded<uint8_t> x = array(c.bytes, "x");
  const std::vector<uint8_t> fill(size_of(c.integer("outputs")),
                                  static_cast<uint8_t>(c.integer("x_zero")));
  const Guarded<uint8_t> outside(fill);
  const Windows<uint8_t> windows(c, x.get(), outside.get());
  IntegerLayer layer(c, windows.pixels.rows * windows.pixels.row_pixels);
  kernels.depthwise_i8(windows.pixels, layer.matrix, layer.result);
  outcome.outputs["y"] = layer.values();
}

void run_depthwise(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Guarded<float> x = array(c.floats, "x");
  const Guarded<uint8_t> codes = array(c.bytes, "codes");
  Guarded<float> bias = array(c.floats, "bias");
  const int64_t channels = c.integer("outputs");
  const Guarded<float> outside(size_of(channels), 0);
  const Windows<float> windows(c, x.get(), outside.get());
  const bool wide = c.integer("encoding") == 0;
  const PackedMatrix w{wide ? MatrixEncoding::f32 : MatrixEncoding::f16,
                       channels,
                       c.integer("kernel_h") * c.integer("kernel_w"),
                       0,
                       codes.get(),
                       nullptr};
  Guarded<float> y(size_of(windows.pixels.rows * windows.pixels.row_pixels * channels));
  (wide ? kernels.depthwise_f32 : kernels.depthwise_f16)(
      windows.pixels, w, or_null(bias), static_cast<Activation>(c.integer("activation")), y.get());
  outcome.outputs["y"] = widened(y);
}

// A padded convolution of 3 x 3, all tiles at once.
void run_winograd(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const int64_t height = c.integer("height"), width = c.integer("width"),
                channels = c.integer("channels");
  const int64_t outputs = c.integer("outputs"), down = (height + 3) / 4, across = (width + 3) / 4;
  const Guarded<float> x = array(c.floats, "x"), outside(size_of(channels), 0);
  const Guarded<uint8_t> codes = array(c.bytes, "codes");
  Guarded<float> bias = array(c.floats, "bias"), residual = array(c.floats, "residual");
  const int64_t tiles = down * across, weight_tiles = (outputs + kTileRows - 1) / kTileRows;
  std::vector<const float*> pixels;
  std::vector<int64_t> at;
  for (int64_t tile = 0; tile < tiles; ++tile) {
    const int64_t oy = tile / across * 4, ox = tile % across * 4;
    for (int64_t place = 0; place < kWinogradPlaces; ++place) {
      const int64_t iy = oy - 1 + place / 6, ix = ox - 1 + place % 6;
      const bool inside = iy >= 0 && iy < height && ix >= 0 && ix < width;
      pixels.push_back(inside ? x.get() + (iy * width + ix) * channels : outside.get());
    }
    for (int64_t pixel = 0; pixel < 16; ++pixel) {
      const int64_t py = oy + pixel / 4, px = ox + pixel % 4;
      at.push_back(py < height && px < width ? (py * width + px) * outputs : -1);
    }
  }
  const int64_t place_weights = winograd_apart(weight_tiles * kTileRows * channels);
  const int64_t place_inputs = winograd_apart(tiles * channels),
                place_sums = winograd_apart(tiles * outputs);
  Guarded<float> weights(size_of(kWinogradPlaces * place_weights)),
      inputs(size_of(kWinogradPlaces * place_inputs));
  Guarded<float> sums(size_of(kWinogradPlaces * place_sums)), y(size_of(height * width * outputs));
  const PackedMatrix w{MatrixEncoding::f32, outputs, 9 * channels, 0, codes.get(), nullptr};
  kernels.winograd_weights(w, 0, weight_tiles, 0, channels, weights.get());
  kernels.winograd_input(pixels.data(), tiles, channels, inputs.get());
  for (int64_t place = 0; place < kWinogradPlaces; ++place) {
    const PackedMatrix matrix{
        MatrixEncoding::f32,
        outputs,
        channels,
        0,
        reinterpret_cast<const uint8_t*>(weights.get() + place * place_weights),
        nullptr};
    kernels.linear_f32(inputs.get() + place * place_inputs, channels, tiles, matrix, nullptr,
                       Activation::none, 0, weight_tiles, sums.get() + place * place_sums, outputs);
  }
  kernels.winograd_output(sums.get(), tiles, outputs, or_null(bias), finish_of(c, residual),
                          at.data(), y.get());
  outcome.outputs["y"] = widened(y);
}

CodeStep8 step_of(const Case& c, const std::string& name) {
  return {static_cast<float>(c.number(name + "_scale")),
          static_cast<int32_t>(c.integer(name + "_zero"))};
}

void run_quantize_codes(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Guarded<float> x = array(c.floats, "x");
  Guarded<uint8_t> y(x.size());
  kernels.quantize_codes(x.get(), static_cast<int64_t>(x.size()), step_of(c, "out"), y.get());
  outcome.outputs["y"] = widened(y);
}

void run_pair_of_codes(const Case& c, const KernelTable& kernels, Outcome& outcome) {
  const Guarded<uint8_t> a = array(c.bytes, "a"), b = array(c.bytes, "b");
  Guarded<uint8_t> y(a.size());
  const CodePair pair{a.get(),
                      b.get(),
                      1,
                      0,
                      0,
                      step_of(c, "a"),
                      step_of(c, "b"),
                      step_of(c, "out"),
                      static_cast<Activation>(c.integer("activation")),
                      y.get()};
  (c.op == "add_codes" ? kernels.add_codes : kernels.mul_codes)(pair,
                                                                static_cast<int64_t>(a.size()));
  outcome.outputs["y"] = widened(y);
}

}  // namespace

const std::map<std::string, Runner>& image_runners() {
  static const std::map<std::string, Runner> runners{
      {"linear_i8", run_linear_i8},          {"depthwise_i8", run_depthwise_i8},
      {"depthwise", run_depthwise},          {"winograd", run_winograd},
      {"add_codes", run_pair_of_codes},      {"mul_codes", run_pair_of_codes},
      {"quantize_codes", run_quantize_codes}};
  return runners;
}
