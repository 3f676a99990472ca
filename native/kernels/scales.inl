// The scales of a few tiles' groups as floats, whichever way they are stored; a kernel's `Code` says which.
// Included after the lanes.

namespace satchel {
namespace {

// fp16: q4 and q8.
class HalfScales {
 public:
  // Of tiles at a distance from each other.
  HalfScales(const PackedMatrix& w, int64_t tile, int64_t distance = 1)
      : scales_(w.scales + tile * scales_in_tile(w)), stream_(distance * scales_in_tile(w)) {}

  // Those of group g of the t-th of the tiles, for the rows from `row` on.
  F at(int64_t t, int64_t g, int64_t row = 0) const {
    return load_half(scales_ + t * stream_ + g * kTileRows + row);
  }

 private:
  const uint16_t* scales_;
  int64_t stream_;
};

// Whole numbers times steps: q4_steps.
class StepScales {
 public:
  StepScales(const PackedMatrix& w, int64_t tile, int64_t distance = 1)
      : runs_(reinterpret_cast<const uint8_t*>(w.scales + tile * scales_in_tile(w))),
        stream_(2 * distance * scales_in_tile(w)),
        shift_(__builtin_ctzll(static_cast<uint64_t>(kRunColumns / w.group))) {}

  F at(int64_t t, int64_t g, int64_t row = 0) const {
    // Before a group's whole numbers are those of all groups before it, and the steps of the runs so far.
    const int64_t run = g >> shift_, groups = run << shift_;
    const uint8_t* steps = runs_ + t * stream_ + run * kStepBytes + groups * kTileRows;
    const uint8_t* whole = steps + kStepBytes + (g - groups) * kTileRows;
    return load_int8(reinterpret_cast<const int8_t*>(whole) + row) *
           load(reinterpret_cast<const float*>(steps) + row);
  }

 private:
  static constexpr int64_t kStepBytes = kTileRows * sizeof(float);
  const uint8_t* runs_;
  int64_t stream_;
  int shift_;
};

}  // namespace
}  // namespace satchel
