// The softmax between the two products of attention in tiles, whose columns are rows of queries: it
// goes down registers. Included after attention_tiles.inl and elementwise.inl.

namespace satchel {
namespace {

// Weights are powers of two of the distance to a row's highest score. That is raised, and sums so
// far rescaled, only for a score so much higher: smaller ones are the rule, and weights that are
// not below one do no harm.
constexpr float kRaise = 8.0f;

// Some rows against what they see of some keys.
struct Step {
  int64_t index = 0;  // rows from index * kTileStepRows on
  int64_t block = 0,
          chunk = 0;  // keys from `block` on, and the first of those whose tiles are kept with them
  int32_t begin = 0,
          end = 0;  // a row's query plus these, limited to the step, are the keys it sees
  bool any = false, full = false;  // whether there is such a step, and every row sees every key
};

constexpr int32_t kFar = 1 << 20;  // more than there are queries in a pass
inline int32_t key_in_step(int64_t key) { return key_in_block(key, kTileStepKeys); }
inline __m512i limited(const int32_t* query, int32_t offset) {
  const __m512i key = _mm512_add_epi32(_mm512_loadu_si512(query), _mm512_set1_epi32(offset));
  return _mm512_min_epi32(_mm512_max_epi32(key, _mm512_setzero_si512()),
                          _mm512_set1_epi32(kTileStepKeys));
}

// Makes a step's weights 2^((score - highest) * factor) of its scores, zero where a row does not
// see a key.
class Weighing {
 public:
  // Begins with the highest scores.
  Weighing(const AttentionArgs& args, const Space& space, const Step& step, uint8_t* scores,
           uint8_t* weights)
      : scores_(floats(scores)),
        weights_(weights),
        total_(space.total + step.index * kTileStepRows),
        at_(step.any ? 0 : kLanes),
        full_(step.full) {
    if (!step.any) return;
    const float scale = __builtin_fabsf(args.scale);
    factor_ = broadcast(args.softcap > 0.0f ? kLog2E : scale * kLog2E);
    if (args.softcap > 0.0f) cap_scores(scale, args.softcap);
    for (int tile = 0; tile < kRowTiles; ++tile) {
      const int64_t row = step.index * kTileStepRows + tile * kLanes;
      first_[tile] = limited(space.query + row, step.begin);
      last_[tile] = limited(space.query + row, step.end);
      const F before = load(space.highest + row);
      const F highest = highest_score(tile);
      const __mmask16 raised =
          _mm512_cmp_ps_mask((highest - before) * factor_, broadcast(kRaise), _CMP_GT_OQ);
      highest_[tile] = _mm512_mask_mov_ps(before, raised, highest);
      const F rescale = power_of_two((before - highest_[tile]) * factor_);
      sum_[tile] = load(space.total + row) * rescale;
      store(space.highest + row, highest_[tile]);
      store(space.rescale + row, rescale);
    }
  }

  bool left() const { return at_ < kLanes; }

  // A pair of keys, for the rows of one tile and then of the other.
  SATCHEL_APART void next() {
    const int tile = tile_;
    tile_ = 1 - tile;
    full_ ? weigh_pair<true>(tile) : weigh_pair<false>(tile);
    at_ += tile;
  }

  void finish() {
    while (left()) next();
    for (int tile = 0; tile < kRowTiles; ++tile) store(total_ + tile * kLanes, sum_[tile]);
  }

 private:
  float* score(int key_tile, int key, int tile) const {
    return scores_ + ((key_tile * kRowTiles + tile) * kLanes + key) * kLanes;
  }

  template <bool kFull>
  inline void weigh_pair(int tile) {
    F weight[kKeyTiles];
    SATCHEL_UNROLL
    for (int k = 0; k < kKeyTiles; ++k) {
      // The difference first: scores may be large.
      weight[k] = power_of_two((load(score(k, at_, tile)) - highest_[tile]) * factor_);
      if (!kFull) weight[k] = _mm512_maskz_mov_ps(seen(k * kLanes + at_, tile), weight[k]);
    }
    sum_[tile] = sum_[tile] + (weight[0] + weight[1]);
    store_parts(weight[0], weight[1], weights_ + tile * kTileBytes + at_ * 64, kWeightPart);
  }

  __mmask16 seen(int key, int tile) const {
    const __m512i at = _mm512_set1_epi32(key);
    return _mm512_mask_cmpgt_epi32_mask(_mm512_cmple_epi32_mask(first_[tile], at), last_[tile], at);
  }

  void cap_scores(float scale, float softcap) {
    const F cap = broadcast(softcap), inner = broadcast(scale / softcap);
    for (int64_t i = 0; i < kScoreBytes / 4; i += kLanes) {
      store(scores_ + i, hyperbolic_tangent(load(scores_ + i) * inner) * cap);
    }
  }

  F highest_score(int tile) const {
    F top[4];
    for (F& t : top) t = broadcast(kLowest);
    for (int i = 0; i < kLanes; i += 2) {
      SATCHEL_UNROLL
      for (int k = 0; k < 4; ++k) {
        const int key = i + k / 2;
        const F value = load(score(k % 2, key, tile));
        top[k] = full_
                     ? _mm512_max_ps(top[k], value)
                     : _mm512_mask_max_ps(top[k], seen(k % 2 * kLanes + key, tile), top[k], value);
      }
    }
    return _mm512_max_ps(_mm512_max_ps(top[0], top[1]), _mm512_max_ps(top[2], top[3]));
  }

  float* scores_;
  uint8_t* weights_;
  float* total_;
  int64_t at_;  // which pair of keys is next, for which rows
  int tile_ = 0;
  bool full_;
  F factor_, highest_[kRowTiles], sum_[kRowTiles];
  __m512i first_[kRowTiles], last_[kRowTiles];
};

}  // namespace
}  // namespace satchel
