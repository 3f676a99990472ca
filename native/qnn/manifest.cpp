#include "manifest.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "../kernels/half.h"
#include "../llm/json.h"
#include "../runtime/errors.h"

namespace satchel::qnn {

namespace {

using llm::Json;
using llm::JsonList;

constexpr int64_t kVersion = 2, kMostTokens = 1 << 16, kMostNumbers = int64_t{1} << 32;
constexpr float kLargestHalf = 65504, kHidden = -30000;

[[noreturn]] void damaged(const std::string& message) {
  throw FormatError("weights", 0, message, "Export the file again.");
}

const std::string& text_of(const Json& object, const char* key) {
  const std::string* found = object[key].text();
  if (found == nullptr) damaged(std::string("the NPU's manifest lacks the text ") + key);
  return *found;
}

int64_t whole_of(const Json& object, const char* key, int64_t least, int64_t most) {
  const int64_t* found = object[key].whole();
  if (found == nullptr || *found < least || *found > most)
    damaged(std::string("the NPU's manifest has a strange ") + key);
  return *found;
}

const JsonList& list_of(const Json& object, const char* key) {
  const JsonList* found = object[key].list();
  if (found == nullptr) damaged(std::string("the NPU's manifest lacks the list ") + key);
  return *found;
}

// A file of the program: a name, and no path.
std::string file_of(const Json& object, const char* key) {
  const std::string& name = text_of(object, key);
  if (name.empty() || name[0] == '.' || name.find('/') != std::string::npos)
    damaged("'" + name + "' is not a file name");
  return name;
}

CodedTensor read_tensor(const Json& document) {
  CodedTensor one;
  one.name = text_of(document, "name");
  const std::string& type = text_of(document, "dtype");
  if (type != "uint8" && type != "uint16" && type != "float16")
    damaged(one.name + " is of a strange type");
  one.type = type == "uint8" ? CodeType::u8 : type == "uint16" ? CodeType::u16 : CodeType::f16;
  int64_t numbers = 1;
  for (const Json& dim : list_of(document, "shape")) {
    const int64_t* size = dim.whole();
    if (size == nullptr || *size < 1 || *size > kMostNumbers / numbers)
      damaged(one.name + " has a strange shape");
    one.shape.push_back(*size);
    numbers *= *size;
  }
  one.scale = static_cast<float>(document["scale"].number(0));
  if (!std::isfinite(one.scale) || !(one.scale > 0)) damaged(one.name + " has a strange scale");
  const int64_t most = one.type == CodeType::u8 ? 255 : one.type == CodeType::u16 ? 65535 : 0;
  one.zero_point = static_cast<int32_t>(whole_of(document, "zero_point", 0, most));
  return one;
}

Shard read_shard(const Json& document) {
  Shard shard;
  shard.model = file_of(document, "model");
  for (const Json& one : list_of(document, "inputs")) shard.inputs.push_back(read_tensor(one));
  for (const Json& one : list_of(document, "outputs")) shard.outputs.push_back(read_tensor(one));
  return shard;
}

void check_cache(const CompiledMethod& method, const Cache& cache) {
  const CodedTensor *held = method.find(cache.name), *fresh = method.find(cache.new_slots);
  if (held == nullptr || fresh == nullptr) damaged(method.name + " has no cache " + cache.name);
  CodedTensor fits = *held;
  fits.name = fresh->name;
  if (fits.shape.size() == 3 && fits.shape[cache.axis] == method.context)
    fits.shape[cache.axis] = method.tokens;
  if (held->shape.size() != 3 || fits != *fresh)
    damaged("the new part of " + cache.name + " does not fit into it");
}

// What goes in must have a place that it comes from, and what has one name must be one thing.
void check(const CompiledMethod& method) {
  if (method.shards.empty()) damaged(method.name + " has no shards");
  for (const Shard& shard : method.shards) {
    for (const auto* side : {&shard.inputs, &shard.outputs}) {
      for (const CodedTensor& one : *side) {
        if (*method.find(one.name) != one) damaged(one.name + " is described in two ways");
      }
    }
  }
  for (const Cache& cache : method.caches) check_cache(method, cache);
  for (const Mask& mask : method.masks) {
    const CodedTensor* found = method.find(mask.name);
    const std::vector<int64_t> shape = {method.tokens, method.context + method.tokens};
    if (found == nullptr || found->shape != shape)
      damaged(method.name + " has no mask " + mask.name);
  }
  for (const std::string& part : method.logits) {
    const CodedTensor* found = method.find(part);
    if (found == nullptr || found->shape.size() != 2 || found->shape[0] != method.tokens)
      damaged(method.name + " does not give logits");
  }
}

CompiledMethod read_method(const Json& document) {
  CompiledMethod method;
  method.name = text_of(document, "name");
  method.before = text_of(document, "before");
  method.tokens = whole_of(document, "tokens", 1, kMostTokens);
  method.context = whole_of(document, "context", method.tokens, INT32_MAX / 2);
  for (const Json& one : list_of(document, "masks"))
    method.masks.push_back({text_of(one, "name"), whole_of(one, "window", 0, INT32_MAX)});
  for (const Json& one : list_of(document, "caches")) {
    const auto axis = static_cast<size_t>(whole_of(one, "axis", 1, 2));
    method.caches.push_back({text_of(one, "name"), text_of(one, "new"), axis});
  }
  for (const Json& one : list_of(document, "shards")) method.shards.push_back(read_shard(one));
  if (const JsonList* parts = document["parts"]["logits"].list()) {
    for (const Json& part : *parts) {
      if (part.text() == nullptr) damaged(method.name + " lacks a part of an output");
      method.logits.push_back(*part.text());
    }
  } else {
    method.logits = {"logits"};
  }
  check(method);
  return method;
}

}  // namespace

size_t CodedTensor::numbers() const {
  size_t count = 1;
  for (const int64_t dim : shape) count *= static_cast<size_t>(dim);
  return count;
}

void CodedTensor::quantize(const float* numbers, size_t count, uint8_t* codes) const {
  if (type == CodeType::f16) {
    for (size_t i = 0; i < count; ++i) {
      const float number = std::isnan(numbers[i]) ? 0 : numbers[i];
      const uint16_t half = float_to_half_bits(std::clamp(number, -kLargestHalf, kLargestHalf));
      std::memcpy(codes + 2 * i, &half, sizeof half);
    }
    return;
  }
  const float steps = 1.0f / scale;
  const double highest = type == CodeType::u8 ? 255 : 65535;
  for (size_t i = 0; i < count; ++i) {
    const float ratio = numbers[i] * steps;
    const double rounded = std::isnan(ratio) ? 0 : std::nearbyint(std::clamp(ratio, -3e38f, 3e38f));
    const auto code = static_cast<uint16_t>(std::clamp(rounded + zero_point, 0.0, highest));
    std::memcpy(codes + code_bytes() * i, &code, code_bytes());  // the lower byte comes first
  }
}

void CodedTensor::dequantize(const uint8_t* codes, size_t count, float* numbers) const {
  for (size_t i = 0; i < count; ++i) {
    uint16_t code = 0;
    std::memcpy(&code, codes + code_bytes() * i, code_bytes());
    numbers[i] = type == CodeType::f16 ? half_bits_to_float(code)
                                       : static_cast<float>(int32_t{code} - zero_point) * scale;
  }
}

uint16_t CodedTensor::seen_code() const { return static_cast<uint16_t>(zero_point); }
uint16_t CodedTensor::hidden_code() const {
  return type == CodeType::f16 ? float_to_half_bits(kHidden) : 0;
}

void CodedTensor::fill(uint16_t code, uint8_t* codes, size_t count) const {
  for (size_t i = 0; i < count; ++i) std::memcpy(codes + code_bytes() * i, &code, code_bytes());
}

const CodedTensor* CompiledMethod::find(std::string_view tensor) const {
  for (const Shard& shard : shards) {
    for (const auto* side : {&shard.inputs, &shard.outputs}) {
      for (const CodedTensor& one : *side) {
        if (one.name == tensor) return &one;
      }
    }
  }
  return nullptr;
}

const CompiledMethod* Manifest::find(std::string_view method) const {
  const auto found = std::find_if(methods.begin(), methods.end(),
                                  [&](const CompiledMethod& m) { return m.name == method; });
  return found == methods.end() ? nullptr : &*found;
}

Manifest read_manifest(std::string_view text) {
  const Json document = Json::parse(text, "weights");
  if (document["version"].whole() == nullptr || *document["version"].whole() != kVersion)
    damaged("the NPU's manifest is of another version");
  Manifest manifest;
  manifest.target = text_of(document, "target");
  const auto is_true = [&](const char* key) {
    const bool* found = document[key].boolean();
    return found != nullptr && *found;
  };
  manifest.shares_weights = is_true("shared");
  manifest.same_bits = is_true("same_bits");
  const llm::JsonObject* provider = document["provider"].object();
  if (provider == nullptr)
    damaged("the NPU's manifest does not say how the chip is called; it is of an older Satchel");
  for (const auto& [key, value] : *provider) {
    if (value.text() == nullptr) damaged("the NPU's manifest has a strange option " + key);
    manifest.provider.emplace_back(key, *value.text());
  }
  for (const Json& method : list_of(document, "methods"))
    manifest.methods.push_back(read_method(method));
  if (manifest.methods.empty()) damaged("the NPU's manifest has no methods");
  return manifest;
}

}  // namespace satchel::qnn
