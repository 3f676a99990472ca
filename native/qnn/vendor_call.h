// What the vendor's libraries are doing. They run in our process, so a crash of theirs ends it: who
// owns the process (the runner, and not the C API) can at least say whose crash it was.
#pragma once

#include <atomic>

namespace satchel::qnn {

// Null while none of their functions is called. One that calls from several threads at once may
// find it null too early, and then only the message is lost.
inline std::atomic<const char*> vendor_call{nullptr};

class VendorCall {
 public:
  explicit VendorCall(const char* doing) : before_(vendor_call.exchange(doing)) {}
  ~VendorCall() { vendor_call.store(before_); }
  VendorCall(const VendorCall&) = delete;
  VendorCall& operator=(const VendorCall&) = delete;

 private:
  const char* before_;
};

}  // namespace satchel::qnn
