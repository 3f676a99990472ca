// LLaVA-1.5: the shorter side is scaled, and the middle is all that is seen.
#include <algorithm>

#include "preprocessing.h"

namespace satchel::vision_language {

namespace {

using vision::Area;
using vision::Image;

// Of a side, which pixels are cut out, and where they lie in the frame: what is outside is black.
struct Cut {
  int64_t from, count, to;
};

Cut middle(int64_t have, int64_t wanted) {
  if (have >= wanted) return {(have - wanted) / 2, wanted, 0};
  return {0, have, (wanted - have + 1) / 2};
}

class ClipPreprocessing final : public Preprocessing {
 public:
  explicit ClipPreprocessing(const llm::Json& about) : Preprocessing(about) {
    const llm::Json& parts = about["preprocessing"];
    shorter_ = size_of(parts["resize"], kLongestSide);
    const llm::JsonList* crop = parts["crop"].list();
    if (crop == nullptr || crop->size() != 2) damaged();
    frame_height_ = size_of((*crop)[0], kLongestSide);
    frame_width_ = size_of((*crop)[1], kLongestSide);
  }

  Layout layout(int64_t width, int64_t height, size_t) const override {
    return {.width = width, .height = height, .rows_of_mark = rows_};
  }

  std::vector<Image> frames(const Image& picture, const Layout&) const override {
    const int64_t shorter = std::min(picture.width, picture.height);
    const int64_t longer = std::max(picture.width, picture.height);
    const auto scaled =
        static_cast<int64_t>(static_cast<double>(shorter_ * longer) / static_cast<double>(shorter));
    const bool upright = picture.width <= picture.height;
    const int64_t width = upright ? shorter_ : scaled, height = upright ? scaled : shorter_;
    const Cut across = middle(width, frame_width_), down = middle(height, frame_height_);
    // Only this is resized: a very long picture would fill the memory.
    const Image part = vision::resize_part(picture, width, height, interpolation_,
                                           {across.from, down.from, across.count, down.count});
    return {cut_out(part, {-across.to, -down.to, frame_width_, frame_height_})};
  }

 private:
  int64_t shorter_;  // side, after resizing
};

}  // namespace

std::unique_ptr<Preprocessing> read_clip(const llm::Json& about) {
  return std::make_unique<ClipPreprocessing>(about);
}

}  // namespace satchel::vision_language
