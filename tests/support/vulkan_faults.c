// A stand-in for libvulkan.so.1, to be found before it: all calls go to the real one, but for one
// that is told to fail. No driver fails on request, and ours has to be ready for each that does.
//
//   cc -shared -fPIC -o FOLDER/libvulkan.so.1 vulkan_faults.c
//
// SATCHEL_TEST_VULKAN names the real library. SATCHEL_TEST_FAULT=NAME:CALLS:RESULT, or fail() from
// within the process, lets so many calls of a function pass, and returns RESULT for those behind.
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef uintptr_t Word;
typedef void (*Function)(void);
typedef Function (*Find)(void*, const char*);
// Whole numbers and pointers are passed in registers of one kind: a call with six of them serves
// functions that take fewer.
typedef int32_t (*Call)(Word, Word, Word, Word, Word, Word);

// VK_ERROR_DEVICE_LOST; and as if the device never came to the end: the work is not even begun.
enum { LOST = -4, NEVER_DONE = 1000 };

static char failing[64];
static long calls_left;
static int32_t result;

void fail(const char* name, long calls, int32_t with) {
  snprintf(failing, sizeof failing, "%s", name);
  calls_left = calls;
  result = with;
}

static int fails(const char* name) { return strcmp(name, failing) == 0 && calls_left-- <= 0; }

// A device that is lost is at work no more, which a real one is while it is waited for.
static int is_wait(const char* name) { return strcmp(name, "vkWaitForFences") == 0; }

#define FUNCTIONS(F)                                                                             \
  F(vkCreateDevice)                                                                              \
  F(vkCreateBuffer)                                                                              \
  F(vkAllocateMemory) F(vkBindBufferMemory) F(vkMapMemory) F(vkCreateShaderModule)               \
      F(vkCreateDescriptorSetLayout) F(vkCreatePipelineLayout) F(vkCreatePipelineCache)          \
          F(vkGetPipelineCacheData) F(vkCreateComputePipelines) F(vkCreateDescriptorPool)        \
              F(vkResetDescriptorPool) F(vkAllocateDescriptorSets) F(vkCreateCommandPool)        \
                  F(vkResetCommandPool) F(vkAllocateCommandBuffers) F(vkBeginCommandBuffer)      \
                      F(vkEndCommandBuffer) F(vkCreateFence) F(vkResetFences) F(vkWaitForFences) \
                          F(vkQueueSubmit) F(vkGetMemoryHostPointerPropertiesEXT)

#define WRAP(name)                                                                               \
  static Call real_##name;                                                                       \
  static long count_##name;                                                                      \
  static int32_t own_##name(Word a, Word b, Word c, Word d, Word e, Word f) {                    \
    ++count_##name;                                                                              \
    const int failed = fails(#name);                                                             \
    if (failed && !(result == LOST && is_wait(#name))) return result == NEVER_DONE ? 0 : result; \
    const int32_t found = real_##name(a, b, c, d, e, f);                                         \
    return failed ? result : found;                                                              \
  }
FUNCTIONS(WRAP)

// Commands whose dispatches take turns (native/vulkan/turns.h) begin with places that are made to
// hold no values. Asked to, this leaves the first dispatch out, so that the others wait in vain.
enum { NOT_YET = 0xFFFFFFFF };
static long turns_taken;
static int leaves_out, leaves_next_out;
static void (*real_fill)(void*, void*, uint64_t, uint64_t, uint32_t);
static void own_fill(void* commands, void* buffer, uint64_t at, uint64_t size, uint32_t word) {
  turns_taken += word == NOT_YET;
  leaves_next_out = leaves_out && word == NOT_YET;
  real_fill(commands, buffer, at, size, word);
}
static void (*real_dispatch)(void*, uint32_t, uint32_t, uint32_t);
static void own_dispatch(void* commands, uint32_t x, uint32_t y, uint32_t z) {
  if (!leaves_next_out) real_dispatch(commands, x, y, z);
  leaves_next_out = 0;
}
long turns(void) { return turns_taken; }
void make_turns_wait_in_vain(long yes) { leaves_out = (int)yes; }

// Memory of a device that other processes have, by VK_EXT_memory_budget: few drivers in software
// tell of it, so that this one does it for all.
typedef struct Extension {
  char name[256];
  uint32_t version;
} Extension;
static int32_t (*real_extensions)(void*, const char*, uint32_t*, Extension*);
static int32_t own_extensions(void* device, const char* layer, uint32_t* count, Extension* all) {
  if (all) --*count;
  const int32_t done = real_extensions(device, layer, count, all);
  if (all) all[*count] = (Extension){"VK_EXT_memory_budget", 1};
  ++*count;
  return done;
}

typedef struct Budget {
  int32_t type;
  struct Budget* next;
  uint64_t budget[16], usage[16];
} Budget;
typedef struct Memory {
  int32_t type;
  Budget* next;
  uint32_t counts_and_types[66];
  struct {
    uint64_t size, flags;
  } heaps[16];
} Memory;
enum { MEMORY_BUDGET = 1000237000 };
static uint64_t memory_of_others;
static void (*real_memory)(void*, Memory*);
static void own_memory(void* device, Memory* found) {
  real_memory(device, found);
  for (Budget* part = found->next; part; part = part->next) {
    for (int i = 0; i < 16 && part->type == MEMORY_BUDGET; ++i) {
      const uint64_t size = found->heaps[i].size;
      part->budget[i] = size - (memory_of_others < size ? memory_of_others : size);
      part->usage[i] = 0;
    }
  }
}
void take_memory(uint64_t bytes) { memory_of_others = bytes; }

// How often a function was called; -1 if it cannot be made to fail.
long calls_of(const char* name) {
#define TELL(n) \
  if (strcmp(name, #n) == 0) return count_##n;
  FUNCTIONS(TELL)
  return -1;
}
const char* names(void) {
#define NAME(n) #n " "
  return FUNCTIONS(NAME);
}

static Function own_or(const char* name, Function real) {
  if (real && strcmp(name, "vkCmdFillBuffer") == 0) {
    real_fill = (void (*)(void*, void*, uint64_t, uint64_t, uint32_t))real;
    return (Function)own_fill;
  }
  if (real && strcmp(name, "vkCmdDispatch") == 0) {
    real_dispatch = (void (*)(void*, uint32_t, uint32_t, uint32_t))real;
    return (Function)own_dispatch;
  }
  if (real && strcmp(name, "vkGetPhysicalDeviceMemoryProperties2") == 0) {
    real_memory = (void (*)(void*, Memory*))real;
    return (Function)own_memory;
  }
  if (real && strcmp(name, "vkEnumerateDeviceExtensionProperties") == 0) {
    real_extensions = (int32_t (*)(void*, const char*, uint32_t*, Extension*))real;
    return (Function)own_extensions;
  }
#define CHOOSE(n)                      \
  if (real && strcmp(name, #n) == 0) { \
    real_##n = (Call)real;             \
    return (Function)own_##n;          \
  }
  FUNCTIONS(CHOOSE)
  return real;
}

static Find real_device_find;
static Function device_find(void* device, const char* name) {
  return own_or(name, real_device_find(device, name));
}

Function vkGetInstanceProcAddr(void* instance, const char* name) {
  static Find find;
  if (!find) {
    void* real = dlopen(getenv("SATCHEL_TEST_VULKAN"), RTLD_NOW | RTLD_LOCAL);
    find = real ? (Find)dlsym(real, "vkGetInstanceProcAddr") : NULL;
    if (!find) abort();
    const char* told = getenv("SATCHEL_TEST_FAULT");
    if (told) sscanf(told, "%63[^:]:%ld:%d", failing, &calls_left, &result);
  }
  Function real = find(instance, name);
  if (strcmp(name, "vkGetDeviceProcAddr") == 0) {
    real_device_find = (Find)real;
    return (Function)device_find;
  }
  return own_or(name, real);
}
