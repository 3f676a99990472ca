#include "attention_windows.h"

#include <vector>

#include "errors.h"

namespace satchel {

void check_bias(const NodeCall& call, size_t input, int64_t batch, int64_t heads, int64_t queries,
                int64_t keys, bool chosen) {
  if (!call.has(input)) return;
  const Tensor& bias = call.in(input);
  require_array(call, bias, DType::f32);
  require(bias.rank == 4 && (chosen || batch % bias.shape[0] == 0) &&
              (bias.shape[1] == 1 || bias.shape[1] == heads) &&
              (bias.shape[2] == 1 || bias.shape[2] == queries) && bias.shape[3] == keys,
          call, "the bias does not fit");
}

void check_windows(const NodeCall& call, size_t first) {
  const Tensor& x = call.in(0);
  int64_t batch = x.shape[0], tokens = x.shape[1];
  if (call.has(first + 1)) {
    const Tensor& rows = call.in(first + 1);
    require_array(call, rows, DType::i32);
    require(rows.rank == 2 && rows.elements() == batch * tokens, call, "the rows do not fit");
    batch = rows.shape[0], tokens = rows.shape[1];
  }
  if (call.has(first + 2)) {
    const Tensor& kinds = call.in(first + 2);
    require_array(call, kinds, DType::i32);
    require(call.has(first) && kinds.rank == 1 && batch % kinds.shape[0] == 0, call,
            "the kinds do not fit");
  }
  check_bias(call, first, batch, x.shape[3], tokens, tokens, call.has(first + 2));
}

Windows windows_of(const NodeCall& call, size_t first) {
  const Tensor& x = call.in(0);
  Windows w;
  w.entries = x.shape[0], w.tokens = w.keys = x.shape[1], w.heads = x.shape[3];
  if (call.has(first + 1)) {
    const Tensor& rows = call.in(first + 1);
    w.entries = rows.shape[0], w.tokens = w.keys = rows.shape[1];
    w.rows = rows.i32();
  }
  if (call.has(first)) {
    const Tensor& bias = call.in(first);
    w.bias = bias.f32();
    w.bias_count = bias.shape[0], w.bias_heads = bias.shape[1], w.bias_rows = bias.shape[2];
  }
  if (call.has(first + 2)) {
    w.kinds = call.in(first + 2).i32();
    w.kind_count = call.in(first + 2).shape[0];
  }
  return w;
}

void require_rows(const Windows& w) {
  if (w.rows) {
    const int64_t count = w.entries * w.tokens;
    std::vector<uint8_t> seen(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) {
      const int32_t row = w.rows[i];
      if (row < 0 || row >= count) {
        throw ExecutionError("there is no row " + std::to_string(row) + " among " +
                             std::to_string(count));
      }
      if (seen[static_cast<size_t>(row)]++)
        throw ExecutionError("attention: rows are named more than once");
    }
  }
  for (int64_t i = 0; w.kinds && i < w.kind_count; ++i) {
    if (w.kinds[i] < 0 || w.kinds[i] >= w.bias_count) {
      throw ExecutionError("there is no bias " + std::to_string(w.kinds[i]) + " among " +
                           std::to_string(w.bias_count));
    }
  }
}

}  // namespace satchel
