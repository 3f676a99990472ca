// LLaVA-1.5: a picture is scaled by its shorter side, and its middle is all that is seen; or it is
// given both sides.
#include <algorithm>
#include <utility>

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
    if (const llm::JsonList* both = parts["resize"].list()) {
      if (both->size() != 2) damaged();
      height_ = size_of((*both)[0], kLongestSide);
      width_ = size_of((*both)[1], kLongestSide);
    } else {
      shorter_ = size_of(parts["resize"], kLongestSide);
    }
    if (const llm::Json& square = parts["square"]; !square.is_null()) {
      const bool* given = square.boolean();
      if (given == nullptr) damaged();
      square_ = *given;
    }
    const llm::JsonList* crop = parts["crop"].list();
    if (crop == nullptr || crop->size() != 2) damaged();
    frame_height_ = size_of((*crop)[0], kLongestSide);
    frame_width_ = size_of((*crop)[1], kLongestSide);
  }

  Layout layout(int64_t width, int64_t height, size_t) const override {
    return {.width = width, .height = height, .rows_of_mark = rows_};
  }

  std::vector<Image> frames(const Image& given, const Layout&) const override {
    const Image picture = square_ ? in_square(given) : given;
    const auto [width, height] = scaled(picture);
    const Cut across = middle(width, frame_width_), down = middle(height, frame_height_);
    // Only this is resized: a very long picture would fill the memory.
    const Image part = vision::resize_part(picture, width, height, interpolation_,
                                           {across.from, down.from, across.count, down.count});
    return {cut_out(part, {-across.to, -down.to, frame_width_, frame_height_})};
  }

 private:
  std::pair<int64_t, int64_t> scaled(const Image& picture) const {
    if (shorter_ == 0) return {width_, height_};
    const int64_t shorter = std::min(picture.width, picture.height);
    const int64_t longer = std::max(picture.width, picture.height);
    const auto other =
        static_cast<int64_t>(static_cast<double>(shorter_ * longer) / static_cast<double>(shorter));
    if (picture.width <= picture.height) return {shorter_, other};
    return {other, shorter_};
  }

  int64_t shorter_ = 0;             // side, after resizing; 0: both are given
  int64_t width_ = 0, height_ = 0;  // these
  bool square_ = false;             // made one of the mean colour first
};

}  // namespace

std::unique_ptr<Preprocessing> read_clip(const llm::Json& about) {
  return std::make_unique<ClipPreprocessing>(about);
}

}  // namespace satchel::vision_language
