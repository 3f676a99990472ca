// What an Arm CPU offers beyond NEON, as the operating system reports it: user programs may not
// read the feature registers themselves.

#include "tables.h"

#if defined(__linux__)
#include <sys/auxv.h>
#elif defined(__APPLE__)
#include <sys/sysctl.h>
#endif

namespace satchel {

#if defined(__linux__)

ArmFeatures arm_features() {
  // Bits of the kernel's interface, by number because older C libraries do not name them.
  constexpr unsigned long kDotProduct = 1ul << 20;  // HWCAP_ASIMDDP
  constexpr unsigned long kInt8Matrix = 1ul << 13;  // HWCAP2_I8MM
  return {(getauxval(AT_HWCAP) & kDotProduct) != 0, (getauxval(AT_HWCAP2) & kInt8Matrix) != 0};
}

#elif defined(__APPLE__)

static bool reports(const char* name) {
  int value = 0;
  size_t size = sizeof value;
  return sysctlbyname(name, &value, &size, nullptr, 0) == 0 && value != 0;
}

ArmFeatures arm_features() {
  return {reports("hw.optional.arm.FEAT_DotProd"), reports("hw.optional.arm.FEAT_I8MM")};
}

#else

ArmFeatures arm_features() { return {}; }

#endif

}  // namespace satchel
