#pragma once
#include <c10/core/ScalarType.h>

namespace trireme {

/// Returns the FLOP/s that this process's CPU threads (at::get_num_threads()) reach together in
/// multiply-adds between registers, with the best instructions that this CPU has for the compute
/// dtype; the best of several measurements, 0.1 s in all. For fp16 that is the rate of fp32, and
/// for bf16 no less than it.
double cpu_register_flops(at::ScalarType compute);

}  // namespace trireme
