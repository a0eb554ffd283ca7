#pragma once
#include <cstdint>
#include <span>
#include <string_view>

/// How the collectives of this room are carried out, and what that comes to in bytes, by formula.
/// What was really sent is counted in Transport::send, which knows none of this: traffic() is
/// compared with it.
namespace trireme {

enum class AllReduceForm { rounds, tree, segmented };

/// rounds: few bytes; tree: few bytes a rank, many ranks; segmented: the rest.
AllReduceForm all_reduce_form(int size, std::uint64_t bytes);

/// Whether an all-gather of such parts goes in rounds; the bytes are the same.
bool gathers_in_rounds(int size, std::uint64_t part_bytes);

/// Bytes that rank `rank` of `size` sends in one call of `payload` bytes (TrafficRow's), n = size,
/// b = payload:
///   all_reduce      rounds: (n-1) b; tree: the blocks of its subtree up, b to each child;
///                   segmented: b + (n-2) p, p = this rank's part: b / n up to the next 64 bytes
///   reduce_scatter  (n-1) b / n
///   all_gather      (n-1) b
///   broadcast       b to each child in the binomial tree of `root`
///   barrier         0
/// Throws Error(internal) for another operation.
std::uint64_t sent_bytes(std::string_view operation, int size, int rank, std::uint64_t payload,
                         int root = 0);

/// The same for all_to_all: part p goes to rank p.
std::uint64_t sent_bytes(int rank, std::span<const std::uint64_t> part_bytes);

}  // namespace trireme
