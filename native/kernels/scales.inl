// The scales of a few tiles' groups as floats, one group after the other, whichever way they are
// stored; a kernel's `Code` says which. Included after the lanes.

namespace satchel {
namespace {

// fp16: q4 and q8.
class HalfScales {
 public:
  // Of tiles at a distance from each other; from `first_group` on.
  HalfScales(const PackedMatrix& w, int64_t tile, int64_t distance = 1, int64_t first_group = 0)
      : scales_(w.scales + tile * scales_in_tile(w) + first_group * kTileRows),
        stream_(distance * scales_in_tile(w)) {}

  // Of the t-th tile, for the rows from `row` on.
  F at(int64_t t, int64_t row = 0) const { return load_half(scales_ + t * stream_ + row); }
  void next() { scales_ += kTileRows; }

 private:
  const uint16_t* scales_;
  int64_t stream_;
};

// Whole numbers times the steps of their run of columns: q4_steps.
class StepScales {
 public:
  StepScales(const PackedMatrix& w, int64_t tile, int64_t distance = 1, int64_t first_group = 0)
      : stream_(2 * distance * scales_in_tile(w)), groups_in_run_(kRunColumns / w.group) {
    const int64_t run = first_group / groups_in_run_, before = first_group - run * groups_in_run_;
    const int8_t* tile_start = reinterpret_cast<const int8_t*>(w.scales + tile * scales_in_tile(w));
    steps_ = tile_start + run * (kStepBytes + groups_in_run_ * kTileRows);
    whole_ = steps_ + kStepBytes + before * kTileRows;
    left_ = groups_in_run_ - before;
  }

  F at(int64_t t, int64_t row = 0) const {
    const float* steps = reinterpret_cast<const float*>(steps_ + t * stream_) + row;
    return load_int8(whole_ + t * stream_ + row) * load(steps);
  }
  void next() {
    whole_ += kTileRows;
    if (--left_ == 0) {
      steps_ = whole_;
      whole_ += kStepBytes;
      left_ = groups_in_run_;
    }
  }

 private:
  static constexpr int64_t kStepBytes = kTileRows * sizeof(float);
  int64_t stream_, groups_in_run_, left_;  // groups of the run from the current one on
  const int8_t *steps_, *whole_;
};

// The steps of T tiles' super-blocks as floats.
template <int T>
struct alignas(64) SuperblockSteps {
  float steps[T][kTileRows];

  void read(const uint8_t* from, int64_t stream) {
    for (int t = 0; t < T; ++t) {
      const uint16_t* halves = reinterpret_cast<const uint16_t*>(from + t * stream);
      for (int64_t row = 0; row < kTileRows; row += kLanes) {
        store(steps[t] + row, load_half(halves + row));
      }
    }
  }
  F at(int64_t t, int64_t row) const { return load(steps[t] + row); }
};

// Bytes times the steps of their super-block, of T tiles: q6_k.
template <int T>
class ByteScales {
 public:
  ByteScales(const PackedMatrix& w, int64_t tile, int64_t distance = 1, int64_t first_group = 0)
      : stream_(2 * distance * scales_in_tile(w)),
        blocks_left_(w.cols / kSuperblock - first_group / kGroups),
        left_(kGroups - first_group % kGroups) {
    const uint8_t* block = reinterpret_cast<const uint8_t*>(w.scales + tile * scales_in_tile(w)) +
                           first_group / kGroups * (kStepBytes + kGroups * kTileRows);
    steps_.read(block, stream_);
    whole_ = block + kStepBytes + first_group % kGroups * kTileRows;
  }

  F at(int64_t t, int64_t row = 0) const {
    const uint8_t* whole = whole_ + t * stream_ + row;
    return load_int8(reinterpret_cast<const int8_t*>(whole)) * steps_.at(t, row);
  }
  // The same apart, of the current group.
  const uint8_t* multiples(int64_t t) const { return whole_ + t * stream_; }
  F step(int64_t t) const { return steps_.at(t, 0); }
  void next() {
    whole_ += kTileRows;
    if (--left_ > 0) return;
    left_ = kGroups;
    if (--blocks_left_ > 0) steps_.read(whole_, stream_);
    whole_ += kStepBytes;
  }

 private:
  static constexpr int64_t kGroups = kSuperblock / 16, kStepBytes = kTileRows * sizeof(uint16_t);
  int64_t stream_, blocks_left_, left_;  // super-blocks, and groups of one, from the current on
  const uint8_t* whole_;
  SuperblockSteps<T> steps_;
};

// Scales and minima of six bits, of T tiles: q4_k and q5_k. Those of a super-block are unpacked
// when its first group comes.
template <int T>
class SixBitScales {
 public:
  SixBitScales(const PackedMatrix& w, int64_t tile, int64_t distance = 1, int64_t first_group = 0)
      : stream_(2 * distance * scales_in_tile(w)),
        left_(w.cols / kSuperblock - first_group / kGroups),
        group_(first_group % kGroups) {
    block_ = reinterpret_cast<const uint8_t*>(w.scales + tile * scales_in_tile(w)) +
             first_group / kGroups * kBytes;
    unpack();
  }

  F at(int64_t t, int64_t row = 0) const {
    return load_codes(scales_[t] + group_ * kTileRows + row) * steps_.at(t, row);
  }
  // What is taken off the weights of the group.
  F minimum(int64_t t, int64_t row = 0) const {
    return load_codes(minima_[t] + group_ * kTileRows + row) * minimum_steps_.at(t, row);
  }
  // The same apart, of the current group.
  const uint8_t* multiples(int64_t t) const { return scales_[t] + group_ * kTileRows; }
  const uint8_t* minima(int64_t t) const { return minima_[t] + group_ * kTileRows; }
  F step(int64_t t) const { return steps_.at(t, 0); }
  F minimum_step(int64_t t) const { return minimum_steps_.at(t, 0); }
  void next() {
    if (++group_ < kGroups) return;
    group_ = 0;
    block_ += kBytes;
    if (--left_ > 0) unpack();
  }

 private:
  static constexpr int64_t kGroups = 8, kStepBytes = 2 * kTileRows * sizeof(uint16_t), kLine = 64,
                           kBytes = kStepBytes + 3 * kLine;
  typedef uint8_t Line __attribute__((vector_size(kLine)));

  void unpack() {
    steps_.read(block_, stream_);
    minimum_steps_.read(block_ + kStepBytes / 2, stream_);
    for (int t = 0; t < T; ++t) {
      Line scales, minima, upper;
      const uint8_t* from = block_ + t * stream_ + kStepBytes;
      std::memcpy(&scales, from, kLine);
      std::memcpy(&minima, from + kLine, kLine);
      std::memcpy(&upper, from + 2 * kLine, kLine);
      put(scales_[t], (scales & 15) | ((upper << 4) & 48));
      put(scales_[t] + kLine, (scales >> 4) | ((upper << 2) & 48));
      put(minima_[t], (minima & 15) | (upper & 48));
      put(minima_[t] + kLine, (minima >> 4) | ((upper >> 2) & 48));
    }
  }
  static void put(uint8_t* out, const Line& line) { std::memcpy(out, &line, kLine); }

  int64_t stream_, left_, group_;  // super-blocks from the current one on, and the group within
  const uint8_t* block_;
  SuperblockSteps<T> steps_, minimum_steps_;
  alignas(64) uint8_t scales_[T][kGroups * kTileRows], minima_[T][kGroups * kTileRows];
};

}  // namespace
}  // namespace satchel
