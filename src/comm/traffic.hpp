#pragma once
#include <string_view>
#include <vector>

#include "comm/communicator.hpp"

/// Computes differences and sums of the rows that Communicator::traffic() returns.
namespace trireme::comm {

/// Returns the traffic between `before` and `after`, without empty rows. The result is exact if no
/// operation was pending at either time.
std::vector<TrafficRow> traffic_between(const std::vector<TrafficRow>& before,
                                        const std::vector<TrafficRow>& after);

/// Returns the sum of all rows of the operation ("": of every operation), with purpose "".
/// moved_bytes and messages are absent if they are absent in one row.
TrafficRow total_traffic(const std::vector<TrafficRow>& rows, std::string_view operation = "");

}  // namespace trireme::comm
