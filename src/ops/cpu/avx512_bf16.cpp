#define TRIREME_KERNEL_TABLE kAvx512Bf16Table
#define TRIREME_KERNEL_NAME "avx512_bf16"
#include "ops/cpu/instantiate.hpp"
