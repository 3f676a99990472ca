// How pictures become what a vision-language model sees, and what stands for them in a text. The
// choices travel in the program file, and all bits are those of Python's satchel.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "../llm/json.h"
#include "../vision/preprocess.h"

namespace satchel::vision_language {

using vision::channels_of;
using vision::damaged;
using vision::size_of;

using Rows = std::vector<float>;  // [rows, hidden]

// What is made of a picture of a size: known before any pixel is touched.
struct Layout {
  int64_t width, height;          // of the picture
  int64_t rows = 0, columns = 0;  // of tiles, if it is cut into some
  int64_t marks = 1;              // that stand for it in a text
  int64_t frames = 1;             // that are seen for each mark
  int64_t rows_of_mark = 0;       // that a mark takes in a prompt
};

class Preprocessing {
 public:
  virtual ~Preprocessing() = default;

  // From what a program says of its images. Throws FormatError if that is damaged, and ConfigError
  // if it is not done here.
  static std::unique_ptr<Preprocessing> read(const llm::Json& about);

  int64_t frame_height() const { return frame_height_; }
  int64_t frame_width() const { return frame_width_; }
  // That the program makes of a frame.
  virtual int64_t seen_rows() const { return rows_; }
  // The least that a picture takes in a prompt.
  int64_t least_rows() const { return rows_; }

  // Of one `among` a prompt's pictures.
  virtual Layout layout(int64_t width, int64_t height, size_t among) const = 0;
  virtual std::string text_of(const Layout&, const std::string& mark) const { return mark; }
  // Those of all marks, in their order.
  virtual std::vector<vision::Image> frames(const vision::Image& picture,
                                            const Layout& layout) const = 0;
  // What stands for a mark, of what was seen of each of its frames.
  virtual Rows arranged(const Layout&, std::vector<Rows> seen) const { return std::move(seen[0]); }

  // A frame as the program takes it, [height, width, 3].
  std::vector<float> normalized(const vision::Image& frame) const;

 protected:
  explicit Preprocessing(const llm::Json& about);

  vision::Image resized(const vision::Image& picture, int64_t width, int64_t height) const;
  // In the middle of a square of the mean colour.
  vision::Image in_square(const vision::Image& picture) const;

  int64_t rows_;
  int64_t frame_height_ = 0, frame_width_ = 0;
  std::array<double, 3> mean_{}, std_{};
  vision::Interpolation interpolation_;
};

inline constexpr int64_t kLongestSide = 4096;  // of a frame

// Pictures that are made on the way to the model may be larger than what they are made of. Throws
// vision::ImageError.
void require_possible(int64_t width, int64_t height);

// A part of a picture; what lies outside of it is black.
vision::Image cut_out(const vision::Image& picture, const vision::Area& area);

// One for each family.
std::unique_ptr<Preprocessing> read_clip(const llm::Json& about);   // LLaVA-1.5: the middle
std::unique_ptr<Preprocessing> read_tiles(const llm::Json& about);  // Idefics3, SmolVLM
std::unique_ptr<Preprocessing> read_grid(const llm::Json& about);   // LLaVA-NeXT, OneVision

}  // namespace satchel::vision_language
