#pragma once
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

/// Between two points in time of one group, each a Communicator::traffic().
namespace trireme {

/// What was done after `before`; rows in which nothing was are left out. Exact when no operation
/// was under way at either point.
std::vector<TrafficRow> traffic_between(const std::vector<TrafficRow>& before,
                                        const std::vector<TrafficRow>& after);

/// The sum of all rows of that operation, or of every operation for ""; its purpose is "". moved
/// and messages are absent where one row lacks them.
TrafficRow total_traffic(const std::vector<TrafficRow>& rows, std::string_view operation = "");

}  // namespace trireme
