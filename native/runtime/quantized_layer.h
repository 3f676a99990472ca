// Linear layers with quantised weights: their activations are rounded to 8 or 16 bits, token by
// token.
#pragma once

#include <span>

#include "cpu_op.h"

namespace satchel {

// Activations of 16 bits are two rows of codes each, high and low digits, whose results add up.
inline int64_t digits_of(const NodeCall& call) { return call.params.integer[0]; }  // 0: floats

// Results of a quantised layer that need no more than its kernel.
bool is_simple(const NodeCall& call);

// Where the scratch has the quantised activations, and what each thread needs for itself: the
// results of some tiles before they are put together, and of simple layers a token before it is
// quantised.
struct QuantizedLayout {
  int64_t rows, cols, stride, group;  // of codes
  int64_t digits;
  size_t scales, sums, total;  // offsets
  size_t group_inputs;  // the sums as floats, which a weight's group offsets are multiplied with
  int64_t chunk_tiles, chunk_rows;  // whose results wait at a time; of simple layers only rows
  size_t threads, thread_size;      // offset of the first thread's part, bytes of each
  size_t token;                     // offset of the token in a thread's part

  QuantizedRows rows_in(uint8_t* scratch) const {
    return {rows,
            cols,
            stride,
            group,
            reinterpret_cast<int8_t*>(scratch),
            reinterpret_cast<float*>(scratch + scales),
            reinterpret_cast<int32_t*>(scratch + sums),
            digits};
  }
  uint8_t* of_thread(uint8_t* scratch, int thread) const {
    return scratch + threads + static_cast<size_t>(thread) * thread_size;
  }
};
QuantizedLayout quantized_layout(const NodeCall& call, int pool_size);

// Rows [begin, end) of others.
QuantizedRows part_of(const QuantizedRows& rows, int64_t begin, int64_t end);
// Tiles [begin, end) as a matrix of their own.
PackedMatrix part_of(const PackedMatrix& w, int64_t begin, int64_t end);

// The sums of each token's groups as floats, which a weight's group offsets are multiplied with,
// and the sums themselves as the kernels of `encoding` want them.
void take_group_inputs(const QuantizedRows& rows, int64_t digits, MatrixEncoding encoding,
                       float* inputs);

// A layer that is not simple, which is never joined to others.
void run_quantized(const NodeCall& call, const Workspace& work);

// What can be one piece of work for the threads, each with the same bits as alone:
//   rms_norm (or not), simple linear layers of its result, and one of
//   silu_mul or gelu_tanh_mul, of two such layers, and add, of one such layer and something else
//   (or none).
// Whether `next` goes on with the calls so far; the first has its own op's word that it may be
// joined.
bool joins_layers(std::span<const NodeCall> calls, const NodeCall& next);
void run_joined(const NodeCall& first, const Workspace& work);

}  // namespace satchel
