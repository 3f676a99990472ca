// The arithmetic of the CPU backend: one table of functions per instruction set.
//
// Every function is pure and single-threaded; the executor splits the work over threads by
// handing out ranges of tiles, rows or heads. Sizes were checked by the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace satchel {

// Rows of a packed matrix come in tiles of 16, so that one 512-bit register holds the same
// columns of 16 output rows. The last tile is padded with rows of zeros.
inline constexpr int64_t kTileRows = 16;

enum class MatrixEncoding : uint8_t {
  f32 = 0,
  f16 = 1,
  q4 = 2,
  q8 = 3,
  lpbq4 = 4,
  q4_min = 5,
  q4_offset = 6,
  q8_offset = 7,
  i8 = 8,
  q4_steps = 9,
  q5 = 10,
  q5_min = 11,
  q4_k = 12,
  q5_k = 13,
  q6_k = 14,
};

// q4_steps: columns whose groups share a step, from a multiple of it on.
inline constexpr int64_t kRunColumns = 1024;
// K-quants: columns whose groups share a step of 16 bits.
inline constexpr int64_t kSuperblock = 256;

// The weight of a linear layer or an embedding: [rows, cols], packed.
//   f32, f16  [tiles][cols][16]
//   q8        [tiles][cols/4][16][4] bytes, code = q + 128, q in -128..127
//   q4        [tiles][cols/8][16][4] bytes; the low nibble of byte j is column 8i + j, the high
//             nibble column 8i + 4 + j; code = q + 8, q in -8..7
//   q4_steps  a q4 whose scales are whole numbers times the step of their run of kRunColumns
//   columns,
//             products that fp16 holds exactly; the group divides kRunColumns. In the place of
//             scales, each tile has for each run the steps, f32 [16], and the whole numbers, int8
//             [groups][16]
//   lpbq4     a q4 whose scales are whole numbers 1 .. 16, and a factor for each row, f32
//             [tiles][16], which the caller multiplies the row's results with; to a kernel it is q4
//   q4_min    a q4 whose codes count from 0, code = q, and a minimum for each group, f16
//             [tiles][cols/group][16], which is added to q * scale
//   q4_offset, q8_offset
//             a q4 or q8 and a number for each group, f32 [tiles][cols/group][16], which is added
//             to q * scale; to a kernel they are q4 and q8
//   q5        [tiles][cols/32][5][16][4] bytes: the lower five bits of byte j of line k are column
//             32i + 4k + j; what is left of byte j of all lines, one behind the other from the
//             lowest bits on, are columns 32i + 20 + j, 32i + 24 + j and 32i + 28 + j; code = q +
//             16
//   q5_min    a q5 whose codes count from 0, with minima as q4_min
//   q6_k      [tiles][cols/16][3][16][4] bytes: as q5 with six bits, of columns 16i + 4k + j, and
//             16i + 12 + j in what is left of the three lines; code = q + 32. The group is 16, and
//             a scale is a whole number times the step of its super-block: each tile has for each
//             kSuperblock columns the steps, f16 [16], and the whole numbers, int8 [16 groups][16]
//   q4_k, q5_k
//             the codes of q4_min and q5_min in groups of 32, whose scales and minima are whole
//             numbers of six bits times steps: each tile has for each kSuperblock columns the steps
//             of scales, f16 [16], those of minima, and the whole numbers in three lines of 64
//             bytes [4][16]: of byte i the first has the lower nibbles of the scales of group i
//             and, in its upper half, i + 4, the second those of the minima, the third from its
//             lowest bits on the upper two of both scales and of both minima. A weight is q * scale
//             - minimum, and the kernels multiply the minima too
// What is added to a group of q4_min, q5_min, q4_offset and q8_offset is a matrix of floats [rows,
// cols/group] in its own right, and the caller multiplies it with the sums of the activations'
// groups: see linear_f16 and linear_f32. A weight is q * scale; scales are fp16
// [tiles][cols/group][16] and may be negative. Codes are unsigned because VNNI multiplies unsigned
// by signed bytes; the offset is taken back with the sums of the activations.
struct PackedMatrix {
  MatrixEncoding encoding;
  int64_t rows;
  int64_t cols;
  int64_t group;  // columns that share a scale; divides cols; q4: a multiple of 8, q8: 4, q5: 32
  const uint8_t* codes;
  const uint16_t* scales;  // in units of 16 bits, whatever they are; null for f32 and f16
};

static inline bool has_superblocks(MatrixEncoding encoding) {
  return encoding == MatrixEncoding::q4_k || encoding == MatrixEncoding::q5_k ||
         encoding == MatrixEncoding::q6_k;
}
// Whether codes are the work of linear_k: those of 5 and 6 bits, and all K-quants.
static inline bool is_k(MatrixEncoding encoding) {
  return has_superblocks(encoding) || encoding == MatrixEncoding::q5 ||
         encoding == MatrixEncoding::q5_min;
}

// The bytes that the codes of a tile take for each column.
static inline int64_t column_bytes(MatrixEncoding encoding) {
  switch (encoding) {
    case MatrixEncoding::f32:
      return 64;
    case MatrixEncoding::f16:
      return 32;
    case MatrixEncoding::q8:
    case MatrixEncoding::q8_offset:
    case MatrixEncoding::i8:
      return 16;
    case MatrixEncoding::q6_k:
      return 12;
    case MatrixEncoding::q5:
    case MatrixEncoding::q5_min:
    case MatrixEncoding::q5_k:
      return 10;
    default:
      return 8;
  }
}

// What the scales of a tile take in units of 16 bits.
static inline int64_t scales_in_tile(MatrixEncoding encoding, int64_t cols, int64_t group) {
  if (has_superblocks(encoding)) {
    return cols / kSuperblock * kTileRows * (encoding == MatrixEncoding::q6_k ? 9 : 8);
  }
  if (encoding != MatrixEncoding::q4_steps) return cols / group * kTileRows;
  const int64_t runs = (cols + kRunColumns - 1) / kRunColumns;
  return (runs * static_cast<int64_t>(sizeof(float)) + cols / group) * kTileRows / 2;
}
static inline int64_t scales_in_tile(const PackedMatrix& w) {
  return scales_in_tile(w.encoding, w.cols, w.group);
}

// Whole numbers -127 .. 127 for products with unsigned codes: [tiles][steps][16][4] bytes, four
// columns in a step, the last one filled up with zeros. `sums` has the sum of each row: the codes
// of an activation mean numbers from -zero on, and zero times the sum is what to take off. They
// must be right even where zero is 0, because a kernel that multiplies signed numbers needs them
// too.
struct IntegerMatrix {
  int64_t rows;
  int64_t steps;
  const int8_t* codes;
  const int32_t* sums;  // [tiles][16]
  // What the thread will read after the tiles of a call, so that it can be asked for.
  const int8_t* next = nullptr;
  int64_t next_bytes = 0;
};

// Activations quantised per row (token): x ≈ code * scale, code = rint(x * (127 / absmax)) and
// scale = absmax / 127, all in f32; a row of zeros has scale 0.
struct QuantizedRows {
  int64_t rows;
  int64_t cols;
  int64_t stride;  // bytes from one row of codes to the next: cols rounded up to 64, or more
  int64_t group;   // columns per sum: the group of the matrix it will be multiplied with
  int8_t* codes;   // [rows][stride], the bytes past cols are zero
  float* scales;   // [rows]
  int32_t* sums;   // [rows][cols/group]: the sum of the codes of each group, by which a kernel
                   // takes back the offset of the weights' codes; for q4_min and q5_min the caller
                   // sets them to zero
  int64_t digits = 1;  // rows of codes that a token has: 2 with 16 bits
};

// Activations of 16 bits are two rows of 8 bits: x ≈ code * scale with
// code = kDigitBase * high + low, both digits in -127 .. 127, code = rint(x * (kLargest16 /
// absmax)) and scale = absmax / kLargest16. Row 2i of codes has the high digits of row i, with the
// scale kDigitBase * scale, and row 2i + 1 the low ones, with scale: their products add up.
inline constexpr int kDigitBase = 255;
inline constexpr int kLargest16 = kDigitBase * 127 + 127;

// Whether 32 bits hold the sum of a group's products with activations of 16 bits.
static inline bool sums_hold_16_bits(const PackedMatrix& w) {
  const int64_t largest = w.encoding == MatrixEncoding::q8 ? 128 : is_k(w.encoding) ? 64 : 16;
  return w.group * largest * kLargest16 <= INT32_MAX;
}

// A row of an 8-bit cache: dim codes, then scale and zero as f32 (not aligned):
// x ≈ code * scale + zero with zero = the smallest of the row, scale = (largest - zero) / 255 and
// code = rint((x - zero) * (255 / (largest - zero))). Where that quotient is not finite, scale and
// codes are 0. A row that holds, or spans, something not finite is NaN throughout, with codes 0.
inline constexpr int64_t kCacheTail = 8;

// A cache is kept in blocks of this many rows, which are also what attention works on at a time.
inline constexpr int64_t kKeyBlock = 64;

// Causal attention over a cache, grouped-query: heads / kv_heads query heads share a kv head.
// Query i stands at position + i and sees the keys 0 .. position + i, or with a window only the
// last `window` of them. With a softcap c, scores become c * tanh(score / c). With `level`, all
// queries stand at `position`: they see all that there is, as an encoder's output.
//
// With `parents`, the queries are a tree instead of a line: query i stands at position + depths[i]
// and sees the keys before `position`, and behind them the rows of its ancestors and its own, in
// the order of their depth. Row position + i of the cache is query i's. The arithmetic is that of
// the same keys in a line, so that the bits are too.
//
// Block b of the rows of kv head h begins at h * head_stride + (pages ? pages[b] : b) *
// block_stride, in elements; a row is dim numbers, or those of an 8-bit cache.
struct AttentionArgs {
  const float* q;  // [queries][heads][dim]
  const void* k;   // f32 or f16, or rows of an 8-bit cache
  const void* v;   // the same
  float* out;      // [queries][heads][dim]
  int64_t queries, heads, kv_heads, dim;
  int64_t head_stride, block_stride;
  const int32_t* pages = nullptr;
  int64_t position = 0;
  int64_t window = 0;  // 0: none
  float scale = 1.0f;
  float softcap = 0.0f;  // 0: none
  bool half_cache = false;
  bool byte_cache = false;  // 8 bits: a row is dim + kCacheTail bytes
  bool level = false;
  const int32_t* parents = nullptr;  // [queries]: an earlier query, or -1 for none; null: a line
  const int32_t* depths = nullptr;   // [queries]: how many ancestors each has
};
// Functions of their own: a method that is not inlined is a weak symbol, of which the linker takes
// any instruction set's.
static inline int64_t cache_row_size(const AttentionArgs& args) {
  return args.byte_cache ? args.dim + kCacheTail : args.dim;
}
// A cache whose rows lie one behind the other, [kv_heads][capacity][row].
static inline void lay_in_line(AttentionArgs& args, int64_t capacity) {
  args.head_stride = capacity * cache_row_size(args);
  args.block_stride = kKeyBlock * cache_row_size(args);
}
// A cache in pages: [page][kv_heads][kKeyBlock][row].
static inline void lay_in_pages(AttentionArgs& args, const int32_t* pages) {
  args.head_stride = kKeyBlock * cache_row_size(args);
  args.block_stride = args.kv_heads * args.head_stride;
  args.pages = pages;
}

// What a layer applies to its result, in the order of satchel.graph.ops.activation.
enum class Activation : uint8_t {
  none,
  relu,
  relu6,
  hardswish,
  hardsigmoid,
  silu,
  gelu,
  gelu_tanh,
  sigmoid,
  tanh
};
inline constexpr int kActivations = 10;

// Lines of 64 bytes in a row.
struct Lines {
  const uint8_t* from = nullptr;
  int64_t count = 0;
};

// What a layer in floats does to its result, and what it adds before: [rows][ldy], as the result,
// or null. A product asks for the lines that are needed next while it is computed.
struct FloatFinish {
  Activation activation;
  const float* residual;
  Lines next;
  FloatFinish(Activation a, const float* r = nullptr, Lines n = {})
      : activation(a), residual(r), next(n) {}
};

// What becomes of the sums of products of an integer layer, in f32, each step rounded by itself:
//   t = float(sum - x_zero * row_sum) * scale + bias + float(residual - residual_zero) *
//   residual_scale out = activation(t) + addend, or clamp(rint(activation(t) * inverse_out_scale) +
//   out_zero, 0, 255)
// Codes whose activation only limits them (none, relu, relu6) are made in steps of the result, with
// fused multiply-adds; limit: to 0 and more, to 6 * inverse_out_scale and less
//   step = residual_scale * inverse_out_scale
//   u = fma(float(sum - x_zero * row_sum), scale * inverse_out_scale, bias * inverse_out_scale -
//   residual_zero * step) out = clamp(rint(limit(fma(float(residual), step, u))) + out_zero, 0,
//   255)
struct IntegerResult {
  int32_t x_zero;
  const float* scale;  // of each output
  const float* bias;   // of each output, or null
  Activation activation;
  const uint8_t* residual;  // [rows][ldr], or null
  int64_t ldr;
  float residual_scale;
  int32_t residual_zero;
  float inverse_out_scale;  // 0: the result is f32
  int32_t out_zero;
  const float* addend;  // of a result in f32: [rows][ldo], apart from the result, or null
  void* out;            // u8 or f32 [rows][ldo]
  int64_t ldo;
};

// A query's softmax over keys that come in blocks: the largest score so far (at first -inf), the
// sum of the powers relative to it, and what the results so far are to be multiplied with.
struct SoftmaxState {
  float largest, total, correction;
};

// Rows of n scores, with a bias where it is not null, which become codes of exp(score - largest) *
// 255, halves to even, and the codes' sums. Rows have room for whole tiles of 16, and the codes
// past n become 0.
struct ScoreRows {
  float* scores;  // [rows][stride]; changed
  int64_t rows, n, stride;
  const float* bias;  // [rows][bias_stride], or null
  int64_t bias_stride;
  uint8_t* codes;  // [rows][stride]
  float* totals;
};

// A code of 8 bits stands for (code - zero) * scale.
struct CodeStep8 {
  float scale;
  int32_t zero;
};

// Rows of codes and what becomes of them: activation(a + b) or activation(a * b), as codes, row
// behind row.
struct CodePair {
  const uint8_t *a, *b;
  int64_t rows, a_stride, b_stride;  // from one row to the next; 0 where all meet the same
  CodeStep8 a_step, b_step, out_step;
  Activation activation;
  uint8_t* out;
};

// Taps of a depthwise kernel for codes, so that sums are exact in f32.
inline constexpr int64_t kMostDepthwiseTaps = 128;

// Where the windows of some rows of pixels look: columns[(row * row_columns + column) * kernel_h +
// ky] points to the channels that place ky of a window's column sees. The window of a row's pixel p
// begins at column p * stride, and its columns are `dilation` apart.
template <typename T>
struct DepthwisePixels {
  const T* const* columns;
  int64_t rows, row_pixels, row_columns;
  int64_t kernel_h, kernel_w, stride, dilation;
};

// Windows in an image of codes that lies in memory with its padding: that of pixel p of row y
// begins at y * row_step + p * pixel_step, and the kernel's rows are `pitch` apart. Each has as
// many columns as the others.
struct CodeWindows {
  const uint8_t* image;
  int64_t rows, row_pixels, row_step, pixel_step;
  int64_t kernel_rows, pitch;
};

// Winograd's convolution makes tiles of 4 x 4 pixels from 6 x 6 numbers, its places. Each place has
// a matrix of its own, a line further from the next than it is long, so that they do not collide in
// caches.
inline constexpr int64_t kWinogradPixels = 4, kWinogradPlaces = 36;
static inline constexpr int64_t winograd_apart(int64_t numbers) { return numbers + 16; }

inline constexpr int64_t kMostJoinedBytes = 262144;  // stay in a second-level cache

struct KernelTable {
  const char* name;
  // Rows that are worth a thread's own way through the weights of linear_q4 and linear_q8.
  int64_t rows_apart = 64;
  // A piece of work of many rows has so many tiles of these.
  int64_t tiles_together = 12;
  // How many bytes of results of layers that are joined to the op behind them wait for it: at most
  // kMostJoinedBytes.
  int64_t joined_bytes = kMostJoinedBytes / 2;
  // Whether fetching the weight of a layer takes longer than multiplying it with a few rows:
  // threads then share it out rather than each reading all of it.
  bool weights_are_dear = false;
  // From so many tokens on, linear_k takes both digits of tokens of 16 bits to codes of 5 and 6
  // bits that it unpacks once, rather than linear_k_16 unpacking them for a few tokens at a time.
  int64_t unpacks_for_tokens = INT64_MAX;
  // What conv_i8 is faster with than linear_i8 on a panel: kernels of one row, or with multiples of
  // so many columns in each, and rows of so many pixels, or two of them in so many windows side by
  // side.
  int64_t window_columns = 4, window_pixels = 12, windows_together = 0;

  void (*quantize_rows)(const float* x, int64_t ldx, const QuantizedRows& out);

  // y[m][n] = activation(sum_k x[m][k] * w[n][k] + bias[n] + residual[m][n]) for the rows of tiles
  // [tile_begin, tile_end). bias may be null. Only the first w.rows columns of y are written.
  void (*linear_f32)(const float* x, int64_t ldx, int64_t m, const PackedMatrix& w,
                     const float* bias, FloatFinish finish, int64_t tile_begin, int64_t tile_end,
                     float* y, int64_t ldy);
  void (*linear_f16)(const float* x, int64_t ldx, int64_t m, const PackedMatrix& w,
                     const float* bias, FloatFinish finish, int64_t tile_begin, int64_t tile_end,
                     float* y, int64_t ldy);
  void (*linear_q4)(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                    int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);
  void (*linear_q8)(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                    int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);

  // q5, q5_min, q4_k, q5_k and q6_k.
  void (*linear_k)(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                   int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy);

  // The same for activations of 16 bits, with one row of y for two of x: where a table has them,
  // the weight is no q4_steps, and sums_hold_16_bits(w). Else linear_q4, linear_q8 and linear_k
  // give the rows of both digits, which add up.
  void (*linear_q4_16)(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                       int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) = nullptr;
  void (*linear_q8_16)(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                       int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) = nullptr;
  void (*linear_k_16)(const QuantizedRows& x, const PackedMatrix& w, const float* bias,
                      int64_t tile_begin, int64_t tile_end, float* y, int64_t ldy) = nullptr;

  // One row of a packed matrix as floats: an embedding lookup.
  void (*unpack_row)(const PackedMatrix& w, int64_t row, float* out);

  // One kv head and the queries [query_begin, query_end). Scratch: attention_scratch() floats.
  void (*attention)(const AttentionArgs& args, int64_t kv_head, int64_t query_begin,
                    int64_t query_end, float* scratch);

  void (*rms_norm)(const float* x, const float* weight, float eps, int64_t rows, int64_t cols,
                   float* out);
  void (*layer_norm)(const float* x, const float* weight, const float* bias, float eps,
                     int64_t rows, int64_t cols, float* out);
  // The same as codes: see quantize_codes.
  void (*layer_norm_codes)(const float* x, const float* weight, const float* bias, float eps,
                           int64_t rows, int64_t cols, const CodeStep8& step, uint8_t* out);
  // out = silu(gate) * up and gelu_tanh(gate) * up, n values.
  void (*silu_mul)(const float* gate, const float* up, int64_t n, float* out);
  void (*gelu_tanh_mul)(const float* gate, const float* up, int64_t n, float* out);
  // Rotates the first `rotary` values of each head, in half-split form: value i pairs with
  // i + rotary/2. cos_sin is [rows][rotary]: rotary/2 cosines, then rotary/2 sines.
  void (*rope)(const float* x, const float* cos_sin, int64_t rows, int64_t heads, int64_t dim,
               int64_t rotary, float* out);
  void (*add)(const float* a, const float* b, int64_t n, float* out);
  void (*mul)(const float* a, const float* b, int64_t n, float* out);
  void (*float_to_half)(const float* x, int64_t n, uint16_t* out);
  void (*half_to_float)(const uint16_t* x, int64_t n, float* out);

  // Rows of 16 bits: out.rows is twice the number of rows of x.
  void (*quantize_rows16)(const float* x, int64_t ldx, const QuantizedRows& out);
  // One row of an 8-bit cache.
  void (*quantize_cache)(const float* x, int64_t dim, uint8_t* out);

  // out = activation(x), n values; in place where they are the same.
  void (*activate)(Activation activation, const float* x, int64_t n, float* out);

  // n scores become exp(score * scale + bias - largest), and `state` takes them in. bias may be
  // null.
  void (*softmax_block)(float* scores, int64_t n, float scale, const float* bias,
                        SoftmaxState* state);
  void (*softmax_codes)(const ScoreRows& rows);
  // out = out * factor + add * other, n values.
  void (*blend)(float* out, float factor, const float* add, float other, int64_t n);

  // Rows of codes, [m][ldx] with at least 4 * w.steps of them each, times the rows of tiles
  // [tile_begin, tile_end). Only the first w.rows columns of the result are written.
  void (*linear_i8)(const uint8_t* x, int64_t ldx, int64_t m, const IntegerMatrix& w,
                    const IntegerResult& result, int64_t tile_begin, int64_t tile_end);

  // The same with the windows of [rows][row_pixels]; the columns of a kernel's row are a multiple
  // of four.
  void (*conv_i8)(const CodeWindows& x, const IntegerMatrix& w, const IntegerResult& result,
                  int64_t tile_begin, int64_t tile_end);

  // Codes of n numbers, halves to even; what is not a number gets the code of zero.
  void (*quantize_codes)(const float* x, int64_t n, const CodeStep8& step, uint8_t* out);
  // The same of [rows][cols] numbers, each row times its factor.
  void (*quantize_scaled)(const float* x, int64_t rows, int64_t cols, const float* factors,
                          const CodeStep8& step, uint8_t* out);
  void (*add_codes)(const CodePair& pair, int64_t n);
  void (*mul_codes)(const CodePair& pair, int64_t n);

  // Depthwise convolution of some rows of pixels. The weight has a row of kernel_h * kernel_w
  // columns for each channel; out is [rows][row_pixels][channels].
  void (*depthwise_f32)(const DepthwisePixels<float>& pixels, const PackedMatrix& w,
                        const float* bias, Activation activation, float* out);
  void (*depthwise_f16)(const DepthwisePixels<float>& pixels, const PackedMatrix& w,
                        const float* bias, Activation activation, float* out);
  void (*depthwise_i8)(const DepthwisePixels<uint8_t>& pixels, const IntegerMatrix& w,
                       const IntegerResult& result);

  // Convolution with a kernel of 3 x 3 by products of transformed tiles: see winograd.inl. The
  // weight is f32 with 9 * channels columns, and becomes 36 such matrices with the channels [begin,
  // end) as columns.
  void (*winograd_weights)(const PackedMatrix& w, int64_t tile_begin, int64_t tile_end,
                           int64_t begin, int64_t end, float* out);
  void (*winograd_input)(const float* const* pixels, int64_t tiles, int64_t channels, float* out);
  void (*winograd_output)(const float* sums, int64_t tiles, int64_t outputs, const float* bias,
                          FloatFinish finish, const int64_t* at, float* y);
};

// What multiplies a weight with so many tokens of so many digits, and how many rows of results each
// has.
struct QuantizedKernel {
  decltype(KernelTable::linear_q4) run;
  int64_t rows;
};
static inline QuantizedKernel quantized_kernel(const KernelTable& table, const PackedMatrix& w,
                                               int64_t digits, int64_t tokens) {
  const bool bytes = w.encoding == MatrixEncoding::q8, k = is_k(w.encoding);
  const auto whole = k ? table.linear_k_16 : bytes ? table.linear_q8_16 : table.linear_q4_16;
  const bool unpacks =
      k && w.encoding != MatrixEncoding::q4_k && tokens >= table.unpacks_for_tokens;
  if (digits == 2 && whole && !unpacks && w.encoding != MatrixEncoding::q4_steps &&
      sums_hold_16_bits(w)) {
    return {whole, 1};
  }
  return {k ? table.linear_k : bytes ? table.linear_q8 : table.linear_q4, digits};
}

// Scratch that one attention call needs, in floats; the same for every table.
size_t attention_scratch(int64_t heads_per_kv, int64_t dim);

// The tables this machine can run, slowest first; the first is always "portable".
// AMX is listed only after a guarded self-test has passed.
const std::vector<const KernelTable*>& available_kernels();

// The best table, or the one that the environment variable SATCHEL_ISA names
// (portable; avx2, avx512, amx; neon, dotprod, i8mm). Throws std::invalid_argument for a name that
// this machine cannot run.
const KernelTable& selected_kernels();
const KernelTable& kernels_by_name(const std::string& name);

}  // namespace satchel
