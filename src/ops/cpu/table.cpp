#include <vector>

#include "ops/cpu/kernels.hpp"

namespace trireme::ops::kernels {
namespace {

std::vector<const Table*> find_tables() {
  std::vector<const Table*> tables{&kGenericTable};
#ifdef TRIREME_X86_KERNELS
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi") && __builtin_cpu_supports("bmi2");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  if (has_avx2) tables.push_back(&kAvx2Table);
  if (has_avx512) tables.push_back(&kAvx512Table);
  if (has_avx512 && __builtin_cpu_supports("avx512bf16"))
    tables.insert(has_fast_pairs() ? tables.end() : tables.end() - 1, &kAvx512Bf16Table);
#endif
  return tables;
}

}  // namespace

bool is_intel() {
#ifdef TRIREME_X86_KERNELS
  __builtin_cpu_init();
  return __builtin_cpu_is("intel");
#else
  return false;
#endif
}

bool has_fast_pairs() {
#ifdef TRIREME_X86_KERNELS
  return !is_intel() && __builtin_cpu_supports("avx512bf16");
#else
  return false;
#endif
}

bool has_vnni() {
#ifdef TRIREME_X86_KERNELS
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512vnni");
#else
  return false;
#endif
}

std::span<const Table* const> usable_tables() {
  static const std::vector<const Table*> tables = find_tables();
  return tables;
}

const Table& table() {
  static const Table& best = *usable_tables().back();
  return best;
}

}  // namespace trireme::ops::kernels
