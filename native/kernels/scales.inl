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

// Whole numbers times the steps of their run: q4_steps.
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

}  // namespace
}  // namespace satchel
