// Codes asked for before a single token comes to them, where the hardware does not do so well
// enough by itself.
#pragma once

#include <immintrin.h>

#include "tables.h"

namespace satchel {
namespace {

// Intel's prefetchers stop at each end of a 4 KB page: asking made a row a sixth faster. Those of
// Zen 4 go on, and there asking cost a third.
class StreamsAhead {
 public:
  explicit StreamsAhead(const QuantizedRows& x) : ask_(x.rows == x.digits && asks_ahead()) {}

  // With each group, whose codes are so many bytes, of T tiles at a distance.
  template <int T>
  inline void ask(const uint8_t* codes, int64_t distance, int64_t bytes) const {
    if (!ask_) return;
    SATCHEL_UNROLL
    for (int t = 0; t < T; ++t) {
      const char* there = reinterpret_cast<const char*>(codes + t * distance + kBytesAhead);
      SATCHEL_UNROLL
      for (int64_t at = 0; at < bytes; at += 64) _mm_prefetch(there + at, _MM_HINT_T0);
    }
  }

 private:
  static constexpr int64_t kBytesAhead = 2048;
  bool ask_;
};

}  // namespace
}  // namespace satchel
