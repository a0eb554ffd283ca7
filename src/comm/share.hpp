#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

/// Distributes work over ranks. The result or error is the same as if one rank did all the work.
namespace trireme::comm {

/// Returns the owner rank of each item. Items are assigned from the largest to the smallest, each
/// to the rank with the fewest bytes so far.
std::vector<int> owners_by_bytes(std::span<const std::uint64_t> bytes, int ranks);

/// Collective. Runs `work(i)` on the owner of item i (owners_by_bytes()) and returns the texts of
/// all items on every rank. A rank stops at its first error, and all ranks throw the error of the
/// item with the lowest index. Errors of kind usage and data keep their message; messages of other
/// kinds begin with "rank N: ".
std::vector<std::string> distribute_work(Communicator& world, std::span<const std::uint64_t> bytes,
                                         const std::function<std::string(std::size_t)>& work);

/// Collective. Runs `work` on rank 0 only; all ranks throw its error unchanged.
void on_first_rank(Communicator& world, const std::function<void()>& work);
/// Collective. Runs `work` on rank 0, and then on the other ranks if rank 0 has no error. All ranks
/// throw the error of rank 0 unchanged, or that of the lowest rank with one, with "rank N: " before
/// its message.
void on_first_rank_then_others(Communicator& world, const std::function<void()>& work);
/// Like on_first_rank(), but returns the text that `work` returned on rank 0, on every rank.
std::string text_of_first_rank(Communicator& world, const std::function<std::string()>& work);

}  // namespace trireme::comm
