#pragma once
#include <c10/core/ScalarType.h>

#include <cstddef>
#include <vector>

namespace trireme::device {

/// Returns the CPUs on which this process may run, one of each physical core, limit at most.
std::vector<int> one_cpu_per_core(std::size_t limit);

/// Returns the FLOP/s of multiply-adds between registers on as many cores as this process has CPU
/// threads (at::get_num_threads()), with the best instructions that this CPU has for the compute
/// dtype. Each core is measured for 0.1 s of its own CPU time, so that other processes on the
/// machine do not change the result. For fp16 that is the rate of fp32, and for bf16 no less than
/// it.
double cpu_register_flops(at::ScalarType compute);

}  // namespace trireme::device
