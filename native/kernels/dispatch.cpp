// Which tables this CPU can run. Compiled for the baseline, like everything that runs before it.

#include <algorithm>
#include <cstdlib>
#include <stdexcept>

#include "machine.h"
#include "tables.h"

#ifdef SATCHEL_X86_64
#include <csetjmp>
#include <csignal>
#include <cpuid.h>
#ifdef __linux__
#include <sys/syscall.h>
#include <unistd.h>
#endif
#endif

namespace satchel {
namespace {

#ifdef SATCHEL_X86_64

struct Cpuid {
  unsigned a = 0, b = 0, c = 0, d = 0;
};

Cpuid cpuid(unsigned leaf, unsigned subleaf) {
  Cpuid r;
  if (!__get_cpuid_count(leaf, subleaf, &r.a, &r.b, &r.c, &r.d)) return Cpuid{};
  return r;
}

// What the operating system saves on a context switch.
uint64_t enabled_state() {
  uint32_t low, high;
  __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return static_cast<uint64_t>(high) << 32 | low;
}

struct Features {
  bool avx2 = false, avx512 = false, amx = false, amx_bf16 = false;
  std::vector<std::string> names;
  std::string amx_missing;  // why `amx` is false
};

bool bit(unsigned value, int index) { return (value >> index) & 1u; }

Features detect_features() {
  Features f;
  const Cpuid one = cpuid(1, 0), seven = cpuid(7, 0);
  const uint64_t state = bit(one.c, 27) ? enabled_state() : 0;
  const bool ymm = (state & 0x6) == 0x6, zmm = (state & 0xe6) == 0xe6;
  const bool tiles = (state & 0x60000) == 0x60000;
  const auto feature = [&f](const char* name, bool has) {
    if (has) f.names.emplace_back(name);
    return has;
  };
  const bool fma = feature("fma", ymm && bit(one.c, 12));
  const bool f16c = feature("f16c", ymm && bit(one.c, 29));
  const bool avx2 = feature("avx2", ymm && bit(one.c, 28) && bit(seven.b, 5));
  f.avx2 = fma && f16c && avx2;
  const bool avx512f = feature("avx512f", zmm && bit(seven.b, 16));
  const bool avx512dq = feature("avx512dq", zmm && bit(seven.b, 17));
  const bool avx512bw = feature("avx512bw", zmm && bit(seven.b, 30));
  const bool avx512vl = feature("avx512vl", zmm && bit(seven.b, 31));
  const bool vnni = feature("avx512_vnni", zmm && bit(seven.c, 11));
  f.avx512 = f.avx2 && avx512f && avx512dq && avx512bw && avx512vl && vnni;
  // Leaf 0x1d describes the tiles, but reads zero under some hypervisors where AMX works.
  const bool amx_tile = feature("amx_tile", tiles && bit(seven.d, 24));
  const bool amx_int8 = feature("amx_int8", tiles && bit(seven.d, 25));
  f.amx_bf16 = feature("amx_bf16", tiles && bit(seven.d, 22));
  if (!f.avx512) {
    f.amx_missing = "the CPU has no AVX-512 with VNNI";
  } else if (!bit(seven.d, 24) || !bit(seven.d, 25)) {
    f.amx_missing = "the CPU has no AMX-TILE and AMX-INT8";
  } else if (!tiles) {
    f.amx_missing = "the operating system does not enable the tile registers";
  }
  f.amx = amx_tile && amx_int8 && f.amx_missing.empty();
  return f;
}

const Features& features() {
  static const Features f = detect_features();
  return f;
}

bool is_intel() {
  const Cpuid vendor = cpuid(0, 0);
  return vendor.b == signature_INTEL_ebx && vendor.d == signature_INTEL_edx &&
         vendor.c == signature_INTEL_ecx;
}

#ifdef SATCHEL_AVX512

#ifdef _WIN32

std::string try_amx(bool (*)()) { return "the self-test cannot be guarded on Windows"; }

#else

thread_local bool in_self_test = false;
sigjmp_buf self_test_exit;

void leave_self_test(int signal) {
  if (in_self_test) siglongjmp(self_test_exit, signal);
  std::signal(signal, SIG_DFL);  // another thread's fault: let it happen again, unguarded
}

// An instruction that is announced may still fault, so the first tiles are used under guard.
std::string try_amx(bool (*self_test)()) {
  static const int signals[] = {SIGILL, SIGSEGV, SIGBUS};
  struct sigaction guard = {}, saved[3];
  guard.sa_handler = leave_self_test;
  sigemptyset(&guard.sa_mask);
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &guard, &saved[i]);
  std::string problem;
  const int signal = sigsetjmp(self_test_exit, 1);
  if (signal == 0) {
    in_self_test = true;
    if (!self_test()) problem = "the self-test gave wrong sums";
  } else {
    problem = "the self-test stopped with signal " + std::to_string(signal);
  }
  in_self_test = false;
  for (int i = 0; i < 3; ++i) sigaction(signals[i], &saved[i], nullptr);
  return problem;
}

#endif

// Empty when AMX works.
std::string probe_amx() {
  if (!features().amx) return features().amx_missing;
#ifdef __linux__
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  if (syscall(SYS_arch_prctl, kRequestPermission, kTileData) != 0) {
    return "the kernel refused the permission to use the tile registers";
  }
#endif
  return try_amx(amx_self_test);
}

const std::string& amx_problem() {
  static const std::string problem = probe_amx();
  return problem;
}

bool amx_multiplies_floats() {
  return amx_problem().empty() && features().amx_bf16 && try_amx(amx_bf16_self_test).empty();
}

#else

const std::string& amx_problem() {
  static const std::string problem = "this build has no kernels for it";
  return problem;
}

#endif  // SATCHEL_AVX512

#endif

// A table that differs from another in its name and the quantised linear layers.
[[maybe_unused]] KernelTable derived_table(KernelTable base, const char* name,
                                           decltype(KernelTable::linear_q4) linear_q4,
                                           decltype(KernelTable::linear_q8) linear_q8,
                                           decltype(KernelTable::linear_k) linear_k,
                                           decltype(KernelTable::linear_i8) linear_i8,
                                           decltype(KernelTable::conv_i8) conv_i8) {
  base.name = name;
  base.linear_q4 = linear_q4;
  base.linear_q8 = linear_q8;
  base.linear_k = linear_k;
  base.linear_i8 = linear_i8;
  base.conv_i8 = conv_i8;
  return base;
}

std::vector<const KernelTable*> find_kernels() {
  std::vector<const KernelTable*> tables{&portable_table};
#ifdef SATCHEL_X86_64
  if (features().avx2) tables.push_back(&avx2_table);
#endif
#ifdef SATCHEL_AVX512
  if (features().avx512) tables.push_back(&avx512_table);
  static const KernelTable amx = [] {
    KernelTable table = derived_table(avx512_table, "amx", amx_linear_q4, amx_linear_q8,
                                      avx512_table.linear_k, amx_linear_i8, amx_conv_i8);
    table.linear_q4_16 = table.linear_q8_16 = nullptr;  // tiles add up either digit
    table.rows_apart = 1024;  // weights take longer to unpack than to multiply with a few rows
    table.tiles_together = 8;
    table.joined_bytes = kMostJoinedBytes;
    table.weights_are_dear = true;
    table.window_columns = 64;
    table.windows_together = 16;
    if (amx_multiplies_floats()) table.attention = amx_attention;
    return table;
  }();
  if (amx_problem().empty()) tables.push_back(&amx);
#endif
#ifdef SATCHEL_AARCH64
  static const KernelTable dotprod =
      derived_table(neon_table, "dotprod", dotprod_linear_q4, dotprod_linear_q8, dotprod_linear_k,
                    dotprod_linear_i8, dotprod_conv_i8);
  static const KernelTable i8mm = derived_table(neon_table, "i8mm", i8mm_linear_q4, i8mm_linear_q8,
                                                i8mm_linear_k, i8mm_linear_i8, i8mm_conv_i8);
  const ArmFeatures arm = arm_features();
  tables.push_back(&neon_table);
  if (arm.dotprod) tables.push_back(&dotprod);
  if (arm.dotprod && arm.i8mm) tables.push_back(&i8mm);
#endif
  return tables;
}

}  // namespace

#ifdef SATCHEL_X86_64
bool asks_ahead() {
  static const bool ask = [] {
    const char* value = std::getenv("SATCHEL_READ_AHEAD");
    return value == nullptr || *value == '\0' ? is_intel() : *value != '0';
  }();
  return ask;
}
#endif

size_t attention_scratch(int64_t heads_per_kv, int64_t dim) {
  const int64_t rows = queries_per_pass(heads_per_kv) * heads_per_kv;
  const int64_t few = rows * (2 * padded_dim(dim) + kRowStateFloats) + kMaxRegisterRows * kKeyBlock;
  const int64_t width = 2 * long_dim(dim);
  const int64_t many =
      long_rows(heads_per_kv) * (width + 16 + kLongRowFloats) + kKeyBlock * (width + kLongRows);
  const int64_t most = std::max({few, many, tile_scratch(heads_per_kv, dim)});
  return static_cast<size_t>(most + 15) / 16 * 16;  // whole cache lines
}

std::vector<std::string> cpu_features() {
#ifdef SATCHEL_X86_64
  return features().names;
#elif defined(SATCHEL_AARCH64)
  std::vector<std::string> names{"neon"};
  if (arm_features().dotprod) names.emplace_back("dotprod");
  if (arm_features().i8mm) names.emplace_back("i8mm");
  return names;
#else
  return {};
#endif
}

std::string amx_status() {
#ifdef SATCHEL_X86_64
  return amx_problem().empty() ? "available" : "not used: " + amx_problem();
#else
  return "not used: this is not an x86-64 CPU";
#endif
}

const std::vector<const KernelTable*>& available_kernels() {
  static const std::vector<const KernelTable*> tables = find_kernels();
  return tables;
}

const KernelTable& kernels_by_name(const std::string& name) {
  std::string known;
  for (const KernelTable* table : available_kernels()) {
    if (name == table->name) return *table;
    known += known.empty() ? table->name : std::string(", ") + table->name;
  }
  throw std::invalid_argument("this CPU has no kernels named '" + name + "', only " + known);
}

const KernelTable& selected_kernels() {
  static const KernelTable& table = []() -> const KernelTable& {
    const char* name = std::getenv("SATCHEL_ISA");
    return name == nullptr || *name == '\0' ? *available_kernels().back() : kernels_by_name(name);
  }();
  return table;
}

}  // namespace satchel
