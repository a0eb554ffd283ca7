#pragma once
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

/// Evaluates values of Communicator::traffic().
namespace trireme::comm {

/// Returns the traffic after `before`, without empty rows. Exact if nothing was in flight.
std::vector<TrafficRow> traffic_between(const std::vector<TrafficRow>& before,
                                        const std::vector<TrafficRow>& after);

/// Returns the sum of all rows of the operation ("": of every operation), with purpose "".
/// moved_bytes and messages are absent if they are absent in one row.
TrafficRow total_traffic(const std::vector<TrafficRow>& rows, std::string_view operation = "");

}  // namespace trireme::comm
