#define TRIREME_KERNEL_TABLE kGenericTable
#define TRIREME_KERNEL_NAME "generic"
#include "model/ops/kernels/instantiate.hpp"
