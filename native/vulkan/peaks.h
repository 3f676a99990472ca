// What a device can do at most, measured: the limits that a program's speed is compared with.
#pragma once

#include <cstddef>

namespace satchel::vulkan {

struct Peaks {
  double read_bytes_s = 0;
  double multiply_adds_s = 0;  // of bytes, by the fastest way that shaders have
};

// Of a device by its number. Throws ExecutionError if there is none such.
Peaks measure_peaks(size_t device);

}  // namespace satchel::vulkan
