// Sessions of ONNX Runtime on Qualcomm's provider. Both are opened when they are used (dlopen), so
// that nothing is needed to build this.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "manifest.h"

namespace satchel::qnn {

struct OrtFunctions;  // those that are used of its C API

// Memory of a tensor that graphs read and write.
class Buffer {
 public:
  Buffer(std::shared_ptr<const OrtFunctions> ort, const CodedTensor& tensor);
  ~Buffer();
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  uint8_t* data() { return codes_.data(); }
  void* value() const { return value_; }

 private:
  std::shared_ptr<const OrtFunctions> ort_;
  std::vector<uint8_t> codes_;
  void* value_ = nullptr;
};

// A compiled graph that is loaded.
class Graph {
 public:
  Graph(std::shared_ptr<const OrtFunctions> ort, void* session);
  ~Graph();
  Graph(const Graph&) = delete;
  Graph& operator=(const Graph&) = delete;

  // Throws FormatError unless it takes and gives what the shard says.
  void check(const Shard& shard) const;
  // `inputs` and `outputs` are in the order of the shard's.
  void run(const Shard& shard, const std::vector<void*>& inputs, std::vector<void*> outputs) const;

 private:
  std::shared_ptr<const OrtFunctions> ort_;
  void* session_;
};

class OnnxRuntime {
 public:
  using Options = std::vector<std::pair<std::string, std::string>>;

  // Opens the libraries; throws ConfigError that says where they were looked for.
  OnnxRuntime();

  std::unique_ptr<Graph> load(const std::string& model, const Options& provider,
                              bool shares_weights) const;
  std::unique_ptr<Buffer> make_buffer(const CodedTensor& tensor) const {
    return std::make_unique<Buffer>(ort_, tensor);
  }

 private:
  std::shared_ptr<const OrtFunctions> ort_;
  std::string backend_;
};

}  // namespace satchel::qnn
