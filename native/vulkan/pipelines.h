// Shaders as pipelines, made when they are first used and kept on disk from one process to the
// next.
#pragma once

#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <utility>

#include "device.h"

namespace satchel::vulkan {

// The SPIR-V of shaders/, from which CMake makes shaders.cpp.
struct Shader {
  const char* name;
  const uint8_t* code;
  size_t size;
};
extern const Shader kShaders[];
extern const size_t kShaderCount;

// The last binding is that of shaders/turns.glsl.
inline constexpr uint32_t kMostBindings = 8, kPushBytes = 128;
using Constants = std::array<uint32_t, 13>;  // what a shader is specialised with

class Pipelines {
 public:
  // `cache_folder` is empty where nothing is kept.
  Pipelines(const Device& device, std::string cache_folder);
  ~Pipelines();
  Pipelines(const Pipelines&) = delete;

  VkPipeline find(const std::string& shader, const Constants& constants);
  VkDescriptorSetLayout set_layout() const { return set_layout_; }
  VkPipelineLayout layout() const { return layout_; }
  // Writes the pipelines that were made since the last time; what fails is no matter.
  void keep();

 private:
  std::string cache_path() const;
  void open_cache();
  void close();

  const Device& device_;
  std::string folder_;
  VkDescriptorSetLayout set_layout_ = nullptr;
  VkPipelineLayout layout_ = nullptr;
  VkPipelineCache cache_ = nullptr;
  std::map<std::pair<std::string, Constants>, VkPipeline> pipelines_;
  bool is_new_ = false;
};

}  // namespace satchel::vulkan
