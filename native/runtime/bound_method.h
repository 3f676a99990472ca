// The tensors and nodes of one method, for given sizes of its symbols.
#pragma once

#include <cstdint>
#include <vector>

#include "op.h"

namespace satchel {

class Program;

// Throws ExecutionError if a node's tensors do not fit at the largest or at the smallest sizes of
// the symbols, or if the CPU would need more scratch for it than can be.
void check_nodes(const Program& program, const Method& method);

class BoundMethod {
 public:
  BoundMethod(const Program& program, const Method& method);
  BoundMethod(BoundMethod&&) = default;  // and no copy: calls point to tensors

  // Sets the symbols' sizes and checks the nodes, all or those before a number, behind which sizes
  // are not known yet; false if the sizes are those of the last call.
  bool bind(const std::vector<int64_t>& sizes, size_t until = SIZE_MAX);
  const std::vector<int64_t>& sizes() const { return bound_; }
  void unbind() { is_bound_ = false; }  // what follows a bind has failed
  void bind_largest();

  const Method& method() const { return *method_; }
  Tensor& tensor(uint32_t id) { return tensors_[id]; }
  const std::vector<Tensor>& tensors() const { return tensors_; }
  std::vector<NodeCall>& calls() { return calls_; }
  const std::vector<NodeCall>& calls() const { return calls_; }

 private:
  void count_uses();

  const Method* method_;
  std::vector<Tensor> tensors_;
  std::vector<NodeCall> calls_;
  std::vector<int64_t> bound_;
  bool is_bound_ = false;
};

}  // namespace satchel
