#define TRIREME_KERNEL_TABLE kGenericTable
#define TRIREME_KERNEL_NAME "generic"
#include "ops/cpu/instantiate.hpp"
