// Products of unsigned codes with signed weights, four outputs at a time, in plain C++.
//
// The dots_*.h files say how a step of four columns is added to the sums of kLanes outputs:
// WeightStep has [kLanes][4] weights, CodeStep four codes for all of them.
#pragma once

namespace satchel {
namespace {

constexpr int kIntegerRows = 2;
constexpr int kIntegerTiles = 1;
constexpr int32_t kCodeShift = 0;  // what is taken off codes before they are multiplied

using Dots = I;
struct WeightStep {
  I column[4];
};
struct CodeStep {
  int32_t code[4];
};

inline Dots dots_from(I sums) { return sums; }
inline WeightStep load_weights(const int8_t* p) {
  WeightStep step;
  for (int j = 0; j < 4; ++j) step.column[j] = I{p[j], p[4 + j], p[8 + j], p[12 + j]};
  return step;
}
inline CodeStep broadcast_codes(const uint8_t* p) { return {{p[0], p[1], p[2], p[3]}}; }
inline Dots add_products(Dots dots, const CodeStep& codes, const WeightStep& weights) {
  // Unsigned, because a sum may pass the limits on its way.
  for (int j = 0; j < 4; ++j) dots = (I)((U)dots + (U)(weights.column[j] * codes.code[j]));
  return dots;
}
inline I sums_of(Dots dots) { return dots; }

}  // namespace
}  // namespace satchel
