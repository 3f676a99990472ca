// Ops that move values and do not change them.
#include <algorithm>
#include <cstring>

#include "../errors.h"
#include "../cpu_op.h"

namespace satchel {

namespace {

void require_arrays_of_one_type(const NodeCall& call) {
  for (const Tensor* t : call.inputs) {
    require(t != nullptr, call, "an input is missing");
    require_array(call, *t, call.output->dtype);
  }
}

void check_reshape(NodeCall& call) {
  require_arrays_of_one_type(call);
  const Tensor &x = call.in(0), &y = *call.output;
  require(x.elements() == y.elements(), call, "the sizes differ");
  const auto shape = ints_attribute(call, "shape");
  require(shape.size() == y.rank, call, "the output does not fit");
  for (size_t i = 0; i < y.rank; ++i) {
    const int64_t kept = i < x.rank ? x.shape[i] : 0;  // 0 keeps the input's dimension
    if (shape[i] == -1) continue;                      // what is left
    require(y.shape[i] == (shape[i] == 0 ? kept : shape[i]), call, "the output does not fit");
  }
}

// reshape_as(x, like): sizes of `like` stand where the shape has -1 - k
void check_reshape_as(NodeCall& call) {
  const Tensor &x = call.in(0), &like = call.in(1), &y = *call.output;
  require_array(call, x, y.dtype);
  require_array(call, y, y.dtype);
  require(x.elements() == y.elements(), call, "the sizes differ");
  const auto shape = ints_attribute(call, "shape");
  require(shape.size() == y.rank, call, "the output does not fit");
  for (size_t i = 0; i < y.rank; ++i) {
    require(shape[i] > 0 || -1 - shape[i] < static_cast<int64_t>(like.rank), call, "bad shape");
    require(shape[i] != 0, call, "bad shape");
    const int64_t size = shape[i] > 0 ? shape[i] : like.shape[-1 - shape[i]];
    require(y.shape[i] == size, call, "the output does not fit");
  }
}

void run_reshape(const NodeCall& call, const Workspace&) {
  const Tensor& y = *call.output;
  std::memcpy(y.data, call.in(0).data, static_cast<size_t>(y.elements()) * dtype_size(y.dtype));
}

void check_transpose(NodeCall& call) {
  require_arrays_of_one_type(call);
  const Tensor &x = call.in(0), &y = *call.output;
  const auto perm = ints_attribute(call, "perm");
  require(perm.size() == x.rank && y.rank == x.rank, call, "the permutation does not fit");
  int64_t seen = 0;
  for (size_t i = 0; i < perm.size(); ++i) {
    require(perm[i] >= 0 && perm[i] < static_cast<int64_t>(x.rank), call, "bad permutation");
    require(y.shape[i] == x.shape[perm[i]], call, "the output does not fit");
    seen |= int64_t{1} << perm[i];
  }
  require(seen == (int64_t{1} << x.rank) - 1, call, "bad permutation");
}

// Elements that lie `step` apart, one after the other.
template <typename T>
void copy_apart(const uint8_t* from, int64_t step, int64_t count, uint8_t* to) {
  const T* source = reinterpret_cast<const T*>(from);
  T* target = reinterpret_cast<T*>(to);
  for (int64_t i = 0; i < count; ++i) target[i] = source[i * step];
}

// The axis that goes behind the others, whose order stays: -1 where it is another permutation.
int64_t axis_to_last(const std::vector<int64_t>& perm) {
  if (perm.empty()) return -1;
  for (size_t i = 0; i + 1 < perm.size(); ++i) {
    if (perm[i] != static_cast<int64_t>(i) + (static_cast<int64_t>(i) >= perm.back())) return -1;
  }
  return perm.back();
}

// Images with a plane for each of three colours: [outer, 3, inner] to [outer, inner, 3].
template <typename T>
void interleave_colours(const Tensor& x, int64_t outer, int64_t inner, const Tensor& y,
                        const Workspace& work) {
  constexpr int64_t kPixels = 2048;
  const int64_t pieces = (inner + kPixels - 1) / kPixels;
  work.pool.parallel_for(outer * pieces, 1, [&](int64_t begin, int64_t end, int) {
    for (int64_t piece = begin; piece < end; ++piece) {
      const int64_t image = piece / pieces * 3 * inner, first = piece % pieces * kPixels;
      const int64_t count = std::min(kPixels, inner - first);
      const T* __restrict red = reinterpret_cast<const T*>(x.data) + image + first;
      const T* __restrict green = red + inner, * __restrict blue = green + inner;
      T* __restrict to = reinterpret_cast<T*>(y.data) + image + first * 3;
      for (int64_t i = 0; i < count; ++i, to += 3)
        to[0] = red[i], to[1] = green[i], to[2] = blue[i];
    }
  });
}

void run_transpose(const NodeCall& call, const Workspace& work) {
  const Tensor &x = call.in(0), &y = *call.output;
  const auto perm = ints_attribute(call, "perm");
  const size_t size = dtype_size(x.dtype);
  if (const int64_t axis = axis_to_last(perm);
      axis >= 0 && y.last() == 3 && (size == 1 || size == 4)) {
    const auto at = static_cast<size_t>(axis);
    const int64_t outer = x.product(0, at), inner = x.product(at + 1, x.rank);
    return size == 1 ? interleave_colours<uint8_t>(x, outer, inner, y, work)
                     : interleave_colours<uint32_t>(x, outer, inner, y, work);
  }
  int64_t steps[kMaxRank] = {};
  for (size_t i = 0; i < y.rank; ++i) {
    const auto from = static_cast<size_t>(perm[i]);
    steps[i] = x.product(from + 1, x.rank);
  }
  const int64_t width = y.last(), rows = y.elements() / width;
  const int64_t inner = y.rank ? steps[y.rank - 1] : 1;
  work.pool.parallel_for(rows, grain_for(rows, work.pool.size(), 16),
                         [&](int64_t begin, int64_t end, int) {
                           int64_t index[kMaxRank] = {}, rest = begin, at = 0;
                           for (size_t i = y.rank - (y.rank > 0); i-- > 0;) {
                             index[i] = rest % y.shape[i];
                             rest /= y.shape[i];
                             at += index[i] * steps[i];
                           }
                           for (int64_t row = begin; row < end; ++row) {
                             uint8_t* to = y.data + static_cast<size_t>(row * width) * size;
                             const uint8_t* from = x.data + static_cast<size_t>(at) * size;
                             if (inner == 1) {
                               std::memcpy(to, from, static_cast<size_t>(width) * size);
                             } else if (size == 4) {
                               copy_apart<uint32_t>(from, inner, width, to);
                             } else if (size == 1) {
                               copy_apart<uint8_t>(from, inner, width, to);
                             } else {
                               for (int64_t i = 0; i < width; ++i) {
                                 std::memcpy(to + static_cast<size_t>(i) * size,
                                             from + static_cast<size_t>(i * inner) * size, size);
                               }
                             }
                             // The next row's place, counted up rather than divided out.
                             for (size_t i = y.rank - (y.rank > 0); i-- > 0;) {
                               at += steps[i];
                               if (++index[i] < y.shape[i]) break;
                               at -= steps[i] * y.shape[i];
                               index[i] = 0;
                             }
                           }
                         });
}

void check_slice(NodeCall& call) {
  require_arrays_of_one_type(call);
  const Tensor &x = call.in(0), &y = *call.output;
  const int64_t axis = int_attribute(call, "axis"), start = int_attribute(call, "start"),
                stop = int_attribute(call, "stop");
  require(axis >= 0 && axis < static_cast<int64_t>(x.rank) && y.rank == x.rank, call,
          "there is no such axis");
  require(0 <= start && start < stop && stop <= x.shape[axis], call, "the range is outside");
  for (size_t i = 0; i < x.rank; ++i) {
    const int64_t want = static_cast<int64_t>(i) == axis ? stop - start : x.shape[i];
    require(y.shape[i] == want, call, "the output does not fit");
  }
  call.params.integer[0] = axis, call.params.integer[1] = start;
}

void run_slice(const NodeCall& call, const Workspace&) {
  const Tensor &x = call.in(0), &y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const size_t inner = static_cast<size_t>(x.product(axis + 1, x.rank)) * dtype_size(x.dtype);
  const size_t taken = static_cast<size_t>(y.shape[axis]) * inner,
               whole = static_cast<size_t>(x.shape[axis]) * inner;
  const uint8_t* from = x.data + static_cast<size_t>(call.params.integer[1]) * inner;
  for (int64_t i = 0; i < x.product(0, axis); ++i) {
    std::memcpy(y.data + static_cast<size_t>(i) * taken, from + static_cast<size_t>(i) * whole,
                taken);
  }
}

void check_concat(NodeCall& call) {
  require_arrays_of_one_type(call);
  const Tensor& y = *call.output;
  const int64_t axis = int_attribute(call, "axis");
  require(axis >= 0 && axis < static_cast<int64_t>(y.rank), call, "there is no such axis");
  int64_t total = 0;
  for (const Tensor* x : call.inputs) {
    require(x->rank == y.rank, call, "the ranks differ");
    for (size_t i = 0; i < y.rank; ++i) {
      require(static_cast<int64_t>(i) == axis || x->shape[i] == y.shape[i], call,
              "the shapes differ");
    }
    total += x->shape[axis];
  }
  require(total == y.shape[axis], call, "the output does not fit");
  call.params.integer[0] = axis;
}

void run_concat(const NodeCall& call, const Workspace&) {
  const Tensor& y = *call.output;
  const auto axis = static_cast<size_t>(call.params.integer[0]);
  const size_t whole = static_cast<size_t>(y.product(axis, y.rank)) * dtype_size(y.dtype);
  size_t at = 0;
  for (const Tensor* x : call.inputs) {
    const size_t part = static_cast<size_t>(x->product(axis, x->rank)) * dtype_size(y.dtype);
    for (int64_t i = 0; i < y.product(0, axis); ++i) {
      std::memcpy(y.data + static_cast<size_t>(i) * whole + at,
                  x->data + static_cast<size_t>(i) * part, part);
    }
    at += part;
  }
}

void check_take_rows(NodeCall& call) {
  const Tensor &x = call.in(0), &rows = call.in(1), &y = *call.output;
  require_array(call, x, y.dtype);
  require_array(call, rows, DType::i32);
  require(x.rank >= 1 && rows.rank == 1 && y.rank == x.rank && y.shape[0] == rows.shape[0] &&
              std::equal(x.shape + 1, x.shape + x.rank, y.shape + 1),
          call, "the sizes do not fit");
}

void run_take_rows(const NodeCall& call, const Workspace&) {
  const Tensor &x = call.in(0), &rows = call.in(1), &y = *call.output;
  const size_t size = static_cast<size_t>(x.product(1, x.rank)) * dtype_size(x.dtype);
  for (int64_t i = 0; i < rows.shape[0]; ++i) {
    const int32_t row = rows.i32()[i];
    if (row < 0 || row >= x.shape[0]) {
      throw ExecutionError("there is no row " + std::to_string(row) + " among " +
                           std::to_string(x.shape[0]));
    }
    std::memcpy(y.data + static_cast<size_t>(i) * size, x.data + static_cast<size_t>(row) * size,
                size);
  }
}

const OpDef kOps[] = {
    {{"reshape", 1, 1, false, {"shape"}, check_reshape}, {run_reshape}},
    {{"reshape_as", 2, 2, false, {"shape"}, check_reshape_as}, {run_reshape}},
    {{"transpose", 1, 1, false, {"perm"}, check_transpose}, {run_transpose}},
    {{"slice", 1, 1, false, {"axis", "start", "stop"}, check_slice}, {run_slice}},
    {{.name = "concat",
      .min_inputs = 1,
      .max_inputs = 8,
      .writes_state = false,
      .attributes = {"axis"},
      .check = check_concat,
      .takes_empty = true},
     {run_concat}},
    {{"take_rows", 2, 2, false, {}, check_take_rows}, {run_take_rows}},
};

}  // namespace

std::span<const OpDef> shape_ops() { return kOps; }

}  // namespace satchel
