#pragma once
#include <string>
#include <vector>

#include "comm/nccl/nccl_api.hpp"

/// Replaces libnccl and the CUDA runtime without a GPU: ranks are threads, device memory is host
/// memory, and every call runs at once and is recorded. It also checks the rules of the libraries
/// for the current device, streams, ids and open groups. A broken rule is a gtest failure.
namespace trireme::testing {

const comm::NcclApi& stand_in_api();

/// Sets how many devices a rank's thread sees, and the number of the first one on its node. Call it
/// before the thread makes other calls.
void stand_in_rank(int node, int num_devices, int first_device = 0);

/// Returns and clears the calls of this thread so far, for example "all_reduce device 2 stream 5".
std::vector<std::string> stand_in_calls();

/// Makes every later collective hang: it is accepted and its event never completes.
void stand_in_hang(bool on);

}  // namespace trireme::testing
