#include "checkpoint/exchange/rotary_rows.hpp"

namespace trireme::checkpoint {

std::int64_t partial_rotary_row(std::int64_t row, std::int64_t head_dim, std::int64_t rotated_dim) {
  const std::int64_t half = head_dim / 2;
  const std::int64_t rotated_pairs = rotated_dim / 2;
  const std::int64_t pair = row % half;
  const std::int64_t second = row / half % 2;
  const std::int64_t head = row / head_dim * head_dim;
  return head + (pair < rotated_pairs
                     ? second * rotated_pairs + pair
                     : 2 * rotated_pairs + second * (half - rotated_pairs) + pair - rotated_pairs);
}

}  // namespace trireme::checkpoint
