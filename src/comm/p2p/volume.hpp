#pragma once
#include <cstdint>
#include <span>
#include <string_view>

/// Chooses the algorithm of each collective and computes its bytes by formula. Transport::send
/// counts the bytes that are actually sent, independently of these formulas. Tests compare both.
namespace trireme::comm {

enum class AllReduceForm { rounds, tree, segmented };

/// Returns `rounds` if all buffers together have few bytes, `tree` if each rank has few bytes but
/// there are many ranks, and `segmented` otherwise.
AllReduceForm all_reduce_form(int size, std::uint64_t bytes);

/// Returns true if an all-gather of parts of this size uses rounds. The number of sent bytes is the
/// same with and without rounds.
bool gathers_in_rounds(int size, std::uint64_t part_bytes);

/// Returns true if a group that shares memory uses it for parts of this size (for all_reduce, see
/// all_reduce_form). Smaller parts need fewer steps as messages.
bool uses_shared_memory(std::uint64_t part_bytes);

/// Returns the bytes that rank `rank` of `size` sends in one call with `payload` bytes (of
/// TrafficRow), where n = size and b = payload:
///   all_reduce      rounds: (n-1) b; tree: the buffers of its subtree up, b to each child;
///                   segmented: b + (n-2) p, p = this rank's part: b / n up to the next 64 bytes
///   reduce_scatter  (n-1) b / n
///   all_gather      (n-1) b
///   broadcast       b to each child in the binomial tree of `root`; with `shared` (see
///                   Communicator::shares_memory) and many bytes: (n-1) b from the root
///   barrier         0
/// Throws Error(internal) for another operation.
std::uint64_t sent_bytes(std::string_view operation, int size, int rank, std::uint64_t payload,
                         int root = 0, bool shared = false);

/// Returns the bytes that rank `rank` sends in an all_to_all; part p goes to rank p.
std::uint64_t sent_bytes(int rank, std::span<const std::uint64_t> part_bytes);

}  // namespace trireme::comm
