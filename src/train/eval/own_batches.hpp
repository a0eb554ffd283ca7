#pragma once
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include "comm/agree.hpp"
#include "comm/communicator.hpp"
#include "core/progress.hpp"

/// Sharing of an evaluation between ranks. The batches do not depend on the number of ranks, so
/// the results do not either.
namespace trireme::train {

/// Calls `call` with the sample numbers of each batch of this rank: batch i belongs to rank i
/// modulo the number of ranks. An error on one rank is thrown on all ranks.
template <class Call>
void for_own_batches(comm::Communicator& world, std::int64_t total, std::int64_t rows, Call call) {
  Progress progress("evaluate", static_cast<double>(total), Progress::Unit::items);
  comm::all_or_none(world, [&] {
    for (std::int64_t first = world.rank() * rows; first < total; first += world.size() * rows) {
      std::vector<std::int64_t> numbers(static_cast<std::size_t>(std::min(rows, total - first)));
      std::iota(numbers.begin(), numbers.end(), first);
      call(numbers);
      progress.add(static_cast<double>(
          std::min(total - first, static_cast<std::int64_t>(world.size()) * rows)));
    }
  });
}

/// Returns the values of all ranks, in rank order, on rank 0.
template <class T>
std::vector<T> gather(comm::Communicator& world, const std::vector<T>& mine) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::string bytes(mine.size() * sizeof(T), '\0');
  if (!mine.empty()) std::memcpy(bytes.data(), mine.data(), bytes.size());
  std::vector<T> all;
  for (const std::string& part : comm::gather_texts(world, bytes)) {
    const std::size_t first = all.size();
    all.resize(first + part.size() / sizeof(T));
    if (!part.empty()) std::memcpy(all.data() + first, part.data(), part.size());
  }
  return all;
}

}  // namespace trireme::train
