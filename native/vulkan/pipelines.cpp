#include "pipelines.h"

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <vector>

#include "../runtime/errors.h"
#include "../runtime/sha256.h"

namespace satchel::vulkan {

namespace {

using Bytes = std::vector<uint8_t>;

Digest digest_of(const uint8_t* data, size_t size) {
  Sha256 sum;
  sum.update(data, size);
  return sum.finish();
}

// What a driver left in the file, if its checksum is right: drivers trust what they are given.
Bytes read_kept(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  Bytes bytes{std::istreambuf_iterator<char>(file), {}};
  constexpr size_t head = sizeof(Digest);
  if (bytes.size() <= head) return {};
  const Digest digest = digest_of(bytes.data() + head, bytes.size() - head);
  if (std::memcmp(digest.data(), bytes.data(), head) != 0) return {};
  return {bytes.begin() + head, bytes.end()};
}

}  // namespace

Pipelines::Pipelines(const Device& device, std::string cache_folder)
    : device_(device), folder_(std::move(cache_folder)) {
  try {
    std::array<VkDescriptorSetLayoutBinding, kMostBindings> bindings;
    for (uint32_t i = 0; i < kMostBindings; ++i) bindings[i].binding = i;
    VkDescriptorSetLayoutCreateInfo set;
    set.bindingCount = kMostBindings;
    set.pBindings = bindings.data();
    require_success(
        device->vkCreateDescriptorSetLayout(device.handle(), &set, nullptr, &set_layout_),
        "a layout");
    VkPushConstantRange range;
    range.size = kPushBytes;
    VkPipelineLayoutCreateInfo layout;
    layout.setLayoutCount = 1;
    layout.pSetLayouts = &set_layout_;
    layout.pushConstantRangeCount = 1;
    layout.pPushConstantRanges = &range;
    require_success(device->vkCreatePipelineLayout(device.handle(), &layout, nullptr, &layout_),
                    "a layout");
    open_cache();
  } catch (...) {
    close();
    throw;
  }
}

Pipelines::~Pipelines() { close(); }

void Pipelines::close() {
  if (device_.is_abandoned()) return;
  for (const auto& [key, pipeline] : pipelines_)
    device_->vkDestroyPipeline(device_.handle(), pipeline, nullptr);
  device_->vkDestroyPipelineCache(device_.handle(), cache_, nullptr);
  device_->vkDestroyPipelineLayout(device_.handle(), layout_, nullptr);
  device_->vkDestroyDescriptorSetLayout(device_.handle(), set_layout_, nullptr);
}

std::string Pipelines::cache_path() const {
  const VkPhysicalDeviceProperties& p = device_.info().properties;
  char name[96];
  int at =
      std::snprintf(name, sizeof name, "%08x-%08x-%08x-", p.vendorID, p.deviceID, p.driverVersion);
  for (const uint8_t byte : p.pipelineCacheUUID)
    at += std::snprintf(name + at, sizeof name - static_cast<size_t>(at), "%02x", byte);
  return folder_ + "/" + name + ".pipelines";
}

void Pipelines::open_cache() {
  const Bytes kept = folder_.empty() ? Bytes{} : read_kept(cache_path());
  VkPipelineCacheCreateInfo create;
  create.initialDataSize = kept.size();
  create.pInitialData = kept.data();
  VkResult result = device_->vkCreatePipelineCache(device_.handle(), &create, nullptr, &cache_);
  if (result != VK_SUCCESS && !kept.empty()) {
    create.initialDataSize = 0;
    create.pInitialData = nullptr;
    result = device_->vkCreatePipelineCache(device_.handle(), &create, nullptr, &cache_);
  }
  require_success(result, "a pipeline cache");
}

VkPipeline Pipelines::find(const std::string& name, const Constants& constants) {
  VkPipeline& pipeline = pipelines_[{name, constants}];
  if (pipeline) return pipeline;
  const Shader* shader = std::find_if(kShaders, kShaders + kShaderCount,
                                      [&](const Shader& s) { return s.name == name; });
  if (shader == kShaders + kShaderCount)
    throw ExecutionError("on the GPU: there is no shader " + name);
  VkShaderModuleCreateInfo create;
  create.codeSize = shader->size;
  create.pCode = reinterpret_cast<const uint32_t*>(shader->code);
  VkShaderModule module = nullptr;
  require_success(device_->vkCreateShaderModule(device_.handle(), &create, nullptr, &module), name);
  std::array<VkSpecializationMapEntry, std::tuple_size_v<Constants>> entries;
  for (uint32_t i = 0; i < entries.size(); ++i) entries[i] = {i, i * 4, 4};
  VkSpecializationInfo special;
  special.mapEntryCount = static_cast<uint32_t>(entries.size());
  special.pMapEntries = entries.data();
  special.dataSize = sizeof(Constants);
  special.pData = constants.data();
  VkComputePipelineCreateInfo info;
  info.stage.module = module;
  info.stage.pName = "main";
  info.stage.pSpecializationInfo = &special;
  info.layout = layout_;
  const VkResult result =
      device_->vkCreateComputePipelines(device_.handle(), cache_, 1, &info, nullptr, &pipeline);
  device_->vkDestroyShaderModule(device_.handle(), module, nullptr);
  require_success(result, "the shader " + name);
  is_new_ = true;
  return pipeline;
}

void Pipelines::keep() {
  if (!is_new_ || folder_.empty()) return;
  is_new_ = false;
  size_t size = 0;
  if (device_->vkGetPipelineCacheData(device_.handle(), cache_, &size, nullptr) != VK_SUCCESS)
    return;
  Bytes data(size);
  if (device_->vkGetPipelineCacheData(device_.handle(), cache_, &size, data.data()) != VK_SUCCESS)
    return;
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  // Under another name first: a second process may be reading. Where two write at once, the
  // checksum tells.
  const std::string path = cache_path(), part = path + ".part";
  {
    std::ofstream file(part, std::ios::binary | std::ios::trunc);
    const Digest digest = digest_of(data.data(), size);
    file.write(reinterpret_cast<const char*>(digest.data()),
               static_cast<std::streamsize>(digest.size()));
    file.write(reinterpret_cast<const char*>(data.data()), static_cast<std::streamsize>(size));
    if (!file) return;
  }
  std::filesystem::rename(part, path, error);
}

}  // namespace satchel::vulkan
