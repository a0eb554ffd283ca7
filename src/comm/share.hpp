#pragma once
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "comm/communicator.hpp"

/// Work that one rank could do alone, shared over several: what comes out, text or error, is what
/// the one would have had.
namespace trireme {

/// Which of `ranks` does each piece: the largest first, each by the rank that has least so far.
std::vector<int> owners_by_bytes(std::span<const std::uint64_t> bytes, int ranks);

/// Collective. `work(i)` on the owner of piece i (owners_by_bytes); the texts of all pieces, on
/// every rank. A rank stops at its first error; the one of the lowest piece is thrown on all. Usage
/// and data keep their message, trouble with a machine is led by "rank N: ".
std::vector<std::string> share_work(Communicator& world, std::span<const std::uint64_t> bytes,
                                    const std::function<std::string(std::size_t)>& work);

/// Collective. `work` on rank 0 alone; its error, as it is, on every rank.
void on_first_rank(Communicator& world, const std::function<void()>& work);
/// The same for a text, which every rank gets.
std::string text_of_first_rank(Communicator& world, const std::function<std::string()>& work);

}  // namespace trireme
