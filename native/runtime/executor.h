// Who runs the nodes of a method: the CPU, or another chip. An instance knows states, symbols and
// checks; an executor has memory and does the work.
//
// A method is divided into parts, each of nodes that lie behind one another and run in one place.
// Every executor has an arena of the method's size, in which a value has the same offset as in all
// others: a value that crosses from one part to another is copied to its own place, by way of the
// host's memory.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "bound_method.h"
#include "chain.h"
#include "profile.h"
#include "program.h"
#include "sequences.h"
#include "state_memory.h"

namespace satchel {

// Nodes of a method that one executor runs: [first, last), and the values that cross.
struct PartInfo {
  size_t executor;  // its number in the instance; 0: the host's CPU
  size_t first, last;
  std::vector<uint32_t> takes;  // read here, and written elsewhere
  std::vector<uint32_t> gives;  // written here, and read elsewhere
};

class Part {
 public:
  virtual ~Part() = default;
  // The sizes of the method's symbols have changed; every call is checked.
  virtual void bind() = 0;
  // A value with its sizes of this call, from the host's memory and to it.
  virtual void take(uint32_t value, const uint8_t* from) = 0;
  virtual void give(uint32_t value, uint8_t* to) = 0;
  virtual void run(Sequences& sequences) = 0;
  // Runs a method that is this part alone again and again, each time for the tokens that were
  // chosen from the logits before. The method's inputs lie in `chain`. Returns the tokens of each
  // run, of fewer than were asked for if need be; none if it cannot. -1 stands for logits without a
  // meaning.
  virtual std::vector<int32_t> run_chain(Sequences&, Chain&) { return {}; }
};

// An executor serves one instance.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual const std::string& name() const = 0;

  // A method whose nodes it will be asked for, one after the other; sizes are the largest.
  virtual void look_at(const BoundMethod&) {}
  // Why it cannot run a node, whose sizes are the largest; empty if it can.
  virtual std::string refuses(const NodeCall& call) const = 0;

  // Called once, before what follows: a place for the largest arena, and for weights.
  virtual void open(std::shared_ptr<const Program> program, uint64_t arena_bytes) = 0;
  // Memory of a state that only this executor's nodes use.
  virtual std::unique_ptr<StateMemory> make_state(size_t state, uint64_t bytes) = 0;
  // `method` outlives the part; its calls from info.first to info.last are this executor's.
  virtual std::unique_ptr<Part> prepare(BoundMethod& method, const PartInfo& info) = 0;

  // From now on the time of every call is noted, until it is taken.
  virtual void start_profile() {}
  virtual Profile take_profile() { return {}; }

  // What it takes of a memory of its own now, beside the host's.
  virtual uint64_t memory_taken() const { return 0; }
};

}  // namespace satchel
