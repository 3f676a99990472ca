// The transforms of Winograd's convolution F(4 x 4, 3 x 3), for any lane width: a window of 3 x 3
// makes 16 pixels of an image at once from 36 products instead of 144. Included by table.inl.
//
// Row by row and column by column they are products of polynomials, known by their values at 0, a,
// -a, b, -b and infinity. Of the points that were tried, 2/3 and 3/2 lose least in floats: a third
// of the error of 1 and 2, and a * b = 1 saves factors.

namespace satchel {
namespace {

constexpr int kPlaceSide = 6, kPixelSide = kWinogradPixels;
constexpr float kPointA = 2.0f / 3, kPointB = 3.0f / 2;
constexpr float kSquareA = 4.0f / 9, kSquareB = 9.0f / 4;

// Channels, or vectors of them, that are transformed together: each of the results' 36 streams gets
// some lines in a row, and no more streams are written at a time than a core translates the
// addresses of (16 pages on Intel).
constexpr int64_t kWeightsTogether = 16, kVectorsTogether = 4;

// out[place][tile - tile_begin][channel - begin][16 outputs] = G g G^T, for the channels [begin,
// end).
void winograd_weights(const PackedMatrix& w, int64_t tile_begin, int64_t tile_end, int64_t begin,
                      int64_t end, float* out) {
  const int64_t channels = w.cols / 9, count = end - begin;
  const int64_t place = winograd_apart((tile_end - tile_begin) * count * kTileRows);
  const float* weights = reinterpret_cast<const float*>(w.codes);
  constexpr float scale_a = 0.5f / (kSquareA * (kSquareA - kSquareB));
  constexpr float scale_b = 0.5f / (kSquareB * (kSquareB - kSquareA));
  const F a = broadcast(scale_a), ab = broadcast(scale_a * kPointA),
          aab = broadcast(scale_a * kSquareA);
  const F b = broadcast(scale_b), bb = broadcast(scale_b * kPointB),
          bbb = broadcast(scale_b * kSquareB);
  // G times a column of three, two rows at a time: at 0 and infinity, at a and -a, at b and -b.
  const auto at_ends = [](const F* g, F* to) { to[0] = g[0], to[1] = g[2]; };
  const auto at_a = [&](const F* g, F* to) {
    const F even = fma(aab, g[2], a * g[0]), odd = ab * g[1];
    to[0] = even + odd, to[1] = even - odd;
  };
  const auto at_b = [&](const F* g, F* to) {
    const F even = fma(bbb, g[2], b * g[0]), odd = bb * g[1];
    to[0] = even + odd, to[1] = even - odd;
  };
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    for (int64_t first = begin; first < end; first += kWeightsTogether) {
      const int64_t after = first + kWeightsTogether < end ? first + kWeightsTogether : end;
      const float* from = weights + (tile * w.cols + first) * kTileRows;
      float* to = out + ((tile - tile_begin) * count + first - begin) * kTileRows;
      const auto two_columns = [&](const auto& transform_row, int one, int other) {
        for (int64_t i = 0; i < (after - first) * kTileRows; i += kLanes) {
          F rows[3][2];
          SATCHEL_UNROLL
          for (int ky = 0; ky < 3; ++ky) {
            F row[3];
            for (int kx = 0; kx < 3; ++kx)
              row[kx] = load(from + (ky * 3 + kx) * channels * kTileRows + i);
            transform_row(row, rows[ky]);
          }
          SATCHEL_UNROLL
          for (int x = 0; x < 2; ++x) {
            const F column[3] = {rows[0][x], rows[1][x], rows[2][x]};
            float* result = to + (x == 0 ? one : other) * place + i;
            F pair[2];
            const auto put = [&](int y, F value) { store(result + y * kPlaceSide * place, value); };
            at_ends(column, pair), put(0, pair[0]), put(5, pair[1]);
            at_a(column, pair), put(1, pair[0]), put(2, pair[1]);
            at_b(column, pair), put(3, pair[0]), put(4, pair[1]);
          }
        }
      };
      two_columns(at_ends, 0, 5);
      two_columns(at_a, 1, 2);
      two_columns(at_b, 3, 4);
    }
  }
}

// out[place][tile][channel] = B^T d B; pixels[tile * 36 + place] points to the channels of a pixel.
void winograd_input(const float* const* pixels, int64_t tiles, int64_t channels, float* out) {
  const int64_t place = winograd_apart(tiles * channels);
  const F a = broadcast(kPointA), b = broadcast(kPointB), sum = broadcast(-kSquareA - kSquareB);
  const F less_a = broadcast(-kSquareA), less_b = broadcast(-kSquareB);
  const auto transform = [&](const F* d, F* to) {  // B^T times a column of six
    const F even_a = fma(less_b, d[2], d[4]), odd_a = fma(less_b, d[1], d[3]) * a;
    const F even_b = fma(less_a, d[2], d[4]), odd_b = fma(less_a, d[1], d[3]) * b;
    to[0] = fma(sum, d[2], d[0] + d[4]), to[1] = even_a + odd_a, to[2] = even_a - odd_a;
    to[3] = even_b + odd_b, to[4] = even_b - odd_b, to[5] = fma(sum, d[3], d[1] + d[5]);
  };
  for (int64_t tile = 0; tile < tiles; ++tile, pixels += kWinogradPlaces, out += channels) {
    for (int64_t first = 0; first < channels; first += kVectorsTogether * kLanes) {
      F columns[kPlaceSide][kVectorsTogether][kPlaceSide];
      const int64_t rest = (channels - first + kLanes - 1) / kLanes;
      const int64_t vectors = rest < kVectorsTogether ? rest : kVectorsTogether;
      for (int64_t v = 0; v < vectors; ++v) {
        const int64_t c = first + v * kLanes, n = channels - c;
        SATCHEL_UNROLL
        for (int x = 0; x < kPlaceSide; ++x) {
          F d[kPlaceSide], column[kPlaceSide];
          SATCHEL_UNROLL
          for (int y = 0; y < kPlaceSide; ++y) {
            const float* from = pixels[y * kPlaceSide + x] + c;
            d[y] = n >= kLanes ? load(from) : load_n(from, n);
          }
          transform(d, column);
          SATCHEL_UNROLL
          for (int y = 0; y < kPlaceSide; ++y) columns[y][v][x] = column[y];
        }
      }
      for (int y = 0; y < kPlaceSide; ++y) {
        for (int64_t v = 0; v < vectors; ++v) {
          const int64_t c = first + v * kLanes, n = channels - c;
          F result[kPlaceSide];
          transform(columns[y][v], result);
          SATCHEL_UNROLL
          for (int x = 0; x < kPlaceSide; ++x) {
            float* to = out + (y * kPlaceSide + x) * place + c;
            n >= kLanes ? store(to, result[x]) : store_n(to, result[x], n);
          }
        }
      }
    }
  }
}

// 16 pixels of each tile from sums[place][tile][output]: at[tile * 16 + i] is where pixel i lies in
// y, or -1 where there is none.
void winograd_output(const float* sums, int64_t tiles, int64_t outputs, const float* bias,
                     FloatFinish finish, const int64_t* at, float* y) {
  const int64_t place = winograd_apart(tiles * outputs);
  const F a = broadcast(kPointA), aa = broadcast(kSquareA), aaa = broadcast(kSquareA * kPointA);
  const F b = broadcast(kPointB), bb = broadcast(kSquareB), bbb = broadcast(kSquareB * kPointB);
  const auto transform = [&](const F* m, F* to) {  // A^T times a column of six
    const F even_a = m[1] + m[2], odd_a = m[1] - m[2], even_b = m[3] + m[4], odd_b = m[3] - m[4];
    to[0] = m[0] + even_a + even_b, to[1] = fma(a, odd_a, b * odd_b);
    to[2] = fma(aa, even_a, bb * even_b), to[3] = fma(aaa, odd_a, fma(bbb, odd_b, m[5]));
  };
  for (int64_t tile = 0; tile < tiles; ++tile, sums += outputs, at += kPixelSide * kPixelSide) {
    for (int64_t o = 0; o < outputs; o += kLanes) {
      const int64_t n = outputs - o;
      const auto some = [&](const float* p) { return n >= kLanes ? load(p) : load_n(p, n); };
      F columns[kPlaceSide][kPixelSide];
      SATCHEL_UNROLL
      for (int x = 0; x < kPlaceSide; ++x) {
        F m[kPlaceSide];
        SATCHEL_UNROLL
        for (int i = 0; i < kPlaceSide; ++i) m[i] = some(sums + (i * kPlaceSide + x) * place + o);
        transform(m, columns[x]);
      }
      const F offset = bias ? some(bias + o) : broadcast(0.0f);
      SATCHEL_UNROLL
      for (int py = 0; py < kPixelSide; ++py) {
        F row[kPlaceSide], values[kPixelSide];
        SATCHEL_UNROLL
        for (int x = 0; x < kPlaceSide; ++x) row[x] = columns[x][py];
        transform(row, values);
        for (int px = 0; px < kPixelSide; ++px) {
          const int64_t to = at[py * kPixelSide + px];
          if (to < 0) continue;
          F value = values[px] + offset;
          if (finish.residual) value = value + some(finish.residual + to + o);
          value = activated(finish.activation, value);
          n >= kLanes ? store(y + to + o, value) : store_n(y + to + o, value, n);
        }
      }
    }
  }
}

}  // namespace
}  // namespace satchel
