#include "op.h"

#include <algorithm>
#include <map>
#include <string_view>

#include "cpu_op.h"
#include "errors.h"

namespace satchel {

namespace {

const std::map<std::string, const OpDef*>& all_ops() {
  static const auto table = [] {
    std::map<std::string, const OpDef*> all;
    for (const auto& group :
         {along_axis_ops(), attention_ops(), attention_codes_ops(), attention_full_ops(),
          choose_ops(), conv_ops(), elementwise_ops(), expert_ops(), hadamard_ops(), integer_ops(),
          linear_ops(), normalize_ops(), pool_ops(), quantized_ops(), reduce_ops(),
          requantize_ops(), select_ops(), shape_ops(), state_ops()}) {
      for (const OpDef& op : group) all.emplace(op.schema.name, &op);
    }
    return all;
  }();
  return table;
}

}  // namespace

const OpSchema* find_schema(const std::string& name) {
  const auto found = all_ops().find(name);
  return found == all_ops().end() ? nullptr : &found->second->schema;
}

const CpuOp* find_cpu_op(const OpSchema& schema) {
  const auto found = all_ops().find(schema.name);
  return found == all_ops().end() || !found->second->cpu.run ? nullptr : &found->second->cpu;
}

std::vector<std::string> op_names() {
  std::vector<std::string> names;
  for (const auto& [name, op] : all_ops()) names.push_back(name);
  return names;
}

void reject(const NodeCall& call, const std::string& message) {
  std::string types;
  for (const Tensor* t : call.inputs) {
    types += types.empty() ? "" : ", ";
    types += t ? dtype_name(t->dtype) + shape_text(t->shape, t->rank) : "-";
  }
  throw ExecutionError(std::string(call.info->op->name) + ": " + message + " (inputs " + types +
                       ", output " + shape_text(call.output->shape, call.output->rank) + ")");
}

void require_array(const NodeCall& call, const Tensor& t, DType dtype) {
  if (t.dtype != dtype) reject(call, std::string("an operand must be ") + dtype_name(dtype));
  if (t.weight && t.weight->is_matrix()) reject(call, "an operand is packed as a matrix");
}

bool same_shape(const Tensor& a, const Tensor& b) {
  return a.rank == b.rank && std::equal(a.shape, a.shape + a.rank, b.shape);
}

namespace {

template <typename T>
const T* attribute(const NodeCall& call, const char* name) {
  const Attribute* found = call.info->attributes.find(name);
  if (!found) return nullptr;
  const T* value = std::get_if<T>(found);
  if (!value) reject(call, std::string("the attribute ") + name + " is of the wrong kind");
  return value;
}

}  // namespace

int64_t int_attribute(const NodeCall& call, const char* name, std::optional<int64_t> fallback) {
  if (const auto* value = attribute<int64_t>(call, name)) return *value;
  if (!fallback) reject(call, std::string("the attribute ") + name + " is missing");
  return *fallback;
}

double number_attribute(const NodeCall& call, const char* name, std::optional<double> fallback) {
  if (const Attribute* found = call.info->attributes.find(name)) {
    if (const auto* whole = std::get_if<int64_t>(found)) return static_cast<double>(*whole);
  }
  if (const auto* value = attribute<double>(call, name)) return *value;
  if (!fallback) reject(call, std::string("the attribute ") + name + " is missing");
  return *fallback;
}

std::string text_attribute(const NodeCall& call, const char* name, const char* fallback) {
  const auto* value = attribute<std::string>(call, name);
  return value ? *value : fallback;
}

Activation activation_attribute(const NodeCall& call) {
  constexpr const char* names[kActivations] = {"none",        "relu", "relu6", "hardswish",
                                               "hardsigmoid", "silu", "gelu",  "gelu_tanh",
                                               "sigmoid",     "tanh"};
  const std::string name = text_attribute(call, "activation", "none");
  for (int i = 0; i < kActivations; ++i) {
    if (name == names[i]) return static_cast<Activation>(i);
  }
  reject(call, "there is no such activation");
}

std::vector<int64_t> ints_attribute(const NodeCall& call, const char* name) {
  const auto* value = attribute<std::vector<int64_t>>(call, name);
  if (!value) reject(call, std::string("the attribute ") + name + " is missing");
  return *value;
}

}  // namespace satchel
