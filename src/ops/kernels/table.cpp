#include "ops/kernels/kernels.hpp"

namespace trireme::ops::kernels {
namespace {

const Table& best_table() {
#ifdef TRIREME_X86_KERNELS
  __builtin_cpu_init();
  const bool has_avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512cd") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") &&
                        __builtin_cpu_supports("bmi2");
  if (has_avx512 && has_avx2) return kAvx512Table;
  if (has_avx2) return kAvx2Table;
#endif
  return kGenericTable;
}

}  // namespace

const Table& table() {
  static const Table& chosen = best_table();
  return chosen;
}

}  // namespace trireme::ops::kernels
