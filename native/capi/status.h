// What a call of the C API gives back, and what it leaves behind when it fails.
#pragma once

#include <stdexcept>
#include <string>

#include "satchel.h"

namespace satchel::capi {

struct LastError {
  satchel_status code = SATCHEL_OK;
  std::string message, advice;
};

// Of this thread.
LastError& last_error();

// The caller's mistake: a null pointer, or a handle that is not (or no longer) one.
class Misuse : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Call it where an exception was caught: remembers what it says.
satchel_status remember_failure() noexcept;

// No exception leaves a call.
template <typename Work>
satchel_status guarded(const Work& work) noexcept {
  try {
    work();
    return SATCHEL_OK;
  } catch (...) {
    return remember_failure();
  }
}

}  // namespace satchel::capi
