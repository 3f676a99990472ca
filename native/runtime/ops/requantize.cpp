// Values of 8 bits between the integer layers: made, looked up, added, multiplied, averaged.
#include <algorithm>
#include <cmath>

#include "../broadcast.h"
#include "../cpu_op.h"

namespace satchel {

namespace {

constexpr int64_t kSmallestPiece = 8192;

// A code stands for (code - zero) * scale.
struct Step {
  float scale, inverse;
  int32_t zero;

  float number(uint8_t code) const {
    return static_cast<float>(static_cast<int32_t>(code) - zero) * scale;
  }

  uint8_t code(float number) const {
    const float ratio = number * inverse;
    if (!(ratio == ratio)) return static_cast<uint8_t>(zero);  // what is not a number becomes zero
    // Adding 1.5 * 2^23 rounds to a whole number, halves to even; the bounds keep it exact.
    const float limited = std::min(std::max(ratio, -512.0f), 512.0f);
    const auto whole = static_cast<int32_t>(limited + 12582912.0f - 12582912.0f);
    return static_cast<uint8_t>(std::clamp(whole + zero, 0, 255));
  }
};

// Reads the step `prefix` into place `i` of the parameters.
void check_step(NodeCall& call, const char* scale_name, const char* zero_name, size_t i) {
  const double scale = number_attribute(call, scale_name);
  const int64_t zero = int_attribute(call, zero_name, 0);
  require(scale >= 1e-30 && scale <= 1e30, call, "a scale is out of range");
  require(zero >= 0 && zero <= 255, call, "a zero point is not a code");
  call.params.number[i] = scale;
  call.params.integer[i] = zero;
}

Step step_of(const NodeCall& call, size_t i) {
  const auto scale = static_cast<float>(call.params.number[i]);
  return {scale, 1.0f / scale, static_cast<int32_t>(call.params.integer[i])};
}

template <typename Piece>
void in_pieces(const NodeCall& call, const Workspace& work, Piece piece) {
  work.pool.parallel_for(call.output->elements(), kSmallestPiece,
                         [&](int64_t begin, int64_t end, int) { piece(begin, end); });
}

// --- quantize(x), dequantize(x), lookup(x, table) ---

void check_convert(NodeCall& call, DType from, DType to) {
  require_array(call, call.in(0), from);
  require_array(call, *call.output, to);
  require(same_shape(call.in(0), *call.output), call, "the output does not fit");
  check_step(call, "scale", "zero", 0);
}

void run_quantize(const NodeCall& call, const Workspace& work) {
  const Step step = step_of(call, 0);
  const float* x = call.in(0).f32();
  uint8_t* y = call.output->data;
  in_pieces(call, work, [&](int64_t begin, int64_t end) {
    work.kernels.quantize_codes(x + begin, end - begin, {step.scale, step.zero}, y + begin);
  });
}

void run_dequantize(const NodeCall& call, const Workspace& work) {
  const Step step = step_of(call, 0);
  const uint8_t* x = call.in(0).data;
  float* y = call.output->f32();
  in_pieces(call, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = step.number(x[i]);
  });
}

void check_lookup(NodeCall& call) {
  for (const Tensor* t : {&call.in(0), &call.in(1), static_cast<const Tensor*>(call.output)}) {
    require_array(call, *t, DType::u8);
  }
  require(call.in(1).rank == 1 && call.in(1).shape[0] == 256, call,
          "the table must have 256 entries");
  require(same_shape(call.in(0), *call.output), call, "the output does not fit");
}

void run_lookup(const NodeCall& call, const Workspace& work) {
  const uint8_t *x = call.in(0).data, *table = call.in(1).data;
  uint8_t* y = call.output->data;
  in_pieces(call, work, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) y[i] = table[x[i]];
  });
}

// --- qadd(a, b), qmul(a, b) ---

void check_pair(NodeCall& call) {
  const Tensor &a = call.in(0), &b = call.in(1);
  for (const Tensor* t : {&a, &b, static_cast<const Tensor*>(call.output)})
    require_array(call, *t, DType::u8);
  require_broadcast(call, {&a, &b});
  check_step(call, "a_scale", "a_zero", 0);
  check_step(call, "b_scale", "b_zero", 1);
  check_step(call, "out_scale", "out_zero", 2);
  call.params.activation = activation_attribute(call);
}

size_t pair_scratch(const NodeCall&, int threads) {
  return static_cast<size_t>(threads) * kSmallestPiece * sizeof(float);
}

// How far an operand's rows lie apart where it is the same for all, or -1: 0 for one row that meets
// them all.
int64_t row_stride(const Tensor& y, const int64_t* strides) {
  int64_t stride = -1, rows = 1;
  for (size_t i = y.rank - (y.rank > 0); i-- > 0;) {
    if (y.shape[i] == 1) continue;
    if (stride < 0) stride = strides[i];
    if (strides[i] != stride * rows) return -1;
    rows *= y.shape[i];
  }
  return std::max<int64_t>(stride, 0);
}

template <typename Function>
void run_pair(const NodeCall& call, const Workspace& work, decltype(KernelTable::add_codes) kernel,
              Function function) {
  const Tensor &a = call.in(0), &b = call.in(1), &y = *call.output;
  const Step left = step_of(call, 0), right = step_of(call, 1), out = step_of(call, 2);
  const bool same = same_shape(a, b);
  int64_t step_a[kMaxRank] = {}, step_b[kMaxRank] = {};
  broadcast_strides(a, y, step_a);
  broadcast_strides(b, y, step_b);
  const int64_t width = same ? y.elements() : y.last(), rows = y.elements() / width;
  const int64_t inner_a = same     ? 1
                          : y.rank ? step_a[y.rank - 1]
                                   : 0,
                inner_b = same     ? 1
                          : y.rank ? step_b[y.rank - 1]
                                   : 0;
  const int64_t blocks = (width + kSmallestPiece - 1) / kSmallestPiece;
  const bool few = !same && stays_on_one_thread(rows, static_cast<double>(y.elements()) * 64);
  const int64_t grain = few ? rows * blocks : std::max<int64_t>(1, kSmallestPiece / width);
  const CodePair pair{a.data,
                      b.data,
                      1,
                      0,
                      0,
                      {left.scale, left.zero},
                      {right.scale, right.zero},
                      {out.scale, out.zero},
                      call.params.activation,
                      y.data};
  const int64_t row_a = row_stride(y, step_a), row_b = row_stride(y, step_b);
  const bool regular =
      blocks == 1 && !same && inner_a == 1 && inner_b == 1 && row_a >= 0 && row_b >= 0;
  work.pool.parallel_for(rows * blocks, grain, [&](int64_t begin, int64_t end, int thread) {
    if (regular) {
      CodePair part = pair;
      part.a += begin * row_a, part.b += begin * row_b, part.out += begin * width;
      part.rows = end - begin, part.a_stride = row_a, part.b_stride = row_b;
      return kernel(part, width);
    }
    float* sums = reinterpret_cast<float*>(work.scratch) + thread * kSmallestPiece;
    for (int64_t item = begin; item < end; ++item) {
      const int64_t row = item / blocks, first = item % blocks * kSmallestPiece;
      const int64_t count = std::min(kSmallestPiece, width - first);
      const uint8_t* from_a = a.data + (same ? 0 : row_offset(y, step_a, row)) + first * inner_a;
      const uint8_t* from_b = b.data + (same ? 0 : row_offset(y, step_b, row)) + first * inner_b;
      uint8_t* to = y.data + row * width + first;
      if (inner_a == 1 && inner_b == 1) {
        CodePair part = pair;
        part.a = from_a, part.b = from_b, part.out = to;
        kernel(part, count);
        continue;
      }
      for (int64_t i = 0; i < count; ++i) {
        sums[i] = function(left.number(from_a[i * inner_a]), right.number(from_b[i * inner_b]));
      }
      if (call.params.activation != Activation::none) {
        work.kernels.activate(call.params.activation, sums, count, sums);
      }
      for (int64_t i = 0; i < count; ++i) to[i] = out.code(sums[i]);
    }
  });
}

// --- qmean(x) ---

constexpr int64_t kMeanParts = 8;

int64_t mean_parts(int64_t count) { return count < 16 * kMeanParts ? 1 : kMeanParts; }

void check_qmean(NodeCall& call) {
  const Tensor &x = call.in(0), &y = *call.output;
  require_array(call, x, DType::u8);
  require_array(call, y, DType::u8);
  const int64_t mask = check_reduced(call);
  int64_t count = 1;
  for (size_t i = 0; i < x.rank; ++i) count *= mask >> i & 1 ? x.shape[i] : 1;
  check_step(call, "x_scale", "x_zero", 0);
  check_step(call, "out_scale", "out_zero", 2);
  call.params.integer[4] = mask, call.params.integer[5] = count;
}

size_t qmean_scratch(const NodeCall& call, int) {
  return static_cast<size_t>(call.output->elements() * mean_parts(call.params.integer[5])) *
         sizeof(int64_t);  // at most two for each of x
}

// The axes that are not reduced and come last stay together: a pixel's channels are added as a row.
void run_qmean(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const Step in = step_of(call, 0), out = step_of(call, 2);
  const int64_t mask = call.params.integer[4], count = call.params.integer[5];
  const float factor = in.scale / static_cast<float>(count);
  size_t tail = x.rank;
  while (tail > 0 && !(mask >> (tail - 1) & 1)) --tail;
  const int64_t width = x.product(tail, x.rank), items = y.elements() / width;
  int64_t strides[kMaxRank] = {};
  for (size_t i = 0; i < x.rank; ++i) strides[i] = x.product(i + 1, x.rank);
  const auto offset = [&](int64_t number, bool reduced) {
    int64_t at = 0;
    for (size_t i = tail; i-- > 0;) {
      if (static_cast<bool>(mask >> i & 1) != reduced) continue;
      at += number % x.shape[i] * strides[i];
      number /= x.shape[i];
    }
    return at;
  };
  // Where the reduced axes lie together, one pixel follows the other.
  size_t head = tail;
  while (head > 0 && (mask >> (head - 1) & 1)) --head;
  const bool together =
      mask >> head == (int64_t{1} << (tail - head)) - 1 && (mask & ((int64_t{1} << head) - 1)) == 0;
  constexpr int64_t kLanes = 64, kMostRows = 256;  // whose sum has room in 16 bits
  const int64_t pieces = (width + kLanes - 1) / kLanes, parts = mean_parts(count),
                all = items * parts * pieces;
  int64_t* partial = reinterpret_cast<int64_t*>(work.scratch);
  // A thread takes some of the pixels rather than of the channels: those that it has written
  // itself.
  const bool few = stays_on_one_thread(count, static_cast<double>(x.elements()) * 64);
  work.pool.parallel_for(
      all, few ? all : grain_for(all, work.pool.size(), 1), [&](int64_t begin, int64_t end, int) {
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t at = piece / pieces, part = at % parts, first = piece % pieces * kLanes;
          const int64_t lanes = std::min(kLanes, width - first), after = (part + 1) * count / parts;
          const uint8_t* from = x.data + offset(at / parts, false) + first;
          int64_t* to = partial + at * width + first;
          std::fill_n(to, lanes, int64_t{0});
          for (int64_t i = part * count / parts; i < after;) {
            const int64_t stop = std::min(after, i + kMostRows);
            uint16_t sums[kLanes] = {};
            for (; i < stop; ++i) {
              const uint8_t* pixel = from + (together ? i * width : offset(i, true));
              if (lanes == kLanes) {
                for (int64_t lane = 0; lane < kLanes; ++lane)
                  sums[lane] = static_cast<uint16_t>(sums[lane] + pixel[lane]);
              } else {
                for (int64_t lane = 0; lane < lanes; ++lane)
                  sums[lane] = static_cast<uint16_t>(sums[lane] + pixel[lane]);
              }
            }
            for (int64_t lane = 0; lane < lanes; ++lane) to[lane] += sums[lane];
          }
        }
      });
  for (int64_t item = 0; item < items; ++item) {
    int64_t* sums = partial + item * parts * width;
    for (int64_t part = 1; part < parts; ++part) {
      for (int64_t i = 0; i < width; ++i) sums[i] += sums[part * width + i];
    }
    for (int64_t i = 0; i < width; ++i) {
      y.data[item * width + i] = out.code(static_cast<float>(sums[i] - count * in.zero) * factor);
    }
  }
}

#define PAIR_ATTRIBUTES \
  {"a_scale", "a_zero", "b_scale", "b_zero", "out_scale", "out_zero", "activation"}

const OpDef kOps[] = {
    {{"quantize",
      1,
      1,
      false,
      {"scale", "zero"},
      [](NodeCall& call) { check_convert(call, DType::f32, DType::u8); }},
     {run_quantize}},
    {{"dequantize",
      1,
      1,
      false,
      {"scale", "zero"},
      [](NodeCall& call) { check_convert(call, DType::u8, DType::f32); }},
     {run_dequantize}},
    {{"lookup", 2, 2, false, {}, check_lookup}, {run_lookup}},
    {{"qadd", 2, 2, false, PAIR_ATTRIBUTES, check_pair},
     {[](const NodeCall& call, const Workspace& work) {
        run_pair(call, work, work.kernels.add_codes, [](float a, float b) { return a + b; });
      },
      pair_scratch}},
    {{"qmul", 2, 2, false, PAIR_ATTRIBUTES, check_pair},
     {[](const NodeCall& call, const Workspace& work) {
        run_pair(call, work, work.kernels.mul_codes, [](float a, float b) { return a * b; });
      },
      pair_scratch}},
    {{"qmean",
      1,
      1,
      false,
      {"axes", "keepdims", "x_scale", "x_zero", "out_scale", "out_zero"},
      check_qmean},
     {run_qmean, qmean_scratch}},
};

#undef PAIR_ATTRIBUTES

}  // namespace

std::span<const OpDef> requantize_ops() { return kOps; }

}  // namespace satchel
