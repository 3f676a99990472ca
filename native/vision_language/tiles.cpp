// Idefics3 and SmolVLM: the longer side is scaled, both are rounded up to whole tiles, these are
// cut out; and then the whole is seen, small.
#include <algorithm>
#include <cmath>

#include "preprocessing.h"

namespace satchel::vision_language {

namespace {

using vision::Image;

constexpr const char* kAround = "<fake_token_around_image>";
constexpr const char* kWhole = "<global-img>";

struct Size {
  int64_t width, height;
};

class TilePreprocessing final : public Preprocessing {
 public:
  explicit TilePreprocessing(const llm::Json& about) : Preprocessing(about) {
    const llm::Json& parts = about["preprocessing"];
    longest_ = size_of(parts["longest"], kLongestSide);
    tile_ = frame_height_ = frame_width_ = size_of(parts["tile"], kLongestSide);
    const bool* split = parts["split"].boolean();
    if (split == nullptr) damaged();
    splits_ = *split;
  }

  Layout layout(int64_t width, int64_t height, size_t) const override {
    Layout made{.width = width, .height = height, .rows_of_mark = rows_};
    const Size whole = in_tiles(scaled(width, height));
    if (splits_ && (whole.width > tile_ || whole.height > tile_)) {
      made.rows = whole.height / tile_;
      made.columns = whole.width / tile_;
      made.marks = made.rows * made.columns + 1;
    }
    return made;
  }

  std::string text_of(const Layout& layout, const std::string& mark) const override {
    std::string text;
    for (int64_t row = 1; row <= layout.rows; ++row) {
      for (int64_t column = 1; column <= layout.columns; ++column) {
        text += kAround;
        text += "<row_" + std::to_string(row) + "_col_" + std::to_string(column) + ">" + mark;
      }
      text += "\n";
    }
    if (layout.rows > 0) text += "\n";
    return text + kAround + kWhole + mark + kAround;
  }

  std::vector<Image> frames(const Image& picture, const Layout& layout) const override {
    const Size first = scaled(picture.width, picture.height), second = in_tiles(first);
    Image whole = resized(picture, first.width, first.height);
    if (splits_) whole = resized(whole, second.width, second.height);
    std::vector<Image> made;
    for (int64_t row = 0; row < layout.rows; ++row) {
      for (int64_t column = 0; column < layout.columns; ++column)
        made.push_back(cut_out(whole, {column * tile_, row * tile_, tile_, tile_}));
    }
    made.push_back(resized(whole, tile_, tile_));
    return made;
  }

 private:
  // The longer side is `longest_`; the other is even.
  Size scaled(int64_t width, int64_t height) const {
    const double ratio = static_cast<double>(width) / static_cast<double>(height);
    const auto longest = static_cast<double>(longest_);
    const auto other = static_cast<int64_t>(width >= height ? longest / ratio : longest * ratio);
    const int64_t even = std::max<int64_t>(other + other % 2, 1);
    return width >= height ? Size{longest_, even} : Size{even, longest_};
  }

  Size in_tiles(const Size& size) const {
    const double ratio = static_cast<double>(size.width) / static_cast<double>(size.height);
    const auto up = [&](int64_t side) {
      return std::max<int64_t>(1, (side + tile_ - 1) / tile_) * tile_;
    };
    const bool wide = size.width >= size.height;
    const int64_t longer = up(wide ? size.width : size.height);
    const auto exact = static_cast<double>(longer);
    const int64_t other = up(static_cast<int64_t>(wide ? exact / ratio : exact * ratio));
    return wide ? Size{longer, other} : Size{other, longer};
  }

  int64_t longest_, tile_;
  bool splits_;
};

}  // namespace

std::unique_ptr<Preprocessing> read_tiles(const llm::Json& about) {
  return std::make_unique<TilePreprocessing>(about);
}

}  // namespace satchel::vision_language
