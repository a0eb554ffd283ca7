#define TRIREME_KERNEL_TABLE kAvx2Table
#define TRIREME_KERNEL_NAME "avx2"
#include "ops/cpu/instantiate.hpp"
