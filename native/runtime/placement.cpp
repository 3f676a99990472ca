#include "placement.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "errors.h"

namespace satchel {

namespace {

// The executor of every node, by method and node.
using Owners = std::vector<std::vector<size_t>>;

// Whether a size is involved that a node finds out: the CPU does these, which knows empty tensors.
bool decided_as_it_runs(const Method& method, const NodeCall& call) {
  const auto is_decided = [&](int64_t symbol) {
    return method.symbols[static_cast<size_t>(symbol)].decided_by >= 0;
  };
  const auto has_one = [&](const Tensor* t) {
    return t && std::any_of(t->info->shape.begin(), t->info->shape.end(), [&](int64_t dim) {
             if (dim >= 0) return false;
             return method.symbols[static_cast<size_t>(-1 - dim)].any_base(-1 - dim, is_decided);
           });
  };
  return has_one(call.output) || std::any_of(call.inputs.begin(), call.inputs.end(), has_one);
}

Owners ask_executors(std::vector<BoundMethod>& methods,
                     const std::vector<std::shared_ptr<Executor>>& executors,
                     std::vector<Refusal>& refusals) {
  std::map<std::tuple<size_t, std::string, std::string>, size_t> refused;
  Owners owners;
  for (BoundMethod& method : methods) {
    if (executors.size() > 1) method.bind_largest();
    for (const auto& executor : executors) executor->look_at(method);
    std::vector<size_t>& own = owners.emplace_back();
    for (const NodeCall& call : method.calls()) {
      const std::string op = call.info->op->name;
      const bool decided = decided_as_it_runs(method.method(), call);
      size_t owner = 1;
      for (; owner < executors.size(); ++owner) {
        std::string reason = executors[owner]->refuses(call);
        if (reason.empty() && decided) reason = "only a run tells its size, which may be 0";
        if (reason.empty()) break;
        ++refused[{owner, op, reason}];
      }
      own.push_back(owner < executors.size() ? owner : 0);
      if (own.back() > 0) continue;
      const std::string reason = executors[0]->refuses(call);
      if (!reason.empty())
        throw ExecutionError(method.method().name + " cannot run here: " + reason);
    }
    method.unbind();
  }
  for (const auto& [key, nodes] : refused) {
    const auto& [owner, op, reason] = key;
    refusals.push_back({executors[owner]->name(), op, reason, nodes});
  }
  return owners;
}

// Nodes that use a state all run where it lies: where they differ, on the CPU. What is moved may
// use another state too, so that this goes on until nothing moves.
std::vector<size_t> keep_states_together(const std::vector<BoundMethod>& methods, size_t states,
                                         Owners& owners) {
  constexpr size_t kNobody = SIZE_MAX;
  std::vector<size_t> owner(states, kNobody);
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t m = 0; m < methods.size(); ++m) {
      const Method& method = methods[m].method();
      for (size_t n = 0; n < method.nodes.size(); ++n) {
        size_t& runs_it = owners[m][n];
        for (const uint32_t id : method.nodes[n].inputs) {
          if (id == kAbsent || method.values[id].storage != Storage::state) continue;
          size_t& holds_it = owner[method.values[id].location];
          if (holds_it == kNobody) holds_it = runs_it;
          if (holds_it == runs_it) continue;
          moved = true;
          holds_it = runs_it = 0;
        }
      }
    }
  }
  std::replace(owner.begin(), owner.end(), kNobody, size_t{0});
  return owner;
}

std::vector<PartInfo> divide(const Method& method, const std::vector<size_t>& owners) {
  std::vector<PartInfo> parts;
  for (size_t n = 0; n < owners.size(); ++n) {
    // Behind a node that decides a size, sizes are bound again.
    const bool again = n > 0 && method.nodes[n - 1].op->decides_size;
    if (parts.empty() || parts.back().executor != owners[n] || again)
      parts.push_back({owners[n], n, n, {}, {}});
    parts.back().last = n + 1;
  }
  // Who wrote what lies at a place of the arena: part and value.
  std::map<uint64_t, std::pair<size_t, uint32_t>> written;
  std::vector<std::set<uint32_t>> takes(parts.size()), gives(parts.size());
  const auto read = [&](uint32_t id, size_t part) {  // part: SIZE_MAX for the caller
    const ValueInfo& value = method.values[id];
    if (value.storage == Storage::input) {
      if (part != SIZE_MAX) takes[part].insert(id);
    } else if (value.storage == Storage::arena) {
      const auto& [writer, source] = written.at(value.location);
      if (writer == part) return;
      gives[writer].insert(source);
      if (part != SIZE_MAX) takes[part].insert(id);
    }
  };
  for (size_t p = 0; p < parts.size(); ++p) {
    for (size_t n = parts[p].first; n < parts[p].last; ++n) {
      for (const uint32_t id : method.nodes[n].inputs) {
        if (id != kAbsent) read(id, p);
      }
      const uint32_t out = method.nodes[n].output;
      if (method.values[out].storage == Storage::arena)
        written[method.values[out].location] = {p, out};
    }
  }
  for (const uint32_t id : method.outputs) read(id, SIZE_MAX);
  for (size_t p = 0; p < parts.size(); ++p) {
    if (parts[p].executor == 0) continue;  // whose memory is the host's
    parts[p].takes.assign(takes[p].begin(), takes[p].end());
    parts[p].gives.assign(gives[p].begin(), gives[p].end());
  }
  return parts;
}

}  // namespace

Placement place(const Program& program, std::vector<BoundMethod>& methods,
                const std::vector<std::shared_ptr<Executor>>& executors) {
  Placement placement;
  Owners owners = ask_executors(methods, executors, placement.refusals);
  placement.owners = keep_states_together(methods, program.states().size(), owners);
  for (size_t m = 0; m < methods.size(); ++m)
    placement.parts.push_back(divide(methods[m].method(), owners[m]));
  return placement;
}

}  // namespace satchel
