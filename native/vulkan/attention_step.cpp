#include "attention_step.h"

#include <algorithm>

#include "cache_rows.h"

namespace satchel::vulkan {

namespace {

uint32_t word_in(const Place& place, const View& view) {
  return word(static_cast<int64_t>(place.offset - view.offset) / 4);
}

constexpr uint64_t kFewHeads = 1024;     // of all tokens: with more no device is idle
constexpr int64_t kManyTokens = 64;      // from which on several share what is read of a cache
constexpr uint32_t kMostShared = 32768;  // bytes of a workgroup

// Many tokens that follow each other in one sequence.
bool is_long_line(const NodeCall& call, Work& work) {
  const HostTables::Entry& entry = *work.tables.find(kKeysToSee, key_of(call, 3, call.in(1)));
  return call.in(0).shape[0] >= kManyTokens && (entry.shape & kOneLine);
}

// Whether it can be done by cooperative matrices: a cache of halves.
bool can_use_matrices(const NodeCall& call, Work& work) {
  const Tensor &q = call.in(0), &k = call.in(1);
  return work.device.features.cooperative_matrix && is_long_line(call, work) &&
         k.dtype == DType::f16 && k.paged && q.shape[2] % 16 == 0 && q.shape[2] <= 128;
}

// Tokens of a workgroup of attention_tile.comp, and keys that it has at a time.
struct Tile {
  uint32_t tokens = 0, keys = 0;
};

// As many keys as shared memory has room for; none, where it cannot be done so.
Tile tile_of(const NodeCall& call, Work& work) {
  const Tensor &q = call.in(0), &k = call.in(1);
  if (!is_long_line(call, work) || q.shape[2] % 8 != 0) return {};
  const uint32_t most =
      std::min(work.device.properties.limits.maxComputeSharedMemorySize, kMostShared);
  const uint32_t quads = word(q.shape[2]) / 4, tokens = quads <= 32 ? 32 : 16;
  const uint32_t row = (k.dtype == DType::f16 ? quads : 2 * quads) + 1;  // of 8 bytes
  for (uint32_t keys = kKeyBlock; keys >= 8; keys /= 2) {
    const uint32_t vectors = tokens * (quads + 1) + keys * (tokens / 4 + 1) + 128;
    if (16 * vectors + 8 * keys * row <= most) return {tokens, keys};
  }
  return {};
}

// In how many parts the keys are looked at, by workgroups of their own: each has a block of them,
// where there are few heads and many keys; else 1.
uint32_t splits_of(const NodeCall& call, Work& work) {
  if (can_use_matrices(call, work) || tile_of(call, work).keys > 0) return 1;
  const HostTables::Entry& entry = *work.tables.find(kKeysToSee, key_of(call, 3, call.in(1)));
  const uint64_t heads = static_cast<uint64_t>(call.in(0).shape[0] * call.in(0).shape[1]);
  const uint64_t blocks = entry.shape % kOneLine;
  return heads <= kFewHeads && blocks <= kMostGroups / heads ? static_cast<uint32_t>(blocks) : 1;
}

// The norms' weights of queries and keys, which lie in one buffer.
struct Norms {
  Place q, k;
  View both;
};
Norms norms_of(const AttentionNodes& nodes, Work& work) {
  const Place q = work.place(nodes.norm_q->in(1)), k = work.place(nodes.norm_k->in(1));
  return {q, k, work.recorder.view(around(q, k))};
}

uint32_t window_of(const NodeCall& call) {
  return word(std::min<int64_t>(call.params.integer[0], UINT32_MAX));
}

void join_blocks(const NodeCall& call, Work& work, const View& parts, const View& step,
                 const View& y, uint32_t splits) {
  const Tensor& q = call.in(0);
  const struct {
    uint32_t heads, splits, window, parts_first, step_first, y_first;
  } push{word(q.shape[1]), splits, window_of(call), parts.first, step.first, y.first};
  const Constants constants{0, 0, word(q.shape[2])};
  work.recorder.dispatch("attention_join", constants, {awaited(parts), step, written(y)}, push,
                         {push.heads, word(q.shape[0])});
}

class AttentionStep : public Step {
 public:
  explicit AttentionStep(const AttentionNodes& nodes) : nodes_(nodes) {}

  void prepare(Work& work) override {
    for (const NodeCall* call : {nodes_.write_k, nodes_.write_v, nodes_.attention})
      find_op(call->info->op->name)->prepare(*call, work);
  }

  uint64_t scratch(Work& work) const override { return attention_scratch(*nodes_.attention, work); }

  void record(Work& work) override {
    if (is_for_one(work)) {
      record_one(work);
      return;
    }
    record_heads(work);
    record_attention(*nodes_.attention, work);
  }

 private:
  // Whether attention_one.glsl can do it: a single token, and caches of halves.
  bool is_for_one(Work& work) const {
    const NodeCall& call = *nodes_.attention;
    const Tensor &q = call.in(0), &k = call.in(1);
    const HostTables::Entry& entry = *work.tables.find(kKeysToSee, key_of(call, 3, k));
    return q.shape[0] == 1 && (entry.shape & kOneLine) && k.dtype == DType::f16 && k.paged &&
           q.shape[2] % 8 == 0 && q.shape[2] <= 256;
  }

  void record_one(Work& work) const {
    const NodeCall& call = *nodes_.attention;
    const Tensor &queries = call.in(0), &cache = nodes_.write_k->in(0);
    const HostTables::Entry& entry = *work.tables.find(kKeysToSee, key_of(call, 3, call.in(1)));
    const Place q = work.place(nodes_.queries()), k = work.place(nodes_.keys()),
                v = work.place(nodes_.values());
    const View x = awaited(work.recorder.view(around(around(q, k), v))), keys = work.view(cache),
               values = work.view(nodes_.write_v->in(0)),
               step = work.recorder.view(work.tables.place(entry)), y = work.view(*call.output),
               table = nodes_.rope_q ? work.view(nodes_.rope_q->in(1)) : x;
    Norms norms{{}, {}, x};
    if (nodes_.norm_q) norms = norms_of(nodes_, work);
    const uint32_t splits = splits_of(call, work);
    const View to =
        splits == 1 ? y : work.recorder.view(work.scratch(attention_scratch(call, work)));
    const Rows rows(cache);
    const struct {
      uint32_t heads, heads_per_kv, splits, head_rows, block_rows, window, rotary;
      uint32_t q_first, k_first, v_first, keys_first, values_first;
      uint32_t table_first, q_norm, k_norm, step_first, y_first;
      float scale, softcap, eps;
    } push{word(queries.shape[1]),
           word(queries.shape[1] / cache.shape[0]),
           splits,
           rows.head_rows,
           rows.block_rows,
           window_of(call),
           nodes_.rope_q ? word(nodes_.rope_q->in(1).shape[1]) : 0,
           word_in(q, x),
           word_in(k, x),
           word_in(v, x),
           keys.first,
           values.first,
           table.first,
           nodes_.norm_q ? word_in(norms.q, norms.both) : 0,
           nodes_.norm_q ? word_in(norms.k, norms.both) : 0,
           step.first,
           to.first,
           static_cast<float>(call.params.number[0]),
           static_cast<float>(call.params.number[1]),
           nodes_.norm_q ? static_cast<float>(nodes_.norm_q->params.number[0]) : 0.0f};
    const Constants constants{kind_of(cache), call.params.number[1] > 0, word(queries.shape[2]),
                              splits > 1,     nodes_.norm_q != nullptr,  nodes_.rope_q != nullptr};
    work.recorder.dispatch(
        "attention_one", constants,
        {x, written(keys), written(values), step, written(to), table, norms.both}, push,
        {push.heads * splits});
    if (splits > 1) join_blocks(call, work, to, step, y, splits);
  }

  void record_heads(Work& work) const {
    const Tensor &queries = nodes_.attention->in(0), &cache = nodes_.write_k->in(0);
    const HostTables::Entry& entry =
        *work.tables.find(kRowsToWrite, key_of(*nodes_.write_k, 2, cache));
    const Place q = work.place(nodes_.queries()), k = work.place(nodes_.keys()),
                v = work.place(nodes_.values());
    const View x = work.recorder.view(around(around(q, k), v)),
               table = nodes_.rope_q ? work.view(nodes_.rope_q->in(1)) : x,
               places = work.recorder.view(work.tables.place(entry)), to = work.view(queries),
               keys = work.view(cache), values = work.view(nodes_.write_v->in(0));
    Norms norms{{}, {}, x};
    if (nodes_.norm_q) norms = norms_of(nodes_, work);
    const Rows rows(cache);
    const struct {
      uint32_t heads, kv_heads, dim, rotary, head_rows, block_rows;
      uint32_t q_first, k_first, v_first, table_first, q_norm, k_norm, places_first;
      uint32_t queries_first, keys_first, values_first;
      float eps;
    } push{word(queries.shape[1]),
           word(cache.shape[0]),
           word(queries.shape[2]),
           nodes_.rope_q ? word(nodes_.rope_q->in(1).shape[1]) : 0,
           rows.head_rows,
           rows.block_rows,
           word_in(q, x),
           word_in(k, x),
           word_in(v, x),
           table.first,
           nodes_.norm_q ? word_in(norms.q, norms.both) : 0,
           nodes_.norm_q ? word_in(norms.k, norms.both) : 0,
           places.first,
           to.first,
           keys.first,
           values.first,
           nodes_.norm_q ? static_cast<float>(nodes_.norm_q->params.number[0]) : 0.0f};
    const Constants constants{kind_of(cache), nodes_.norm_q != nullptr, nodes_.rope_q != nullptr};
    work.recorder.dispatch(
        "heads", constants,
        {x, table, norms.both, places, written(to), written(keys), written(values)}, push,
        {push.heads + 2 * push.kv_heads, word(queries.shape[0])});
  }

  AttentionNodes nodes_;
};

}  // namespace

uint64_t attention_scratch(const NodeCall& call, Work& work) {
  const uint32_t splits = splits_of(call, work);
  const Tensor& q = call.in(0);
  if (splits == 1) return 0;
  return static_cast<uint64_t>(q.shape[0] * q.shape[1] * (q.shape[2] + 2)) * splits * sizeof(float);
}

void record_attention(const NodeCall& call, Work& work) {
  const Tensor &q = call.in(0), &k = call.in(1), &v = call.in(2);
  const HostTables::Entry& entry = *work.tables.find(kKeysToSee, key_of(call, 3, k));
  const bool by_matrices = can_use_matrices(call, work);
  const Tile tile = by_matrices ? Tile{} : tile_of(call, work);
  const uint32_t splits = splits_of(call, work);
  const View from = work.view(q), keys = work.view(k), values = work.view(v);
  const View step = work.recorder.view(work.tables.place(entry)), y = work.view(*call.output);
  const View to = splits == 1 ? y : work.recorder.view(work.scratch(attention_scratch(call, work)));
  const Rows rows(k);
  const struct {
    uint32_t heads, heads_per_kv, splits_or_tokens, head_rows, block_rows, window;
    uint32_t q_first, k_first, v_first, step_first, y_first;
    float scale, softcap;
  } push{word(q.shape[1]),
         word(q.shape[1] / k.shape[0]),
         by_matrices || tile.keys > 0 ? word(q.shape[0]) : splits,
         rows.head_rows,
         rows.block_rows,
         window_of(call),
         from.first,
         keys.first,
         values.first,
         step.first,
         to.first,
         static_cast<float>(call.params.number[0]),
         static_cast<float>(call.params.number[1])};
  const bool wide = rows.words % 4 == 0 && keys.first % 4 == 0;
  const Constants constants{kind_of(k), call.params.number[1] > 0, word(q.shape[2]), splits > 1,
                            wide};
  if (tile.keys > 0) {
    const Constants sizes{kind_of(k), call.params.number[1] > 0,    word(q.shape[2]), tile.tokens,
                          tile.keys,  wide && values.first % 4 == 0};
    work.recorder.dispatch("attention_tile", sizes, {from, keys, values, step, written(to)}, push,
                           {push.heads, (word(q.shape[0]) + tile.tokens - 1) / tile.tokens});
    return;
  }
  if (by_matrices) {
    constexpr uint32_t tokens = 64;  // of a workgroup
    work.recorder.dispatch("attention_block", constants, {from, keys, values, step, written(to)},
                           push, {push.heads, (word(q.shape[0]) + tokens - 1) / tokens});
    return;
  }
  work.recorder.dispatch("attention", constants, {from, keys, values, step, written(to)}, push,
                         {push.heads * splits, word(q.shape[0])});
  if (splits > 1) join_blocks(call, work, to, step, y, splits);
}

std::unique_ptr<Step> make_attention_step(const AttentionNodes& nodes, Weights& weights) {
  if (nodes.norm_q) {
    const WeightEntry &q = *nodes.norm_q->in(1).weight, &k = *nodes.norm_k->in(1).weight;
    const Weights::Piece both[] = {{q.codes, q.codes_size}, {k.codes, k.codes_size}};
    if (!weights.together(both)) return nullptr;
  }
  return std::make_unique<AttentionStep>(nodes);
}

}  // namespace satchel::vulkan
