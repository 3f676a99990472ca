// Attention of long blocks of queries over a cache of 16-bit floats, multiplied in tiles of
// bfloat16.
//
// The products of a cached number's two parts and a float's three are exact, and added up as
// floats; the smallest of the six is left out. Everything is transposed: rows of queries are the
// columns of all results, and keys are read as they lie.
//
// Steps of 32 rows by 32 keys overlap: while tiles multiply keys for the step after the current one
// and values for the step before it, registers make the current one's weights and, if it is the
// first to come there, tiles of more keys and values. A row's result does not depend on its
// neighbours.

#include "amx_tiles.h"

// Of what is included, only the hyperbolic tangent is used here.
#pragma GCC diagnostic ignored "-Wunused-function"

#include "elementwise.inl"
#include "attention_transposed.inl"
#include "attention_tiles.inl"
#include "attention_tile_weights.inl"

namespace satchel {
namespace {

// Sums 0-3 += tiles 4 and 5 times 6 and 7.
template <class Between>
inline void multiply_two_by_two(Between between) {
  _tile_dpbf16ps(0, 4, 6);
  _tile_dpbf16ps(1, 4, 7);
  between();
  _tile_dpbf16ps(2, 5, 6);
  _tile_dpbf16ps(3, 5, 7);
  between();
}
// Of keys or values: the hint says that they need not stay in the first-level cache, where all else
// fits in.
inline void load_left(const uint8_t* tiles) {
  _tile_stream_loadd(4, tiles, 64);
  _tile_stream_loadd(5, tiles + kTileBytes, 64);
}
inline void load_right(const uint8_t* tiles) {
  _tile_loadd(6, tiles, 64);
  _tile_loadd(7, tiles + kTileBytes, 64);
}

// Two tiles of two parts and two tiles of three, parts so many bytes apart.
struct Factors {
  const uint8_t* left;
  int64_t left_part;
  const uint8_t* right;
  int64_t right_part;
};
inline void load_first(const Factors& f) {
  load_right(f.right);
  load_left(f.left);
}
// Adds their products but for the smallest, after load_first. `between` is called after every other
// product.
template <class Between>
inline void multiply_parts(const Factors& f, Between between) {
  multiply_two_by_two(between);
  load_right(f.right + 2 * f.right_part);
  multiply_two_by_two(between);
  load_right(f.right + f.right_part);
  multiply_two_by_two(between);
  load_left(f.left + f.left_part);
  multiply_two_by_two(between);
  load_right(f.right);
  multiply_two_by_two(between);
}

// Sums 0-3 go, and others come, one by one, since the first of the next products waits only for the
// first of them.
inline void exchange_sums(uint8_t* to, const uint8_t* from) {
  _tile_stored(0, to, 64);
  _tile_loadd(0, from, 64);
  _tile_stored(1, to + kTileBytes, 64);
  _tile_loadd(1, from + kTileBytes, 64);
  _tile_stored(2, to + 2 * kTileBytes, 64);
  _tile_loadd(2, from + 2 * kTileBytes, 64);
  _tile_stored(3, to + 3 * kTileBytes, 64);
  _tile_loadd(3, from + 3 * kTileBytes, 64);
}
inline void store_sums(uint8_t* to) {
  _tile_stored(0, to, 64);
  _tile_stored(1, to + kTileBytes, 64);
  _tile_stored(2, to + 2 * kTileBytes, 64);
  _tile_stored(3, to + 3 * kTileBytes, 64);
}

inline void load_sums(const uint8_t* from) {
  _tile_loadd(0, from, 64);
  _tile_loadd(1, from + kTileBytes, 64);
  _tile_loadd(2, from + 2 * kTileBytes, 64);
  _tile_loadd(3, from + 3 * kTileBytes, 64);
}

// What tiles do in a turn: the scores of one step, and the weighted values of another, added to its
// sums.
struct TileWork {
  bool has_scores, has_values;
  const uint8_t *keys, *queries;
  uint8_t* scores;
  const uint8_t *values, *weights;
  uint8_t* sums;
};
template <class Between>
inline void multiply(const TileWork& work, int64_t padded, Between between) {
  uint8_t* waiting = nullptr;  // where the tiles' sums belong
  if (work.has_scores) {
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    _tile_zero(3);
    for (int64_t d = 0; d < padded; d += 2 * kLanes) {
      const Factors factors{work.keys + d * 64, padded * 64, work.queries + d * 64, padded * 64};
      load_first(factors);
      multiply_parts(factors, between);
    }
    waiting = work.scores;
  }
  for (int64_t d = 0; work.has_values && d < padded; d += 2 * kLanes) {
    const Factors factors{work.values + d * 64, padded * 64, work.weights, kWeightPart};
    load_first(factors);
    uint8_t* sums = work.sums + d * kTileStepRows * 4;
    waiting ? exchange_sums(waiting, sums) : load_sums(sums);
    multiply_parts(factors, between);
    waiting = sums;
  }
  if (waiting) store_sums(waiting);
}

// Queries that pass over the cache together, and their rows: one for each head of the group.
struct Pass {
  const AttentionArgs& args;
  const Space& space;
  int64_t kv_head, group, padded, first, queries;

  int64_t rows() const { return queries * group; }
  int64_t steps() const { return (rows() + kTileStepRows - 1) / kTileStepRows; }
  int64_t end() const { return args.position + first + queries; }  // of the keys
  int64_t offset(int64_t row) const {                              // of a row in q and out
    const int64_t query = space.query[row], head = kv_head * group + row - query * group;
    return ((first + query) * args.heads + head) * args.dim;
  }
  uint8_t* queries_of(const Step& step) const {
    return space.queries + step.index * kTileStepRows * padded * kQueryBytes;
  }
  uint8_t* sums_of(const Step& step) const {
    return space.sums + step.index * kTileStepRows * padded * kSumBytes;
  }
};

void begin_rows(const Pass& pass) {
  const Space& space = pass.space;
  const int64_t rows = pass.rows(), padded = pass.padded,
                padded_rows = pass.steps() * kTileStepRows;
  // Rows past the last see what it sees.
  for (int64_t row = 0, query = 0, head = 0; row < padded_rows; ++row) {
    space.query[row] = static_cast<int32_t>(query);
    space.highest[row] = kLowest;
    space.total[row] = 0.0f;
    if (++head == pass.group && query + 1 < pass.queries) ++query, head = 0;
  }
  std::memset(space.sums, 0, static_cast<size_t>(padded_rows * padded * kSumBytes));
  for (int64_t row = 0; row < padded_rows; row += kLanes) {
    const auto from = [&](int64_t i) {
      return row + i < rows ? pass.args.q + pass.offset(row + i) : nullptr;
    };
    uint8_t* step = space.queries + row / kTileStepRows * kTileStepRows * padded * kQueryBytes;
    turn_queries(from, pass.args.scale < 0.0f ? -1.0f : 1.0f, pass.args.dim, padded,
                 step + row / kLanes % kRowTiles * kTileBytes);
  }
}

void write_rows(const Pass& pass) {
  const int64_t rows = pass.rows(), dim = pass.args.dim;
  for (int64_t row = 0; row < rows; row += kLanes) {
    const F inverse = broadcast(1.0f) / load(pass.space.total + row);
    const float* sums =
        floats(pass.space.sums + row / kTileStepRows * kTileStepRows * pass.padded * kSumBytes +
               row / kLanes % kRowTiles * kTileBytes);
    for (int64_t d = 0; d < dim; d += kLanes, sums += kRowTiles * kLanes * kLanes) {
      F results[kLanes];
      alignas(64) float transposed[kLanes][kLanes];
      SATCHEL_UNROLL
      for (int i = 0; i < kLanes; ++i) results[i] = load(sums + i * kLanes) * inverse;
      transpose16(results, transposed[0], kLanes);
      for (int64_t i = 0; i < kLanes && row + i < rows; ++i) {
        store_n(pass.args.out + pass.offset(row + i) + d, load(transposed[i]),
                dim - d < kLanes ? dim - d : kLanes);
      }
    }
  }
}

// The step, or the first one behind it in which a row sees a key. For as many keys as there is room
// for, all keys of some rows come after those of others: queries and sums of 32 rows stay in the
// first-level cache.
Step step_from(const Pass& pass, Step step) {
  const int64_t end = pass.end(), room = tile_keys(pass.padded);
  for (; step.chunk < end; step.block += kTileStepKeys) {
    if (step.block >= end || step.block >= step.chunk + room) {
      if (++step.index == pass.steps()) step.index = 0, step.chunk += room;
      step.block = step.chunk - kTileStepKeys;
      continue;
    }
    const int64_t newest = pass.args.position + pass.first + 1 - step.block,
                  oldest = newest - pass.args.window;
    step.end = static_cast<int32_t>(newest < kTileStepKeys ? newest : kTileStepKeys);
    step.begin = static_cast<int32_t>(oldest < kTileStepKeys ? oldest : kTileStepKeys);
    if (pass.args.window == 0 || oldest < -kFar) step.begin = -kFar;
    const int32_t* query = pass.space.query + step.index * kTileStepRows;
    const int32_t low = query[0], high = query[kTileStepRows - 1];
    step.any = key_in_step(step.begin + low) < key_in_step(step.end + high);
    if (!step.any) continue;
    step.full = key_in_step(step.begin + high) == 0 && key_in_step(step.end + low) == kTileStepKeys;
    return step;
  }
  return Step{};
}
Step step_behind(const Pass& pass, Step step) {
  step.block += kTileStepKeys;
  return step.any ? step_from(pass, step) : Step{};
}

void rescale_sums(const Pass& pass, const Step& step) {
  const float* rescale = pass.space.rescale + step.index * kTileStepRows;
  const F factors[kRowTiles] = {load(rescale), load(rescale + kLanes)}, one = broadcast(1.0f);
  const auto changes = [&](F factor) { return _mm512_cmp_ps_mask(factor, one, _CMP_NEQ_UQ) != 0; };
  if (!changes(factors[0]) && !changes(factors[1])) return;  // as mostly
  float* sums = floats(pass.sums_of(step));
  for (int64_t tile = 0; tile < pass.padded / kLanes * kRowTiles; ++tile) {
    for (int i = 0; i < kLanes; ++i, sums += kLanes)
      store(sums, load(sums) * factors[tile % kRowTiles]);
  }
}

void attend_pass(const Pass& pass) {
  const Space& space = pass.space;
  const int64_t dim = pass.args.dim, padded = pass.padded;
  static_assert(kKeyBlock % kTileStepKeys == 0);  // a step's rows lie one behind the other
  const auto rows_of = [&](const void* cache, const Step& step) {
    return cache_row<uint16_t>(pass.args, cache, pass.kv_head, step.block);
  };
  const auto tiles = [&](uint8_t* of, const Step& step) {
    return of + (step.block - step.chunk) * padded * kCacheBytes;
  };
  const auto count = [&](const Step& step) { return key_in_step(pass.end() - step.block); };
  int64_t split = 0, transposed = 0;  // the keys and values before these are there as tiles

  Step done, current, next, ahead;
  ahead.chunk = ahead.block = oldest_key(pass.args, pass.first) / kTileStepKeys * kTileStepKeys;
  ahead = step_from(pass, ahead);
  for (int turn = 0; done.any || current.any || next.any || ahead.any; turn ^= 1) {
    KeyTiles keys;
    ValueTiles values;
    if (ahead.any && ahead.block >= split) {
      keys = KeyTiles(rows_of(pass.args.k, ahead), dim, padded, count(ahead),
                      tiles(space.keys, ahead));
      split = ahead.block + kTileStepKeys;
    }
    if (current.any && current.block >= transposed) {
      values = ValueTiles(rows_of(pass.args.v, current), dim, padded, count(current),
                          tiles(space.values, current));
      transposed = current.block + kTileStepKeys;
    }
    Weighing weighing(pass.args, space, current, space.scores + turn * kScoreBytes,
                      space.weights + turn * kWeightBytes);
    const auto prepare = [&] {
      if (weighing.left()) weighing.next();
      if (keys.left()) {
        keys.next();
      } else if (values.left()) {
        values.next();
      }
    };
    finish_writes(space.queries);
    multiply({next.any, done.any, tiles(space.keys, next), pass.queries_of(next),
              space.scores + (turn ^ 1) * kScoreBytes, tiles(space.values, done),
              space.weights + (turn ^ 1) * kWeightBytes, pass.sums_of(done)},
             padded, prepare);
    while (keys.left()) keys.next();
    while (values.left()) values.next();
    if (current.any) {
      weighing.finish();
      rescale_sums(pass, current);
    }
    done = current;
    current = next;
    next = ahead;
    ahead = step_behind(pass, ahead);
  }
}

}  // namespace

void amx_attention(const AttentionArgs& args, int64_t kv_head, int64_t query_begin,
                   int64_t query_end, float* scratch) {
  if (!is_long_line(args) || !args.half_cache) {
    return avx512_table.attention(args, kv_head, query_begin, query_end, scratch);
  }
  const int64_t group = args.heads / args.kv_heads, padded = tile_dim(args.dim),
                most = tile_queries(group);
  const Space space(scratch, tile_rows(group), padded);
  // Tile state belongs to the thread, so each call sets it up and gives it back.
  configure_tiles(64);
  for (int64_t first = query_begin; first < query_end; first += most) {
    const int64_t queries = query_end - first < most ? query_end - first : most;
    const Pass pass{args, space, kv_head, group, padded, first, queries};
    begin_rows(pass);
    attend_pass(pass);
    write_rows(pass);
  }
  _tile_release();
}

bool amx_bf16_self_test() {
  alignas(64) uint16_t a[16][32], b[16][32];  // b: [pairs of columns][16 outputs][2]
  alignas(64) float c[16][16];
  const auto bfloat = [](float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, sizeof bits);
    return static_cast<uint16_t>(bits >> 16);
  };
  const auto left = [](int row, int k) {
    return static_cast<float>((row * 37 + k * 11) % 255 - 127);
  };
  const auto right = [](int k, int output) {
    return static_cast<float>((k * 29 + output * 7) % 128 - 64);
  };
  for (int i = 0; i < 16; ++i) {
    for (int k = 0; k < 32; ++k) {
      a[i][k] = bfloat(left(i, k));
      b[k / 2][i * 2 + k % 2] = bfloat(right(k, i));
    }
  }
  multiply_once(a, b, c, [] { _tile_dpbf16ps(0, 4, 6); });
  for (int row = 0; row < 16; ++row) {
    for (int output = 0; output < 16; ++output) {
      float expected = 0.0f;
      for (int k = 0; k < 32; ++k) expected += left(row, k) * right(k, output);
      if (c[row][output] != expected) return false;
    }
  }
  return true;
}

}  // namespace satchel
