// Who computes the steps of a language model, and keeps its caches: the CPU, or a chip beside it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../runtime/chain.h"

namespace satchel {
class Instance;
}

namespace satchel::llm {

// Tokens of one conversation that follow one another.
struct TokenStep {
  size_t method;  // its number in the program
  int32_t sequence;
  std::span<const uint32_t> tokens;
  size_t position;       // of the first one
  size_t first_row = 0;  // logits are wanted from this token on
  bool guesses = false;  // those behind the first are guesses
  // Of a method that takes these in place of tokens, [tokens, hidden].
  std::span<const float> embedded = {};
};

class Engine {
 public:
  virtual ~Engine() = default;

  virtual std::string kernels() const = 0;
  virtual int threads() const = 0;
  virtual bool is_emulated() const { return false; }
  // Whether steps may have embeddings in place of tokens.
  virtual bool takes_embeddings() const { return false; }

  virtual int32_t open_sequence() = 0;
  virtual void close_sequence(int32_t sequence) = 0;
  // What lies behind the first `length` tokens is not needed any more.
  virtual void truncate(int32_t sequence, size_t length) = 0;

  // The most tokens of a step, of a block of `block`, in which each has the bits that it has alone;
  // and why blocks are of no use for guesses, or nothing.
  virtual size_t most_guesses(size_t block) const = 0;
  virtual std::string other_bits_in_blocks() const { return ""; }
  // Leaves a row of logits for each token that wants them.
  virtual void run(const TokenStep& step, std::vector<float>& logits) = 0;

  // Whether it chooses tokens itself, by any rule, and several to a call.
  virtual bool chooses_tokens() const { return false; }
  // Those of a chain of one sequence; none where it cannot choose these, -1 where logits had no
  // meaning. All but the last are in the cache then.
  virtual std::vector<int32_t> run_chain(size_t method, Chain chain);

  // What a user should know of it, once; or nothing.
  virtual std::string remark() const { return ""; }
  // What the memory that the weights are read from gives in a second, measured now.
  virtual double measure_read_bandwidth() const;
  // What is taken of a memory that is not the host's; 0: there is none.
  virtual uint64_t device_memory() const { return 0; }
};

// What an instance's methods run on beside the CPU.
struct Chip {
  std::string name, remark;
  bool is_emulated = false, chooses_tokens = false;
  std::string other_bits_in_blocks;                // why, if they have
  std::function<double()> measure_read_bandwidth;  // of its own memory
};

// An engine of an instance, which outlives it.
std::unique_ptr<Engine> make_engine(Instance& instance, Chip chip = {});

}  // namespace satchel::llm
