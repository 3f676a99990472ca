// LLaVA-NeXT and OneVision: the whole in the size of one tile; and scaled into the grid of tiles
// that fits it best, black around it.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <tuple>
#include <utility>

#include "preprocessing.h"

namespace satchel::vision_language {

namespace {

using vision::Area;
using vision::Image;

constexpr int64_t kMostTiles = 64;  // of a side
constexpr int64_t kMostGrids = 4096;
constexpr double kSlack = 1.1;  // so much more than the most is let be

double ratio_of(int64_t a, int64_t b) { return static_cast<double>(a) / static_cast<double>(b); }

// As Python's int(round(value, 7)).
int64_t whole_part(double value) {
  char text[400];
  std::snprintf(text, sizeof text, "%.7f", value);
  return std::strtoll(text, nullptr, 10);
}

// As Python's // of numbers above zero.
int64_t times_in(int64_t number, double step) {
  const auto value = static_cast<double>(number);
  const double times = (value - std::fmod(value, step)) / step, whole = std::floor(times);
  return static_cast<int64_t>(times - whole > 0.5 ? whole + 1 : whole);
}

// Rows that lie on a map, [height, width, hidden].
struct Map {
  int64_t height, width, hidden;
  Rows values;

  Map(int64_t height, int64_t width, int64_t hidden)
      : height(height),
        width(width),
        hidden(hidden),
        values(static_cast<size_t>(height * width * hidden)) {}
  float* at(int64_t y, int64_t x) { return values.data() + (y * width + x) * hidden; }
  const float* at(int64_t y, int64_t x) const { return values.data() + (y * width + x) * hidden; }
};

// Where the number-th of `count` lies among `have`, and how much it has of the second neighbour.
struct Between {
  int64_t low, high;
  float part;

  Between(int64_t number, int64_t count, int64_t have) {
    const double at =
        std::max((static_cast<double>(number) + 0.5) * ratio_of(have, count) - 0.5, 0.0);
    low = static_cast<int64_t>(at);
    high = std::min(low + 1, have - 1);
    part = static_cast<float>(at - static_cast<double>(low));
  }
};

// So many lines and columns, each between its two neighbours: lines first.
Map scaled(const Map& map, int64_t lines, int64_t columns) {
  const auto mixed = [&](const float* low, const float* high, float part, float* to) {
    for (int64_t i = 0; i < map.hidden; ++i) to[i] = low[i] * (1 - part) + high[i] * part;
  };
  Map low(lines, map.width, map.hidden), made(lines, columns, map.hidden);
  for (int64_t y = 0; y < lines; ++y) {
    const Between from(y, lines, map.height);
    for (int64_t x = 0; x < map.width; ++x)
      mixed(map.at(from.low, x), map.at(from.high, x), from.part, low.at(y, x));
  }
  for (int64_t x = 0; x < columns; ++x) {
    const Between from(x, columns, map.width);
    for (int64_t y = 0; y < lines; ++y)
      mixed(low.at(y, from.low), low.at(y, from.high), from.part, made.at(y, x));
  }
  return made;
}

class GridPreprocessing final : public Preprocessing {
 public:
  explicit GridPreprocessing(const llm::Json& about) : Preprocessing(about) {
    const llm::Json& parts = about["preprocessing"];
    tile_ = frame_height_ = frame_width_ = size_of(parts["tile"], kLongestSide);
    side_ = size_of(parts["side"], kLongestSide);
    if (side_ * side_ != rows_) damaged();
    if (!parts["most"].is_null()) most_ = size_of(parts["most"], INT32_MAX);
    const llm::JsonList* grids = parts["grids"].list();
    if (grids == nullptr || grids->empty() || grids->size() > kMostGrids) damaged();
    for (const llm::Json& grid : *grids) {
      const llm::JsonList* sides = grid.list();
      if (sides == nullptr || sides->size() != 2) damaged();
      grids_.emplace_back(tiles_of((*sides)[0]), tiles_of((*sides)[1]));
    }
  }

  int64_t seen_rows() const override { return rows_ + 1; }  // behind them what ends a line

  Layout layout(int64_t width, int64_t height, size_t among) const override {
    Layout made{.width = width, .height = height, .rows_of_mark = rows_ + 1};
    if (among > 1 && most_ > 0) return made;  // of several the whole only
    std::tie(made.rows, made.columns) = best_grid(width, height);
    made.frames = made.rows * made.columns + 1;
    const Area patches = unpadded(made);
    const auto [lines, columns] = kept(patches);
    made.rows_of_mark = rows_ + lines * (columns + 1);
    return made;
  }

  std::vector<Image> frames(const Image& picture, const Layout& layout) const override {
    if (layout.rows == 0) return {resized(in_square(picture), tile_, tile_)};
    std::vector<Image> made{resized(picture, tile_, tile_)};
    const int64_t width = layout.columns * tile_, height = layout.rows * tile_;
    require_possible(width, height);
    const double across = ratio_of(width, picture.width), down = ratio_of(height, picture.height);
    const auto fitting = [](int64_t side, double scale, int64_t most) {
      return std::min(static_cast<int64_t>(std::ceil(static_cast<double>(side) * scale)), most);
    };
    const Image large = across < down
                            ? resized(picture, width, fitting(picture.height, across, height))
                            : resized(picture, fitting(picture.width, down, width), height);
    const int64_t left = (width - large.width) / 2, top = (height - large.height) / 2;
    for (int64_t row = 0; row < layout.rows; ++row) {
      for (int64_t column = 0; column < layout.columns; ++column)
        made.push_back(cut_out(large, {column * tile_ - left, row * tile_ - top, tile_, tile_}));
    }
    return made;
  }

  // The whole, and then the tiles put together as they lie, without what is black around them.
  Rows arranged(const Layout& layout, std::vector<Rows> seen) const override {
    if (layout.rows == 0) return std::move(seen[0]);
    const auto hidden = static_cast<int64_t>(seen[0].size()) / (rows_ + 1);
    const auto in_a_row = static_cast<size_t>(hidden);
    const Area patches = unpadded(layout);
    Map map(patches.height, patches.width, hidden);
    for (int64_t y = 0; y < map.height; ++y) {
      for (int64_t x = 0; x < map.width; ++x) {
        const int64_t row = patches.top + y, column = patches.left + x;
        const Rows& tile =
            seen[static_cast<size_t>(1 + row / side_ * layout.columns + column / side_)];
        const int64_t patch = row % side_ * side_ + column % side_;
        std::copy_n(tile.data() + patch * hidden, in_a_row, map.at(y, x));
      }
    }
    const auto [lines, columns] = kept(patches);
    if (lines != map.height || columns != map.width) map = scaled(map, lines, columns);
    const float* newline = seen[0].data() + rows_ * hidden;
    Rows made(seen[0].begin(), seen[0].begin() + rows_ * hidden);
    made.reserve(static_cast<size_t>(layout.rows_of_mark) * in_a_row);
    for (int64_t y = 0; y < lines; ++y) {
      made.insert(made.end(), map.at(y, 0), map.at(y, 0) + columns * hidden);
      made.insert(made.end(), newline, newline + hidden);
    }
    return made;
  }

 private:
  using Pair = std::pair<int64_t, int64_t>;  // down and across

  int64_t tiles_of(const llm::Json& value) const {
    const int64_t size = size_of(value, kMostTiles * tile_);
    if (size % tile_ != 0) damaged();
    return size / tile_;
  }

  // The grid that keeps most of a picture, and wastes least.
  Pair best_grid(int64_t width, int64_t height) const {
    Pair best, best_worth;
    for (const auto& [rows, columns] : grids_) {
      const int64_t down = rows * tile_, across = columns * tile_;
      const double scale = std::min(ratio_of(across, width), ratio_of(down, height));
      const auto scaled_width = static_cast<int64_t>(static_cast<double>(width) * scale);
      const auto scaled_height = static_cast<int64_t>(static_cast<double>(height) * scale);
      const int64_t kept = std::min(scaled_width * scaled_height, width * height);
      const Pair worth{kept, kept - down * across};
      if (best.first == 0 || worth > best_worth) best = {rows, columns}, best_worth = worth;
    }
    return best;
  }

  // In the middle of a square of the mean colour.
  // Where the picture lies among the patches of all tiles.
  Area unpadded(const Layout& layout) const {
    const int64_t lines = layout.rows * side_, columns = layout.columns * side_;
    const auto width = static_cast<double>(layout.width);
    const auto height = static_cast<double>(layout.height);
    if (width / height > ratio_of(columns, lines)) {
      const int64_t edge =
          (lines - whole_part(height * (static_cast<double>(columns) / width))) / 2;
      return {0, edge, columns, lines - 2 * edge};
    }
    const int64_t edge = (columns - whole_part(width * (static_cast<double>(lines) / height))) / 2;
    return {edge, 0, columns - 2 * edge, lines};
  }

  // The lines and columns that are left where there are too many.
  Pair kept(const Area& patches) const {
    if (most_ == 0) return {patches.height, patches.width};
    const double ratio = std::sqrt(ratio_of(patches.height * patches.width, most_ * side_ * side_));
    if (ratio <= kSlack) return {patches.height, patches.width};
    return {times_in(patches.height, ratio), times_in(patches.width, ratio)};
  }

  int64_t tile_, side_;  // patches of a tile's side
  int64_t most_ = 0;     // tiles' worth of rows, more are averaged; 0: no bound
  std::vector<Pair> grids_;
};

}  // namespace

std::unique_ptr<Preprocessing> read_grid(const llm::Json& about) {
  return std::make_unique<GridPreprocessing>(about);
}

}  // namespace satchel::vision_language
