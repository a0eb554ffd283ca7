#pragma once
#include <string>
#include <vector>

#include "comm/nccl/nccl_api.hpp"

/// libnccl and the CUDA runtime without a GPU: ranks are threads, device memory is host memory,
/// every call runs at once and is written down. It checks on the way what the libraries would
/// punish: the current device, streams, ids, open groups. A broken rule is a gtest failure.
namespace trireme::testing {

const NcclApi& stand_in_api();

/// Before a rank's thread makes calls: how many devices it sees, and the first
/// one's number on its node.
void stand_in_rank(int node, int num_devices, int first_device = 0);

/// The calls of this thread so far, e.g. "all_reduce device 2 stream 5"; cleared by reading.
std::vector<std::string> stand_in_calls();

/// Makes every collective after this hang: it is accepted and its event is never reached.
void stand_in_hang(bool on);

}  // namespace trireme::testing
