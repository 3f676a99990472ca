// attention_full, attention_qkv and qattention_qkv: all queries over all keys.
#include "../runtime/attention_windows.h"
#include "op.h"

namespace satchel::vulkan {

namespace {

constexpr int64_t kMostKeys = 2048, kMostSize = 256;  // of attention_all.comp

// Where an op's inputs are: bias?, rows? and kinds? from `first` on; codes have scales before.
enum class Kind { full, qkv, codes };
constexpr size_t first_of(Kind kind) { return kind == Kind::full ? 3 : kind == Kind::qkv ? 1 : 2; }

template <Kind kKind>
Windows windows_in(const NodeCall& call) {
  if (kKind != Kind::full) return windows_of(call, first_of(kKind));
  const Tensor &q = call.in(0), &k = call.in(1);
  Windows w;
  w.entries = q.shape[0], w.tokens = q.shape[1], w.heads = q.shape[2], w.keys = k.shape[1];
  if (call.has(3)) {
    const Tensor& bias = call.in(3);
    w.bias_count = bias.shape[0], w.bias_heads = bias.shape[1], w.bias_rows = bias.shape[2];
  }
  return w;
}

const Tensor* optional_input(const NodeCall& call, size_t i) {
  return call.has(i) ? &call.in(i) : nullptr;
}

template <Kind kKind>
std::string refuses(const NodeCall& call, const DeviceInfo&) {
  const Windows w = windows_in<kKind>(call);
  if (w.keys > kMostKeys) return "the GPU takes at most 2048 keys that all queries see";
  if (call.in(0).last() > kMostSize || call.output->last() > kMostSize)
    return "the GPU takes heads of at most 256 numbers";
  if (w.tokens > kMostGroups || w.entries * w.heads > kMostGroups)
    return "the GPU takes at most 65535 heads of entries";
  for (const size_t i : {first_of(kKind) + 1, first_of(kKind) + 2}) {
    const Tensor* numbers = kKind == Kind::full ? nullptr : optional_input(call, i);
    if (numbers && !numbers->weight && !is_input(*numbers))
      return "the GPU takes numbers of rows only from the method's inputs";
  }
  return {};
}

template <Kind kKind>
void prepare(const NodeCall& call, Work&) {
  require_rows(windows_in<kKind>(call));
}

template <Kind kKind>
void record(const NodeCall& call, Work& work) {
  constexpr size_t first = first_of(kKind);
  const Windows w = windows_in<kKind>(call);
  const Tensor& y = *call.output;
  const bool codes = kKind == Kind::codes, to_codes = y.dtype == DType::u8;
  const Tensor *bias = optional_input(call, first),
               *rows = kKind == Kind::full ? nullptr : optional_input(call, first + 1),
               *kinds = kKind == Kind::full ? nullptr : optional_input(call, first + 2);
  const View q = work.view(call.in(0)), k = kKind == Kind::full ? work.view(call.in(1)) : q,
             v = kKind == Kind::full ? work.view(call.in(2)) : q, to = work.view(y);
  const View biases = bias ? work.view(*bias) : q, numbers = rows ? work.view(*rows) : q,
             of_entries = kinds ? work.view(*kinds) : q, scales = codes ? work.view(call.in(1)) : q;
  const int64_t size = call.in(0).last(), width = w.heads * size;
  const double out_scale = codes ? call.params.number[1] : 0.0;
  const struct {
    uint32_t tokens, keys, heads, size, v_size, q_step, k_step, v_step;
    uint32_t bias_count, bias_heads, bias_rows, kind_count;
    uint32_t q_first, k_first, v_first, bias_first, rows_first, kinds_first, scales_first, y_first;
    uint32_t k_offset, v_offset;
    float scale, inverse_out_scale;
    int32_t out_zero;
  } push{word(w.tokens),
         word(w.keys),
         word(w.heads),
         word(size),
         word(y.last()),
         word(kKind == Kind::full ? width : 3 * width),
         word(kKind == Kind::full ? width : 3 * width),
         word(kKind == Kind::full ? w.heads * y.last() : 3 * width),
         word(w.bias_count),
         word(w.bias_heads),
         word(w.bias_rows),
         word(w.kind_count),
         q.first,
         k.first,
         v.first,
         biases.first,
         numbers.first,
         of_entries.first,
         scales.first,
         to.first,
         word(kKind == Kind::full ? 0 : width),
         word(kKind == Kind::full ? 0 : 2 * width),
         static_cast<float>(call.params.number[0]),
         to_codes ? 1.0f / static_cast<float>(out_scale) : 0.0f,
         codes ? static_cast<int32_t>(call.params.integer[0]) : 0};
  const Constants constants{codes, to_codes, bias != nullptr, rows != nullptr, kinds != nullptr};
  work.recorder.dispatch("attention_all", constants,
                         {q, k, v, biases, numbers, of_entries, scales, written(to)}, push,
                         {push.tokens, word(w.entries * w.heads)});
}

const VulkanOp kOps[] = {
    {"attention_full", refuses<Kind::full>, record<Kind::full>},
    {"attention_qkv", refuses<Kind::qkv>, record<Kind::qkv>, prepare<Kind::qkv>},
    {"qattention_qkv", refuses<Kind::codes>, record<Kind::codes>, prepare<Kind::codes>, nullptr,
     true},
};

}  // namespace

std::span<const VulkanOp> attention_ops() { return kOps; }

}  // namespace satchel::vulkan
