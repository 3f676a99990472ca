#include "peaks.h"

#include <algorithm>

#include "executor.h"

namespace satchel::vulkan {

namespace {

constexpr int kRounds = 5;

// The fastest of some runs, in seconds by the device's clock.
double fastest(Device& device, Recorder& recorder, const char* shader, const View& x, const View& y,
               uint32_t number, uint32_t groups) {
  double best = 0;
  for (int i = 0; i < kRounds; ++i) {
    recorder.set_timed(true);
    recorder.begin();
    const struct {
      uint32_t number;
    } push{number};
    recorder.dispatch(shader, {}, {x, written(y)}, push, {groups});
    const VkCommandBuffer commands = recorder.finish(shader);
    device.submit({&commands, 1}, shader);
    for (const Recorder::Timing& timing : recorder.timings())
      best = best == 0 ? timing.seconds : std::min(best, timing.seconds);
  }
  return best;
}

}  // namespace

Peaks measure_peaks(size_t number) {
  Device device(find_device(number));
  const DeviceInfo& info = device.info();
  Pipelines pipelines(device, "");
  Recorder recorder(device, pipelines);
  const bool is_software = info.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU;
  // Far more than caches hold, but not more than there is.
  const uint64_t most = uint64_t{1} << (is_software ? 26 : 30);
  const uint64_t bytes = std::min({most, info.largest_binding() / 2, info.memory_left() / 4});
  Buffer x(device, bytes, Where::device), y(device, kOffsetStep, Where::device);
  device.run(
      [&](VkCommandBuffer commands) {
        device->vkCmdFillBuffer(commands, x.handle(), 0, VK_WHOLE_SIZE, 0x01010101);
      },
      "filling memory");
  const View from = recorder.view({x.handle(), 0, bytes}), to = recorder.view({y.handle(), 0, 4});
  Peaks peaks;
  const uint32_t groups = is_software ? 16 : 132 * 16;
  const auto rate = [](double work, double seconds) { return seconds > 0 ? work / seconds : 0.0; };
  peaks.read_bytes_s = rate(
      static_cast<double>(bytes),
      fastest(device, recorder, "peak_read", from, to, static_cast<uint32_t>(bytes / 16), groups));
  const uint32_t rounds = is_software ? 256 : 4096;
  if (info.features.cooperative_bytes) {
    constexpr double products = 4 * 8 * 16 * 16 * 32;  // of a workgroup and round
    peaks.multiply_adds_s =
        rate(products * rounds * groups,
             fastest(device, recorder, "peak_matrix", from, to, rounds, groups));
  } else if (info.features.integer_dot) {
    constexpr double products = 256 * 16 * 4;
    peaks.multiply_adds_s = rate(products * rounds * groups,
                                 fastest(device, recorder, "peak_dot", from, to, rounds, groups));
  }
  return peaks;
}

}  // namespace satchel::vulkan
