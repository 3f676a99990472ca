#include "onnxruntime.h"

#include <dlfcn.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "../llm/errors.h"
#include "vendor_call.h"

namespace satchel::qnn {

// ONNX Runtime's C API is a table of functions, to which new ones are added at the end. Handles are
// void* here; a status is null for success.
struct OrtFunctions {
  const char* (*error_message)(const void* status);
  void* (*create_env)(int level, const char* id, void** env);
  void* (*create_session)(const void* env, const char* path, const void* options, void** session);
  void* (*run)(void* session, const void* options, const char* const* input_names,
               const void* const* inputs, size_t input_count, const char* const* output_names,
               size_t output_count, void** outputs);
  void* (*create_options)(void** options);
  void* (*set_log_level)(void* options, int level);
  void* (*input_count)(const void* session, size_t* count);
  void* (*output_count)(const void* session, size_t* count);
  void* (*input_type)(const void* session, size_t index, void** type);
  void* (*output_type)(const void* session, size_t index, void** type);
  void* (*input_name)(const void* session, size_t index, void* allocator, char** name);
  void* (*output_name)(const void* session, size_t index, void* allocator, char** name);
  void* (*create_tensor)(const void* memory, void* data, size_t bytes, const int64_t* shape,
                         size_t rank, int type, void** value);
  void* (*tensor_info)(const void* type, const void** info);
  void* (*element_type)(const void* info, int* type);
  void* (*rank)(const void* info, size_t* rank);
  void* (*dimensions)(const void* info, int64_t* dims, size_t rank);
  void* (*cpu_memory)(int allocator_type, int memory_type, void** memory);
  void* (*allocator_free)(void* allocator, void* pointer);
  void* (*default_allocator)(void** allocator);
  void (*release_env)(void*);
  void (*release_status)(void*);
  void (*release_memory)(void*);
  void (*release_session)(void*);
  void (*release_value)(void*);
  void (*release_type)(void*);
  void (*release_options)(void*);
  void* (*set_option)(void* options, const char* key, const char* value);
  void* (*register_provider)(void* env, const char* name, const char* path);
  void* (*devices)(const void* env, const void* const** devices, size_t* count);
  void* (*append_provider)(void* options, void* env, const void* const* devices, size_t count,
                           const char* const* keys, const char* const* values,
                           size_t options_count);
  const char* (*device_provider)(const void* device);

  void* env = nullptr;
  void* memory = nullptr;

  explicit OrtFunctions(void* const* table);
  ~OrtFunctions() {
    if (memory != nullptr) release_memory(memory);
    if (env != nullptr) release_env(env);
  }
  void check(void* status, const std::string& doing) const;
};

namespace {

constexpr uint32_t kApiVersion = 22;  // the first that registers providers
constexpr int kErrorsOnly = 3;
constexpr const char* kProvider = "QNNExecutionProvider";
constexpr const char* kFolders = "SATCHEL_QNN_LIBRARIES";
constexpr const char* kRuntimeLibrary = "libonnxruntime.so";
constexpr const char* kProviderLibrary = "libonnxruntime_providers_qnn.so";
constexpr const char* kBackendLibrary = "libQnnHtp.so";

struct ApiBase {
  void* const* (*api)(uint32_t version);
  const char* (*version)();
};

template <typename Function>
void place(Function& function, void* const* table, size_t number) {
  function = reinterpret_cast<Function>(table[number]);
}

// Where the libraries may be: folders that are named, or else the runner's own and those of
// Python's packages if it is one of them (satchel/device/bin).
std::vector<std::filesystem::path> folders() {
  std::vector<std::filesystem::path> found;
  if (const char* named = std::getenv(kFolders)) {
    std::string rest = named;
    for (size_t end; !rest.empty(); rest.erase(0, end == std::string::npos ? end : end + 1)) {
      end = rest.find(':');
      if (end != 0) found.emplace_back(rest.substr(0, end));
    }
    return found;
  }
  std::error_code error;
  const auto own = std::filesystem::read_symlink("/proc/self/exe", error).parent_path();
  if (!error) {
    const auto packages = own.parent_path().parent_path().parent_path();
    found.insert(found.end(),
                 {own, packages / "onnxruntime" / "capi", packages / "onnxruntime_qnn"});
  }
  return found;
}

// The path of a library, which may have its version behind its name; its name alone if it is in
// none of the folders: the system may know it.
std::string find_library(const std::string& name) {
  for (const auto& folder : folders()) {
    std::error_code error;
    if (std::filesystem::exists(folder / name, error)) return folder / name;
    std::vector<std::string> versions;
    for (std::filesystem::directory_iterator at(folder, error), end; !error && at != end;
         at.increment(error)) {
      if (at->path().filename().string().starts_with(name + ".")) versions.push_back(at->path());
    }
    if (!versions.empty()) return *std::max_element(versions.begin(), versions.end());
  }
  return name;
}

int element_type(CodeType type) {
  return type == CodeType::u8 ? 2 : type == CodeType::u16 ? 4 : 10;
}

[[noreturn]] void fail(const std::string& doing, std::string message) {
  std::replace(message.begin(), message.end(), '\n', ' ');
  throw ConfigError(doing + " failed: " + message,
                    "docs/qnn.md has the causes of Qualcomm's codes; --target cpu needs none of "
                    "its libraries.");
}

}  // namespace

OrtFunctions::OrtFunctions(void* const* table) {
  place(error_message, table, 2);
  place(create_env, table, 3);
  place(create_session, table, 7);
  place(run, table, 9);
  place(create_options, table, 10);
  place(set_log_level, table, 22);
  place(input_count, table, 30);
  place(output_count, table, 31);
  place(input_type, table, 33);
  place(output_type, table, 34);
  place(input_name, table, 36);
  place(output_name, table, 37);
  place(create_tensor, table, 49);
  place(tensor_info, table, 55);
  place(element_type, table, 60);
  place(rank, table, 61);
  place(dimensions, table, 62);
  place(cpu_memory, table, 69);
  place(allocator_free, table, 76);
  place(default_allocator, table, 78);
  place(release_env, table, 92);
  place(release_status, table, 93);
  place(release_memory, table, 94);
  place(release_session, table, 95);
  place(release_value, table, 96);
  place(release_type, table, 98);
  place(release_options, table, 100);
  place(set_option, table, 130);
  place(register_provider, table, 301);
  place(devices, table, 303);
  place(append_provider, table, 304);
  place(device_provider, table, 312);
}

void OrtFunctions::check(void* status, const std::string& doing) const {
  if (status == nullptr) return;
  const std::string message = error_message(status);
  release_status(status);
  fail(doing, message);
}

Buffer::Buffer(std::shared_ptr<const OrtFunctions> ort, const CodedTensor& tensor)
    : ort_(std::move(ort)), codes_(tensor.bytes()) {
  ort_->check(ort_->create_tensor(ort_->memory, codes_.data(), codes_.size(), tensor.shape.data(),
                                  tensor.shape.size(), element_type(tensor.type), &value_),
              "making " + tensor.name);
}

Buffer::~Buffer() { ort_->release_value(value_); }

Graph::Graph(std::shared_ptr<const OrtFunctions> ort, void* session)
    : ort_(std::move(ort)), session_(session) {}

Graph::~Graph() {
  const VendorCall watched("closing a graph");
  ort_->release_session(session_);
}

void Graph::check(const Shard& shard) const {
  const OrtFunctions& ort = *ort_;
  const std::string doing = "asking for the inputs and outputs of " + shard.model;
  void* allocator = nullptr;
  ort.check(ort.default_allocator(&allocator), doing);
  const auto fits = [&](bool gives, const std::vector<CodedTensor>& said) {
    size_t count = 0;
    ort.check((gives ? ort.output_count : ort.input_count)(session_, &count), doing);
    if (count != said.size()) return false;
    for (size_t i = 0; i < count; ++i) {
      char* name = nullptr;
      ort.check((gives ? ort.output_name : ort.input_name)(session_, i, allocator, &name), doing);
      const std::string found = name;
      ort.check(ort.allocator_free(allocator, name), doing);
      const auto known = std::find_if(said.begin(), said.end(),
                                      [&](const CodedTensor& one) { return one.name == found; });
      if (known == said.end()) return false;
      void* type = nullptr;
      ort.check((gives ? ort.output_type : ort.input_type)(session_, i, &type), doing);
      const std::unique_ptr<void, void (*)(void*)> owned(type, ort.release_type);
      const void* info = nullptr;
      int element = 0;
      size_t rank = 0;
      ort.check(ort.tensor_info(type, &info), doing);
      if (info == nullptr) return false;
      ort.check(ort.element_type(info, &element), doing);
      ort.check(ort.rank(info, &rank), doing);
      std::vector<int64_t> shape(rank);
      ort.check(ort.dimensions(info, shape.data(), rank), doing);
      if (element != element_type(known->type) || shape != known->shape) return false;
    }
    return true;
  };
  if (!fits(false, shard.inputs) || !fits(true, shard.outputs))
    throw FormatError("weights", 0, "the manifest does not describe " + shard.model,
                      "Export the file again.");
}

void Graph::run(const Shard& shard, const std::vector<void*>& inputs,
                std::vector<void*> outputs) const {
  std::vector<const char*> given, wanted;
  for (const CodedTensor& one : shard.inputs) given.push_back(one.name.c_str());
  for (const CodedTensor& one : shard.outputs) wanted.push_back(one.name.c_str());
  const VendorCall watched("running a graph");
  ort_->check(ort_->run(session_, nullptr, given.data(), inputs.data(), given.size(), wanted.data(),
                        wanted.size(), outputs.data()),
              "running " + shard.model);
}

namespace {

std::shared_ptr<const OrtFunctions> open_libraries() {
  const VendorCall watched("being opened");
  const std::string path = find_library(kRuntimeLibrary);
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) {
    const char* why = dlerror();
    throw ConfigError(
        "Qualcomm's NPUs are driven through ONNX Runtime, and " +
            std::string(why == nullptr ? path : why),
        std::string("Set ") + kFolders +
            " to the folders (with : between) of libonnxruntime.so, libonnxruntime_providers_qnn.so"
            " and libQnnHtp.so; PyPI's onnxruntime and onnxruntime-qnn have them. Or use --target "
            "cpu.");
  }
  const auto base = reinterpret_cast<const ApiBase* (*)()>(dlsym(library, "OrtGetApiBase"));
  void* const* table = base == nullptr ? nullptr : base()->api(kApiVersion);
  if (table == nullptr)
    throw ConfigError(path + " is too old to drive Qualcomm's NPUs",
                      "ONNX Runtime 1.22 and newer can; onnxruntime-qnn says which one it needs.");
  auto ort = std::make_shared<OrtFunctions>(table);
  ort->check(ort->create_env(kErrorsOnly, "satchel", &ort->env), "opening ONNX Runtime");
  ort->check(ort->cpu_memory(0, 0, &ort->memory), "opening ONNX Runtime");
  const std::string provider = find_library(kProviderLibrary);
  ort->check(ort->register_provider(ort->env, kProvider, provider.c_str()), "opening " + provider);
  return ort;
}

// A provider is registered once in a process, and does not take being unloaded: it stays.
std::shared_ptr<const OrtFunctions> shared_libraries() {
  static const auto* opened = new std::shared_ptr<const OrtFunctions>(open_libraries());
  return *opened;
}

}  // namespace

OnnxRuntime::OnnxRuntime() : ort_(shared_libraries()), backend_(find_library(kBackendLibrary)) {}

std::unique_ptr<Graph> OnnxRuntime::load(const std::string& model, const Options& provider,
                                         bool shares_weights) const {
  const OrtFunctions& ort = *ort_;
  const VendorCall watched("loading a graph");
  const std::string doing =
      "loading " + std::filesystem::path(model).filename().string() + " for the NPU";
  const void* const* devices = nullptr;
  size_t count = 0;
  ort.check(ort.devices(ort.env, &devices, &count), doing);
  const auto* device = std::find_if(devices, devices + count, [&](const void* one) {
    return std::string_view(ort.device_provider(one)) == kProvider;
  });
  if (device == devices + count) fail(doing, "Qualcomm's provider finds no device");
  std::vector<const char*> keys = {"backend_path"}, values = {backend_.c_str()};
  for (const auto& [key, value] : provider) {
    keys.push_back(key.c_str());
    values.push_back(value.c_str());
  }
  void* options = nullptr;
  ort.check(ort.create_options(&options), doing);
  const std::unique_ptr<void, void (*)(void*)> owned(options, ort.release_options);
  ort.check(ort.set_log_level(options, kErrorsOnly), doing);
  // What the NPU does not take is an error, and not the CPU's work.
  ort.check(ort.set_option(options, "session.disable_cpu_ep_fallback", "1"), doing);
  if (shares_weights) ort.check(ort.set_option(options, "ep.share_ep_contexts", "1"), doing);
  ort.check(
      ort.append_provider(options, ort.env, device, 1, keys.data(), values.data(), keys.size()),
      doing);
  void* session = nullptr;
  ort.check(ort.create_session(ort.env, model.c_str(), options, &session), doing);
  return std::make_unique<Graph>(ort_, session);
}

}  // namespace satchel::qnn
