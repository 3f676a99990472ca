// The part of Vulkan 1.1 that is used here, declared so that neither headers nor a library are
// needed to build. The names and layouts are those of the specification's C interface (64 bits).
#pragma once

#include <cstddef>
#include <cstdint>

#ifdef _WIN32
#define SATCHEL_VKAPI __stdcall
#else
#define SATCHEL_VKAPI
#endif

namespace satchel::vulkan {

static_assert(sizeof(void*) == 8,
              "handles are declared as pointers, which 32-bit systems differ in");

#define HANDLE(name) using name = struct name##_T*
HANDLE(VkInstance);
HANDLE(VkPhysicalDevice);
HANDLE(VkDevice);
HANDLE(VkQueue);
HANDLE(VkCommandBuffer);
HANDLE(VkBuffer);
HANDLE(VkBufferView);
HANDLE(VkDeviceMemory);
HANDLE(VkShaderModule);
HANDLE(VkDescriptorSetLayout);
HANDLE(VkDescriptorPool);
HANDLE(VkDescriptorSet);
HANDLE(VkPipelineLayout);
HANDLE(VkPipelineCache);
HANDLE(VkPipeline);
HANDLE(VkCommandPool);
HANDLE(VkFence);
HANDLE(VkQueryPool);
#undef HANDLE

using VkDeviceSize = uint64_t;
using VkFlags = uint32_t;

enum VkResult : int32_t {
  VK_SUCCESS = 0,
  VK_TIMEOUT = 2,
  VK_INCOMPLETE = 5,
  VK_ERROR_OUT_OF_HOST_MEMORY = -1,
  VK_ERROR_OUT_OF_DEVICE_MEMORY = -2,
  VK_ERROR_INITIALIZATION_FAILED = -3,
  VK_ERROR_DEVICE_LOST = -4,
  VK_ERROR_LAYER_NOT_PRESENT = -6,
  VK_ERROR_EXTENSION_NOT_PRESENT = -7,
  VK_ERROR_FEATURE_NOT_PRESENT = -8,
  VK_ERROR_INCOMPATIBLE_DRIVER = -9,
  VK_ERROR_TOO_MANY_OBJECTS = -10,
  VK_RESULT_MAX_ENUM = 0x7FFFFFFF,
};

enum VkStructureType : int32_t {
  VK_STRUCTURE_TYPE_APPLICATION_INFO = 0,
  VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO = 1,
  VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO = 2,
  VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO = 3,
  VK_STRUCTURE_TYPE_SUBMIT_INFO = 4,
  VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO = 5,
  VK_STRUCTURE_TYPE_FENCE_CREATE_INFO = 8,
  VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO = 11,
  VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO = 12,
  VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO = 16,
  VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO = 17,
  VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO = 18,
  VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO = 29,
  VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO = 30,
  VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO = 32,
  VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO = 33,
  VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO = 34,
  VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET = 35,
  VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO = 39,
  VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO = 40,
  VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO = 42,
  VK_STRUCTURE_TYPE_MEMORY_BARRIER = 46,
  VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO = 1000072000,
  VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT = 1000178000,
  VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT = 1000178001,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT = 1000178002,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2 = 1000059000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2 = 1000059001,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2 = 1000059006,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT = 1000237000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES = 1000094000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES = 1000083000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES = 1000082000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES = 1000211000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES = 1000280000,
  VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR = 1000506000,
  VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR = 1000506001,
};

enum VkPhysicalDeviceType : int32_t {
  VK_PHYSICAL_DEVICE_TYPE_OTHER = 0,
  VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU = 1,
  VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU = 2,
  VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU = 3,
  VK_PHYSICAL_DEVICE_TYPE_CPU = 4,
};

inline constexpr VkFlags VK_QUEUE_GRAPHICS_BIT = 1, VK_QUEUE_COMPUTE_BIT = 2;
inline constexpr VkFlags VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT = 1,
                         VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT = 2,
                         VK_MEMORY_PROPERTY_HOST_COHERENT_BIT = 4,
                         VK_MEMORY_PROPERTY_HOST_CACHED_BIT = 8;
inline constexpr VkFlags VK_MEMORY_HEAP_DEVICE_LOCAL_BIT = 1;
inline constexpr VkFlags VK_BUFFER_USAGE_TRANSFER_SRC_BIT = 1, VK_BUFFER_USAGE_TRANSFER_DST_BIT = 2,
                         VK_BUFFER_USAGE_STORAGE_BUFFER_BIT = 0x20;
inline constexpr VkFlags VK_SHADER_STAGE_COMPUTE_BIT = 0x20;
inline constexpr VkFlags VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT = 0x800,
                         VK_PIPELINE_STAGE_TRANSFER_BIT = 0x1000,
                         VK_PIPELINE_STAGE_HOST_BIT = 0x4000,
                         VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT = 0x2000;
inline constexpr VkFlags VK_ACCESS_SHADER_READ_BIT = 0x20, VK_ACCESS_SHADER_WRITE_BIT = 0x40,
                         VK_ACCESS_TRANSFER_READ_BIT = 0x800, VK_ACCESS_TRANSFER_WRITE_BIT = 0x1000,
                         VK_ACCESS_HOST_READ_BIT = 0x2000;
inline constexpr VkFlags VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT = 1,
                         VK_COMMAND_BUFFER_USAGE_SIMULTANEOUS_USE_BIT = 4;
inline constexpr int32_t VK_DESCRIPTOR_TYPE_STORAGE_BUFFER = 7;
inline constexpr int32_t VK_PIPELINE_BIND_POINT_COMPUTE = 1;
inline constexpr int32_t VK_COMMAND_BUFFER_LEVEL_PRIMARY = 0;
inline constexpr VkDeviceSize VK_WHOLE_SIZE = ~0ull;

struct VkApplicationInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_APPLICATION_INFO;
  const void* pNext = nullptr;
  const char* pApplicationName = nullptr;
  uint32_t applicationVersion = 0;
  const char* pEngineName = nullptr;
  uint32_t engineVersion = 0;
  uint32_t apiVersion = 0;
};

struct VkInstanceCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  const VkApplicationInfo* pApplicationInfo = nullptr;
  uint32_t enabledLayerCount = 0;
  const char* const* ppEnabledLayerNames = nullptr;
  uint32_t enabledExtensionCount = 0;
  const char* const* ppEnabledExtensionNames = nullptr;
};

struct VkPhysicalDeviceLimits {
  uint32_t maxImageDimension1D, maxImageDimension2D, maxImageDimension3D, maxImageDimensionCube;
  uint32_t maxImageArrayLayers, maxTexelBufferElements, maxUniformBufferRange;
  uint32_t maxStorageBufferRange, maxPushConstantsSize, maxMemoryAllocationCount;
  uint32_t maxSamplerAllocationCount;
  VkDeviceSize bufferImageGranularity, sparseAddressSpaceSize;
  uint32_t maxBoundDescriptorSets, maxPerStageDescriptorSamplers;
  uint32_t maxPerStageDescriptorUniformBuffers, maxPerStageDescriptorStorageBuffers;
  uint32_t maxPerStageDescriptorSampledImages, maxPerStageDescriptorStorageImages;
  uint32_t maxPerStageDescriptorInputAttachments, maxPerStageResources;
  uint32_t maxDescriptorSetSamplers, maxDescriptorSetUniformBuffers;
  uint32_t maxDescriptorSetUniformBuffersDynamic, maxDescriptorSetStorageBuffers;
  uint32_t maxDescriptorSetStorageBuffersDynamic, maxDescriptorSetSampledImages;
  uint32_t maxDescriptorSetStorageImages, maxDescriptorSetInputAttachments;
  uint32_t maxVertexInputAttributes, maxVertexInputBindings, maxVertexInputAttributeOffset;
  uint32_t maxVertexInputBindingStride, maxVertexOutputComponents, maxTessellationGenerationLevel;
  uint32_t maxTessellationPatchSize, maxTessellationControlPerVertexInputComponents;
  uint32_t maxTessellationControlPerVertexOutputComponents;
  uint32_t maxTessellationControlPerPatchOutputComponents;
  uint32_t maxTessellationControlTotalOutputComponents;
  uint32_t maxTessellationEvaluationInputComponents, maxTessellationEvaluationOutputComponents;
  uint32_t maxGeometryShaderInvocations, maxGeometryInputComponents, maxGeometryOutputComponents;
  uint32_t maxGeometryOutputVertices, maxGeometryTotalOutputComponents;
  uint32_t maxFragmentInputComponents, maxFragmentOutputAttachments;
  uint32_t maxFragmentDualSrcAttachments, maxFragmentCombinedOutputResources;
  uint32_t maxComputeSharedMemorySize, maxComputeWorkGroupCount[3];
  uint32_t maxComputeWorkGroupInvocations, maxComputeWorkGroupSize[3];
  uint32_t subPixelPrecisionBits, subTexelPrecisionBits, mipmapPrecisionBits;
  uint32_t maxDrawIndexedIndexValue, maxDrawIndirectCount;
  float maxSamplerLodBias, maxSamplerAnisotropy;
  uint32_t maxViewports, maxViewportDimensions[2];
  float viewportBoundsRange[2];
  uint32_t viewportSubPixelBits;
  size_t minMemoryMapAlignment;
  VkDeviceSize minTexelBufferOffsetAlignment, minUniformBufferOffsetAlignment;
  VkDeviceSize minStorageBufferOffsetAlignment;
  int32_t minTexelOffset;
  uint32_t maxTexelOffset;
  int32_t minTexelGatherOffset;
  uint32_t maxTexelGatherOffset;
  float minInterpolationOffset, maxInterpolationOffset;
  uint32_t subPixelInterpolationOffsetBits, maxFramebufferWidth, maxFramebufferHeight;
  uint32_t maxFramebufferLayers;
  VkFlags framebufferColorSampleCounts, framebufferDepthSampleCounts;
  VkFlags framebufferStencilSampleCounts, framebufferNoAttachmentsSampleCounts;
  uint32_t maxColorAttachments;
  VkFlags sampledImageColorSampleCounts, sampledImageIntegerSampleCounts;
  VkFlags sampledImageDepthSampleCounts, sampledImageStencilSampleCounts;
  VkFlags storageImageSampleCounts;
  uint32_t maxSampleMaskWords;
  uint32_t timestampComputeAndGraphics;
  float timestampPeriod;
  uint32_t maxClipDistances, maxCullDistances, maxCombinedClipAndCullDistances;
  uint32_t discreteQueuePriorities;
  float pointSizeRange[2], lineWidthRange[2], pointSizeGranularity, lineWidthGranularity;
  uint32_t strictLines, standardSampleLocations;
  VkDeviceSize optimalBufferCopyOffsetAlignment, optimalBufferCopyRowPitchAlignment;
  VkDeviceSize nonCoherentAtomSize;
};
static_assert(sizeof(VkPhysicalDeviceLimits) == 504);

struct VkPhysicalDeviceProperties {
  uint32_t apiVersion, driverVersion, vendorID, deviceID;
  VkPhysicalDeviceType deviceType;
  char deviceName[256];
  uint8_t pipelineCacheUUID[16];
  VkPhysicalDeviceLimits limits;
  uint32_t sparseProperties[5];
};
static_assert(sizeof(VkPhysicalDeviceProperties) == 824);

struct VkPhysicalDeviceProperties2 {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2;
  void* pNext = nullptr;
  VkPhysicalDeviceProperties properties = {};
};

struct VkPhysicalDeviceSubgroupProperties {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_PROPERTIES;
  void* pNext = nullptr;
  uint32_t subgroupSize = 0;
  VkFlags supportedStages = 0, supportedOperations = 0;
  uint32_t quadOperationsInAllStages = 0;
};

// Features are whether or not, in words. What every device has is not looked at.
struct VkPhysicalDeviceFeatures2 {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2;
  void* pNext = nullptr;
  uint32_t features[55] = {};
};

struct VkPhysicalDevice16BitStorageFeatures {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_16BIT_STORAGE_FEATURES;
  void* pNext = nullptr;
  uint32_t storageBuffer16BitAccess = 0, uniformAndStorageBuffer16BitAccess = 0;
  uint32_t storagePushConstant16 = 0, storageInputOutput16 = 0;
};

struct VkPhysicalDeviceShaderFloat16Int8Features {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_FLOAT16_INT8_FEATURES;
  void* pNext = nullptr;
  uint32_t shaderFloat16 = 0, shaderInt8 = 0;
};

struct VkPhysicalDeviceVulkanMemoryModelFeatures {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_MEMORY_MODEL_FEATURES;
  void* pNext = nullptr;
  uint32_t vulkanMemoryModel = 0, vulkanMemoryModelDeviceScope = 0;
  uint32_t vulkanMemoryModelAvailabilityVisibilityChains = 0;
};

struct VkPhysicalDeviceShaderIntegerDotProductFeatures {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_INTEGER_DOT_PRODUCT_FEATURES;
  void* pNext = nullptr;
  uint32_t shaderIntegerDotProduct = 0;
};

struct VkPhysicalDeviceCooperativeMatrixFeaturesKHR {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR;
  void* pNext = nullptr;
  uint32_t cooperativeMatrix = 0, cooperativeMatrixRobustBufferAccess = 0;
};

struct VkCooperativeMatrixPropertiesKHR {
  VkStructureType sType = VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR;
  void* pNext = nullptr;
  uint32_t MSize = 0, NSize = 0, KSize = 0;
  int32_t AType = 0, BType = 0, CType = 0, ResultType = 0;  // VkComponentTypeKHR
  uint32_t saturatingAccumulation = 0;
  int32_t scope = 0;  // 3: a subgroup
};

struct VkExtensionProperties {
  char extensionName[256];
  uint32_t specVersion;
};

struct VkQueueFamilyProperties {
  VkFlags queueFlags;
  uint32_t queueCount, timestampValidBits;
  uint32_t minImageTransferGranularity[3];
};

struct VkMemoryType {
  VkFlags propertyFlags;
  uint32_t heapIndex;
};

struct VkMemoryHeap {
  VkDeviceSize size;
  VkFlags flags;
};

struct VkPhysicalDeviceMemoryProperties {
  uint32_t memoryTypeCount;
  VkMemoryType memoryTypes[32];
  uint32_t memoryHeapCount;
  VkMemoryHeap memoryHeaps[16];
};
static_assert(sizeof(VkPhysicalDeviceMemoryProperties) == 520);

struct VkPhysicalDeviceMemoryProperties2 {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2;
  void* pNext = nullptr;
  VkPhysicalDeviceMemoryProperties memoryProperties = {};
};

struct VkPhysicalDeviceMemoryBudgetPropertiesEXT {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT;
  void* pNext = nullptr;
  VkDeviceSize heapBudget[16] = {}, heapUsage[16] = {};
};

struct VkDeviceQueueCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  uint32_t queueFamilyIndex = 0, queueCount = 0;
  const float* pQueuePriorities = nullptr;
};

struct VkDeviceCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  uint32_t queueCreateInfoCount = 0;
  const VkDeviceQueueCreateInfo* pQueueCreateInfos = nullptr;
  uint32_t enabledLayerCount = 0;
  const char* const* ppEnabledLayerNames = nullptr;
  uint32_t enabledExtensionCount = 0;
  const char* const* ppEnabledExtensionNames = nullptr;
  const void* pEnabledFeatures = nullptr;
};

struct VkBufferCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  VkDeviceSize size = 0;
  VkFlags usage = 0;
  int32_t sharingMode = 0;  // one queue family alone
  uint32_t queueFamilyIndexCount = 0;
  const uint32_t* pQueueFamilyIndices = nullptr;
};

// Memory of the host that a device uses as it is (VK_EXT_external_memory_host).
inline constexpr VkFlags VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT = 0x80;

struct VkExternalMemoryBufferCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_EXTERNAL_MEMORY_BUFFER_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags handleTypes = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
};

struct VkImportMemoryHostPointerInfoEXT {
  VkStructureType sType = VK_STRUCTURE_TYPE_IMPORT_MEMORY_HOST_POINTER_INFO_EXT;
  const void* pNext = nullptr;
  VkFlags handleType = VK_EXTERNAL_MEMORY_HANDLE_TYPE_HOST_ALLOCATION_BIT_EXT;
  void* pHostPointer = nullptr;
};

struct VkMemoryHostPointerPropertiesEXT {
  VkStructureType sType = VK_STRUCTURE_TYPE_MEMORY_HOST_POINTER_PROPERTIES_EXT;
  void* pNext = nullptr;
  uint32_t memoryTypeBits = 0;
};

struct VkPhysicalDeviceExternalMemoryHostPropertiesEXT {
  VkStructureType sType = VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_EXTERNAL_MEMORY_HOST_PROPERTIES_EXT;
  void* pNext = nullptr;
  VkDeviceSize minImportedHostPointerAlignment = 0;
};

struct VkMemoryRequirements {
  VkDeviceSize size, alignment;
  uint32_t memoryTypeBits;
};

struct VkMemoryAllocateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO;
  const void* pNext = nullptr;
  VkDeviceSize allocationSize = 0;
  uint32_t memoryTypeIndex = 0;
};

struct VkShaderModuleCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  size_t codeSize = 0;
  const uint32_t* pCode = nullptr;
};

struct VkDescriptorSetLayoutBinding {
  uint32_t binding = 0;
  int32_t descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  uint32_t descriptorCount = 1;
  VkFlags stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  const void* pImmutableSamplers = nullptr;
};

struct VkDescriptorSetLayoutCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  uint32_t bindingCount = 0;
  const VkDescriptorSetLayoutBinding* pBindings = nullptr;
};

struct VkPushConstantRange {
  VkFlags stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
  uint32_t offset = 0, size = 0;
};

struct VkPipelineLayoutCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  uint32_t setLayoutCount = 0;
  const VkDescriptorSetLayout* pSetLayouts = nullptr;
  uint32_t pushConstantRangeCount = 0;
  const VkPushConstantRange* pPushConstantRanges = nullptr;
};

struct VkPipelineCacheCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  size_t initialDataSize = 0;
  const void* pInitialData = nullptr;
};

struct VkSpecializationMapEntry {
  uint32_t constantID, offset;
  size_t size;
};

struct VkSpecializationInfo {
  uint32_t mapEntryCount = 0;
  const VkSpecializationMapEntry* pMapEntries = nullptr;
  size_t dataSize = 0;
  const void* pData = nullptr;
};

struct VkPipelineShaderStageCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  VkFlags stage = VK_SHADER_STAGE_COMPUTE_BIT;
  VkShaderModule module = nullptr;
  const char* pName = nullptr;
  const VkSpecializationInfo* pSpecializationInfo = nullptr;
};

struct VkComputePipelineCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  VkPipelineShaderStageCreateInfo stage;
  VkPipelineLayout layout = nullptr;
  VkPipeline basePipelineHandle = nullptr;
  int32_t basePipelineIndex = 0;
};

struct VkDescriptorPoolSize {
  int32_t type = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  uint32_t descriptorCount = 0;
};

struct VkDescriptorPoolCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  uint32_t maxSets = 0, poolSizeCount = 0;
  const VkDescriptorPoolSize* pPoolSizes = nullptr;
};

struct VkDescriptorSetAllocateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO;
  const void* pNext = nullptr;
  VkDescriptorPool descriptorPool = nullptr;
  uint32_t descriptorSetCount = 0;
  const VkDescriptorSetLayout* pSetLayouts = nullptr;
};

struct VkDescriptorBufferInfo {
  VkBuffer buffer = nullptr;
  VkDeviceSize offset = 0, range = 0;
};

struct VkWriteDescriptorSet {
  VkStructureType sType = VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET;
  const void* pNext = nullptr;
  VkDescriptorSet dstSet = nullptr;
  uint32_t dstBinding = 0, dstArrayElement = 0, descriptorCount = 1;
  int32_t descriptorType = VK_DESCRIPTOR_TYPE_STORAGE_BUFFER;
  const void* pImageInfo = nullptr;
  const VkDescriptorBufferInfo* pBufferInfo = nullptr;
  const VkBufferView* pTexelBufferView = nullptr;
};

struct VkCommandPoolCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  uint32_t queueFamilyIndex = 0;
};

struct VkCommandBufferAllocateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO;
  const void* pNext = nullptr;
  VkCommandPool commandPool = nullptr;
  int32_t level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
  uint32_t commandBufferCount = 0;
};

struct VkCommandBufferBeginInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  const void* pInheritanceInfo = nullptr;
};

struct VkBufferCopy {
  VkDeviceSize srcOffset = 0, dstOffset = 0, size = 0;
};

struct VkMemoryBarrier {
  VkStructureType sType = VK_STRUCTURE_TYPE_MEMORY_BARRIER;
  const void* pNext = nullptr;
  VkFlags srcAccessMask = 0, dstAccessMask = 0;
};

struct VkSubmitInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_SUBMIT_INFO;
  const void* pNext = nullptr;
  uint32_t waitSemaphoreCount = 0;
  const void* pWaitSemaphores = nullptr;
  const VkFlags* pWaitDstStageMask = nullptr;
  uint32_t commandBufferCount = 0;
  const VkCommandBuffer* pCommandBuffers = nullptr;
  uint32_t signalSemaphoreCount = 0;
  const void* pSignalSemaphores = nullptr;
};

struct VkFenceCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_FENCE_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
};

struct VkQueryPoolCreateInfo {
  VkStructureType sType = VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO;
  const void* pNext = nullptr;
  VkFlags flags = 0;
  int32_t queryType = 2;  // timestamps
  uint32_t queryCount = 0;
  VkFlags pipelineStatistics = 0;
};

using VoidFunction = void(SATCHEL_VKAPI*)();
using GetInstanceProcAddr = VoidFunction(SATCHEL_VKAPI*)(VkInstance, const char*);

// X(result, name, parameters) for the functions of an instance and of a device. `A` stands for
// allocation callbacks, of which there are none.
using A = const void*;
#define SATCHEL_INSTANCE_FUNCTIONS(X)                                                       \
  X(void, vkDestroyInstance, (VkInstance, A))                                               \
  X(VkResult, vkEnumeratePhysicalDevices, (VkInstance, uint32_t*, VkPhysicalDevice*))       \
  X(void, vkGetPhysicalDeviceProperties, (VkPhysicalDevice, VkPhysicalDeviceProperties*))   \
  X(void, vkGetPhysicalDeviceMemoryProperties2,                                             \
    (VkPhysicalDevice, VkPhysicalDeviceMemoryProperties2*))                                 \
  X(void, vkGetPhysicalDeviceQueueFamilyProperties,                                         \
    (VkPhysicalDevice, uint32_t*, VkQueueFamilyProperties*))                                \
  X(void, vkGetPhysicalDeviceFeatures2, (VkPhysicalDevice, VkPhysicalDeviceFeatures2*))     \
  X(void, vkGetPhysicalDeviceProperties2, (VkPhysicalDevice, VkPhysicalDeviceProperties2*)) \
  X(VkResult, vkEnumerateDeviceExtensionProperties,                                         \
    (VkPhysicalDevice, const char*, uint32_t*, VkExtensionProperties*))                     \
  X(VkResult, vkCreateDevice, (VkPhysicalDevice, const VkDeviceCreateInfo*, A, VkDevice*))  \
  X(VoidFunction, vkGetDeviceProcAddr, (VkDevice, const char*))

#define SATCHEL_DEVICE_FUNCTIONS(X)                                                               \
  X(void, vkDestroyDevice, (VkDevice, A))                                                         \
  X(void, vkGetDeviceQueue, (VkDevice, uint32_t, uint32_t, VkQueue*))                             \
  X(VkResult, vkDeviceWaitIdle, (VkDevice))                                                       \
  X(VkResult, vkCreateBuffer, (VkDevice, const VkBufferCreateInfo*, A, VkBuffer*))                \
  X(void, vkDestroyBuffer, (VkDevice, VkBuffer, A))                                               \
  X(void, vkGetBufferMemoryRequirements, (VkDevice, VkBuffer, VkMemoryRequirements*))             \
  X(VkResult, vkAllocateMemory, (VkDevice, const VkMemoryAllocateInfo*, A, VkDeviceMemory*))      \
  X(void, vkFreeMemory, (VkDevice, VkDeviceMemory, A))                                            \
  X(VkResult, vkGetMemoryHostPointerPropertiesEXT,                                                \
    (VkDevice, VkFlags, const void*, VkMemoryHostPointerPropertiesEXT*))                          \
  X(VkResult, vkBindBufferMemory, (VkDevice, VkBuffer, VkDeviceMemory, VkDeviceSize))             \
  X(VkResult, vkMapMemory,                                                                        \
    (VkDevice, VkDeviceMemory, VkDeviceSize, VkDeviceSize, VkFlags, void**))                      \
  X(VkResult, vkCreateShaderModule,                                                               \
    (VkDevice, const VkShaderModuleCreateInfo*, A, VkShaderModule*))                              \
  X(void, vkDestroyShaderModule, (VkDevice, VkShaderModule, A))                                   \
  X(VkResult, vkCreateDescriptorSetLayout,                                                        \
    (VkDevice, const VkDescriptorSetLayoutCreateInfo*, A, VkDescriptorSetLayout*))                \
  X(void, vkDestroyDescriptorSetLayout, (VkDevice, VkDescriptorSetLayout, A))                     \
  X(VkResult, vkCreatePipelineLayout,                                                             \
    (VkDevice, const VkPipelineLayoutCreateInfo*, A, VkPipelineLayout*))                          \
  X(void, vkDestroyPipelineLayout, (VkDevice, VkPipelineLayout, A))                               \
  X(VkResult, vkCreatePipelineCache,                                                              \
    (VkDevice, const VkPipelineCacheCreateInfo*, A, VkPipelineCache*))                            \
  X(void, vkDestroyPipelineCache, (VkDevice, VkPipelineCache, A))                                 \
  X(VkResult, vkGetPipelineCacheData, (VkDevice, VkPipelineCache, size_t*, void*))                \
  X(VkResult, vkCreateComputePipelines,                                                           \
    (VkDevice, VkPipelineCache, uint32_t, const VkComputePipelineCreateInfo*, A, VkPipeline*))    \
  X(void, vkDestroyPipeline, (VkDevice, VkPipeline, A))                                           \
  X(VkResult, vkCreateDescriptorPool,                                                             \
    (VkDevice, const VkDescriptorPoolCreateInfo*, A, VkDescriptorPool*))                          \
  X(void, vkDestroyDescriptorPool, (VkDevice, VkDescriptorPool, A))                               \
  X(VkResult, vkResetDescriptorPool, (VkDevice, VkDescriptorPool, VkFlags))                       \
  X(VkResult, vkAllocateDescriptorSets,                                                           \
    (VkDevice, const VkDescriptorSetAllocateInfo*, VkDescriptorSet*))                             \
  X(void, vkUpdateDescriptorSets,                                                                 \
    (VkDevice, uint32_t, const VkWriteDescriptorSet*, uint32_t, const void*))                     \
  X(VkResult, vkCreateCommandPool, (VkDevice, const VkCommandPoolCreateInfo*, A, VkCommandPool*)) \
  X(void, vkDestroyCommandPool, (VkDevice, VkCommandPool, A))                                     \
  X(VkResult, vkResetCommandPool, (VkDevice, VkCommandPool, VkFlags))                             \
  X(VkResult, vkAllocateCommandBuffers,                                                           \
    (VkDevice, const VkCommandBufferAllocateInfo*, VkCommandBuffer*))                             \
  X(VkResult, vkBeginCommandBuffer, (VkCommandBuffer, const VkCommandBufferBeginInfo*))           \
  X(VkResult, vkEndCommandBuffer, (VkCommandBuffer))                                              \
  X(void, vkCmdBindPipeline, (VkCommandBuffer, int32_t, VkPipeline))                              \
  X(void, vkCmdBindDescriptorSets,                                                                \
    (VkCommandBuffer, int32_t, VkPipelineLayout, uint32_t, uint32_t, const VkDescriptorSet*,      \
     uint32_t, const uint32_t*))                                                                  \
  X(void, vkCmdPushConstants,                                                                     \
    (VkCommandBuffer, VkPipelineLayout, VkFlags, uint32_t, uint32_t, const void*))                \
  X(void, vkCmdDispatch, (VkCommandBuffer, uint32_t, uint32_t, uint32_t))                         \
  X(void, vkCmdPipelineBarrier,                                                                   \
    (VkCommandBuffer, VkFlags, VkFlags, VkFlags, uint32_t, const VkMemoryBarrier*, uint32_t,      \
     const void*, uint32_t, const void*))                                                         \
  X(void, vkCmdCopyBuffer, (VkCommandBuffer, VkBuffer, VkBuffer, uint32_t, const VkBufferCopy*))  \
  X(void, vkCmdFillBuffer, (VkCommandBuffer, VkBuffer, VkDeviceSize, VkDeviceSize, uint32_t))     \
  X(VkResult, vkCreateQueryPool, (VkDevice, const VkQueryPoolCreateInfo*, A, VkQueryPool*))       \
  X(void, vkDestroyQueryPool, (VkDevice, VkQueryPool, A))                                         \
  X(void, vkCmdResetQueryPool, (VkCommandBuffer, VkQueryPool, uint32_t, uint32_t))                \
  X(void, vkCmdWriteTimestamp, (VkCommandBuffer, VkFlags, VkQueryPool, uint32_t))                 \
  X(VkResult, vkGetQueryPoolResults,                                                              \
    (VkDevice, VkQueryPool, uint32_t, uint32_t, size_t, void*, VkDeviceSize, VkFlags))            \
  X(VkResult, vkCreateFence, (VkDevice, const VkFenceCreateInfo*, A, VkFence*))                   \
  X(void, vkDestroyFence, (VkDevice, VkFence, A))                                                 \
  X(VkResult, vkResetFences, (VkDevice, uint32_t, const VkFence*))                                \
  X(VkResult, vkWaitForFences, (VkDevice, uint32_t, const VkFence*, uint32_t, uint64_t))          \
  X(VkResult, vkQueueSubmit, (VkQueue, uint32_t, const VkSubmitInfo*, VkFence))

#define SATCHEL_DECLARE(result, name, parameters) result(SATCHEL_VKAPI* name) parameters = nullptr;
struct InstanceFunctions {
  SATCHEL_INSTANCE_FUNCTIONS(SATCHEL_DECLARE)
};
struct DeviceFunctions {
  SATCHEL_DEVICE_FUNCTIONS(SATCHEL_DECLARE)
};
#undef SATCHEL_DECLARE

}  // namespace satchel::vulkan
