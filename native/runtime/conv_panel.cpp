#include "conv_panel.h"

namespace satchel {

namespace {

constexpr int64_t kPanelBytes = 1 << 18;
constexpr int64_t kFewestRows = 28, kMostRows = 224;  // multiples of the kernels' blocks of 14

}  // namespace

void check_conv_weight(NodeCall& call) {
  const Tensor &x = call.in(0), &w = call.in(1), &y = *call.output;
  require(x.rank == 4 && y.rank == 4, call, "x and the output must be [N, H, W, C]");
  require(w.weight && w.weight->is_matrix(), call, "the weight must be a packed matrix");
  const int64_t groups = call.params.integer[kGroups] = int_attribute(call, "groups", 1);
  const int64_t channels = x.shape[3], outputs = w.shape[0];
  require(groups >= 1 && channels % groups == 0 && outputs % groups == 0, call,
          "the groups do not fit");
  const int64_t taps = window_of(call).taps();
  require(w.shape[1] % taps == 0 && w.shape[1] / taps == channels / groups, call,
          "the weight does not fit");
}

int64_t panel_rows(int64_t pixels, int64_t bytes, int threads) {
  const int64_t fitting = std::clamp(kPanelBytes / bytes, kFewestRows, kMostRows);
  // As many panels for each thread.
  const int64_t panels = round_up((pixels + fitting - 1) / fitting, threads);
  return std::max<int64_t>(1, (pixels + panels - 1) / panels);
}

}  // namespace satchel
