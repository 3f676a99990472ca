// Where the time of calls goes: how often each op ran and how long, and what layers with weights do
// in it.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "op.h"

namespace satchel {

class Profile {
 public:
  using Clock = std::chrono::steady_clock;
  struct Row {
    uint64_t calls = 0;
    double seconds = 0.0;
    double multiply_adds = 0.0;  // of layers
  };
  using Rows = std::map<std::string, Row>;

  // A call and those that are joined to it: the time counts for the first that has a matrix of
  // weights.
  void add(const NodeCall& call, Clock::duration time) {
    add_together(std::span(&call, call.joined + 1), std::chrono::duration<double>(time).count());
  }
  // The same of calls that lie anywhere, the first of them first.
  template <typename Calls>
  void add_together(const Calls& calls, double seconds) {
    const NodeCall *first = nullptr, *main = nullptr;
    std::string layers;
    double multiply_adds = 0.0;
    for (const NodeCall& one : calls) {
      if (!first) first = &one;
      ++ops_[one.info->op->name].calls;
      const Tensor* matrix = matrix_of(one);
      if (!matrix) continue;
      if (!main) main = &one;
      layers += (layers.empty() ? " " : ", ") + std::to_string(matrix->shape[0]) + " x " +
                std::to_string(matrix->last());
      multiply_adds +=
          static_cast<double>(one.output->elements()) * static_cast<double>(matrix->last());
    }
    const std::string name = (main ? main : first)->info->op->name;
    ops_[name].seconds += seconds;
    if (!main || name == "embedding") return;  // which reads its matrix, and multiplies nothing
    Row& row = layers_[name + layers];
    ++row.calls, row.seconds += seconds, row.multiply_adds += multiply_adds;
  }

  void add(const Profile& other) {
    const auto join = [](Rows& own, const Rows& others) {
      for (const auto& [name, row] : others) {
        Row& to = own[name];
        to.calls += row.calls, to.seconds += row.seconds, to.multiply_adds += row.multiply_adds;
      }
    };
    join(ops_, other.ops_);
    join(layers_, other.layers_);
  }

  const Rows& ops() const { return ops_; }
  // By op and the sizes of the matrices that one piece of work multiplies: outputs x columns.
  const Rows& layers() const { return layers_; }

 private:
  Rows ops_, layers_;

  static const Tensor* matrix_of(const NodeCall& call) {
    for (const Tensor* input : call.inputs) {
      if (input && input->weight && input->weight->is_matrix()) return input;
    }
    return nullptr;
  }
};

}  // namespace satchel
