#define TRIREME_KERNEL_TABLE kAvx2Table
#define TRIREME_KERNEL_NAME "avx2"
#include "model/ops/kernels/instantiate.hpp"
