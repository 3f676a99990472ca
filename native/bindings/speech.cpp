// What is done to sound before a model hears it.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>

#include "log_mel.h"

namespace nb = nanobind;
using namespace satchel;

namespace {

using Samples = nb::ndarray<const float, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Filters = nb::ndarray<const float, nb::ndim<2>, nb::c_contig, nb::device::cpu>;

nb::ndarray<nb::numpy, float> log_mel_of(const Samples& samples, const Filters& filters) {
  if (filters.shape(1) != static_cast<size_t>(kFrequencies)) {
    throw nb::value_error("the filters must be [mels, 201]");
  }
  const MelFilters mel(filters.data(), static_cast<int64_t>(filters.shape(0)));
  const int64_t frames = whole_frames(static_cast<int64_t>(samples.shape(0)));
  const size_t shape[] = {static_cast<size_t>(frames), filters.shape(0)};
  auto out = std::make_unique<float[]>(shape[0] * shape[1]);
  {
    nb::gil_scoped_release release;
    log_mel(samples.data(), frames, mel, out.get());
  }
  float* data = out.release();
  nb::capsule owner(data, [](void* p) noexcept { delete[] static_cast<float*>(p); });
  return {data, 2, shape, owner};
}

}  // namespace

void bind_speech(nb::module_& m) {
  m.def("log_mel", log_mel_of, nb::arg("samples"), nb::arg("filters"),
        "log10 of the mel spectrum of every whole frame, [frames, mels].");
}
