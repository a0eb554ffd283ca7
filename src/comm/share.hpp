#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

/// Distributes work that one rank could do alone, with the same result or error.
namespace trireme::comm {

/// Returns the owner of each item: from largest to smallest, each to the least loaded rank.
std::vector<int> owners_by_bytes(std::span<const std::uint64_t> bytes, int ranks);

/// Collective. Runs `work(i)` on the owner of item i (owners_by_bytes()) and returns the texts of
/// all items on every rank. A rank stops at its first error, and all ranks throw the error of the
/// lowest item. Errors of kind usage and data keep their message; others get "rank N: " before it.
std::vector<std::string> distribute_work(Communicator& world, std::span<const std::uint64_t> bytes,
                                         const std::function<std::string(std::size_t)>& work);

/// Collective. Runs `work` on rank 0 only; all ranks throw its error unchanged.
void on_first_rank(Communicator& world, const std::function<void()>& work);
/// Like on_first_rank(), and returns the text of `work` on every rank.
std::string text_of_first_rank(Communicator& world, const std::function<std::string()>& work);

}  // namespace trireme::comm
