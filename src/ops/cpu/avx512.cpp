#define TRIREME_KERNEL_TABLE kAvx512Table
#define TRIREME_KERNEL_NAME "avx512"
#include "ops/cpu/instantiate.hpp"
