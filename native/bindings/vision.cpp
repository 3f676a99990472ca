// Pictures and their classes.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/array.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>

#include "../vision/classifier.h"

namespace nb = nanobind;
using namespace satchel;
using namespace satchel::vision;

namespace {

using Pixels = nb::ndarray<const uint8_t, nb::ndim<3>, nb::c_contig, nb::device::cpu>;
using Scores = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

template <typename T>
nb::ndarray<nb::numpy, T> given(std::vector<T> values, std::initializer_list<size_t> shape) {
  auto kept = std::make_unique<std::vector<T>>(std::move(values));
  T* data = kept->data();
  nb::capsule owner(kept.release(),
                    [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  return {data, shape, owner};
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const ImageError& e) {
    nb::object type = nb::module_::import_("satchel.errors").attr("InputError");
    PyErr_SetObject(type.ptr(), type(e.what(), e.advice).ptr());
  }
}

}  // namespace

void bind_vision(nb::module_& m) {
  nb::register_exception_translator(translate);
  m.def(
      "read_image",
      [](const nb::bytes& file, const std::string& name, bool on_white) {
        Image image;
        {
          nb::gil_scoped_release release;
          image = read_image({static_cast<const uint8_t*>(file.data()), file.size()}, name,
                             on_white ? Alpha::on_white : Alpha::dropped);
        }
        const auto height = static_cast<size_t>(image.height);
        const auto width = static_cast<size_t>(image.width);
        return given(std::move(image.rgb), {height, width, size_t{3}});
      },
      nb::arg("file"), nb::arg("name"), nb::arg("on_white") = false,
      "The pixels of a PNG or a JPEG, [height, width, 3].");
  m.def(
      "resize_part",
      [](const Pixels& pixels, std::pair<int64_t, int64_t> size, std::array<int64_t, 4> area,
         const std::string& interpolation) {
        const auto named = interpolation_named(interpolation);
        const auto [left, top, width, height] = area;
        const bool inside = left >= 0 && top >= 0 && width > 0 && height > 0 &&
                            width <= size.first - left && height <= size.second - top;
        if (pixels.shape(2) != 3 || pixels.size() == 0 || !named || !inside)
          throw nb::value_error("an area of [height, width, 3] must lie inside");
        Image made;
        {
          nb::gil_scoped_release release;
          Image image(static_cast<int64_t>(pixels.shape(1)), static_cast<int64_t>(pixels.shape(0)));
          std::copy_n(pixels.data(), pixels.size(), image.rgb.begin());
          made = resize_part(image, size.first, size.second, *named, {left, top, width, height});
        }
        return given(std::move(made.rgb),
                     {static_cast<size_t>(height), static_cast<size_t>(width), size_t{3}});
      },
      nb::arg("pixels"), nb::arg("size"), nb::arg("area"), nb::arg("interpolation"),
      "An area (left, top, width, height) of a picture that is resized to (width, height).");
  m.def(
      "prepare_image",
      [](const Pixels& pixels, int64_t resize, std::pair<int64_t, int64_t> crop,
         std::array<double, 3> mean, std::array<double, 3> std, const std::string& interpolation) {
        const auto named = interpolation_named(interpolation);
        if (pixels.shape(2) != 3 || pixels.size() == 0 || !named)
          throw nb::value_error("the pixels must be [height, width, 3]");
        const Preprocessing preprocessing{resize, crop.first, crop.second, mean, std, *named};
        std::vector<float> input;
        {
          nb::gil_scoped_release release;
          Image image(static_cast<int64_t>(pixels.shape(1)), static_cast<int64_t>(pixels.shape(0)));
          std::copy_n(pixels.data(), pixels.size(), image.rgb.begin());
          input = preprocessing.prepare(image);
        }
        return given(std::move(input), {size_t{1}, size_t{3}, static_cast<size_t>(crop.first),
                                        static_cast<size_t>(crop.second)});
      },
      nb::arg("pixels"), nb::arg("resize"), nb::arg("crop"), nb::arg("mean"), nb::arg("std"),
      nb::arg("interpolation"), "What a model sees of a picture, [1, 3, height, width].");
  m.def(
      "top_classes",
      [](const Scores& scores, size_t top) {
        std::vector<std::pair<size_t, double>> found;
        for (const Prediction& one : top_classes({scores.data(), scores.size()}, top))
          found.emplace_back(one.index, one.probability);
        return found;
      },
      nb::arg("scores"), nb::arg("top"),
      "The likeliest classes of scores, each with its probability.");
}
