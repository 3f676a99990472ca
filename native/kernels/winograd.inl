// The transforms of Winograd's convolution F(2 x 2, 3 x 3), for any lane width: a window of 3 x 3 makes
// four pixels of an image at once from 16 products instead of 36. Included by table.inl.

namespace satchel {
namespace {

constexpr int kPlaces = 16;  // of a transformed tile, 4 x 4

// out[place][tile - tile_begin][channel][16 outputs] = G g G^T.
void winograd_weights(const PackedMatrix& w, int64_t tile_begin, int64_t tile_end, float* out) {
  const int64_t channels = w.cols / 9, place = (tile_end - tile_begin) * channels * kTileRows;
  const float* weights = reinterpret_cast<const float*>(w.codes);
  const F half = broadcast(0.5f);
  const auto transform = [&](const F* g, F* to) {  // G times a column of three
    const F outer = (g[0] + g[2]) * half, inner = g[1] * half;
    to[0] = g[0], to[1] = outer + inner, to[2] = outer - inner, to[3] = g[2];
  };
  for (int64_t tile = tile_begin; tile < tile_end; ++tile) {
    for (int64_t c = 0; c < channels; ++c) {
      for (int v = 0; v < kTileVectors; ++v) {
        const float* from = weights + (tile * w.cols + c) * kTileRows + v * kLanes;
        float* to = out + ((tile - tile_begin) * channels + c) * kTileRows + v * kLanes;
        F rows[3][4];
        SATCHEL_UNROLL
        for (int ky = 0; ky < 3; ++ky) {
          F row[3];
          for (int kx = 0; kx < 3; ++kx) row[kx] = load(from + (ky * 3 + kx) * channels * kTileRows);
          transform(row, rows[ky]);
        }
        SATCHEL_UNROLL
        for (int x = 0; x < 4; ++x) {
          const F column[3] = {rows[0][x], rows[1][x], rows[2][x]};
          F result[4];
          transform(column, result);
          for (int y = 0; y < 4; ++y) store(to + (y * 4 + x) * place, result[y]);
        }
      }
    }
  }
}

// out[place][tile][channel] = B^T d B; pixels[tile * 16 + place] points to the channels of a pixel.
void winograd_input(const float* const* pixels, int64_t tiles, int64_t channels, float* out) {
  const int64_t place = tiles * channels;
  const auto transform = [](F* d) {  // B^T times a column of four
    const F first = d[0] - d[2], second = d[1] + d[2], third = d[2] - d[1], fourth = d[1] - d[3];
    d[0] = first, d[1] = second, d[2] = third, d[3] = fourth;
  };
  for (int64_t tile = 0; tile < tiles; ++tile, pixels += kPlaces, out += channels) {
    for (int64_t c = 0; c < channels; c += kLanes) {
      const int64_t n = channels - c;
      F d[4][4];  // by column
      SATCHEL_UNROLL
      for (int x = 0; x < 4; ++x) {
        SATCHEL_UNROLL
        for (int y = 0; y < 4; ++y) {
          const float* from = pixels[y * 4 + x] + c;
          d[x][y] = n >= kLanes ? load(from) : load_n(from, n);
        }
        transform(d[x]);
      }
      SATCHEL_UNROLL
      for (int y = 0; y < 4; ++y) {
        F row[4] = {d[0][y], d[1][y], d[2][y], d[3][y]};
        transform(row);
        SATCHEL_UNROLL
        for (int x = 0; x < 4; ++x) {
          float* to = out + (y * 4 + x) * place + c;
          n >= kLanes ? store(to, row[x]) : store_n(to, row[x], n);
        }
      }
    }
  }
}

// Four pixels of each tile from sums[place][tile][output]: at[tile * 4 + i] is where pixel i lies in y,
// or -1 where there is none.
void winograd_output(const float* sums, int64_t tiles, int64_t outputs, const float* bias,
                     FloatFinish finish, const int64_t* at, float* y) {
  const int64_t place = tiles * outputs;
  for (int64_t tile = 0; tile < tiles; ++tile, sums += outputs, at += 4) {
    for (int64_t o = 0; o < outputs; o += kLanes) {
      const int64_t n = outputs - o;
      const auto some = [&](const float* p) { return n >= kLanes ? load(p) : load_n(p, n); };
      F rows[2][4];
      SATCHEL_UNROLL
      for (int x = 0; x < 4; ++x) {
        F m[4];
        SATCHEL_UNROLL
        for (int i = 0; i < 4; ++i) m[i] = some(sums + (i * 4 + x) * place + o);
        rows[0][x] = m[0] + m[1] + m[2], rows[1][x] = m[1] - m[2] - m[3];
      }
      const F offset = bias ? some(bias + o) : broadcast(0.0f);
      SATCHEL_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (at[i] < 0) continue;
        const F* row = rows[i / 2];
        F value = (i % 2 == 0 ? row[0] + row[1] + row[2] : row[1] - row[2] - row[3]) + offset;
        if (finish.residual) value = value + some(finish.residual + at[i] + o);
        value = activated(finish.activation, value);
        float* to = y + at[i] + o;
        n >= kLanes ? store(to, value) : store_n(to, value, n);
      }
    }
  }
}

}  // namespace
}  // namespace satchel
