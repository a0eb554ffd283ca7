#include "comm/p2p/volume.hpp"

#include <algorithm>
#include <bit>

#include "core/error.hpp"

namespace trireme::comm {
namespace {

// If all messages of a rank together have at most this many bytes, the cost depends mainly on the
// number of messages.
constexpr std::uint64_t kRoundsBytes = 64 << 10;
// A message of this many bytes costs about as much as an empty one.
constexpr std::uint64_t kLatencyBytes = 4 << 10;

struct TreePlace {
  std::uint64_t subtree = 1;  // number of ranks, itself included
  std::uint64_t children = 0;
};

/// Returns the tree position of the rank `rank` positions after the root.
TreePlace tree_place(std::uint64_t size, std::uint64_t rank) {
  const std::uint64_t lowest_bit = rank & (~rank + 1);
  const std::uint64_t subtree = rank == 0 ? size : std::min(lowest_bit, size - rank);
  return {subtree, static_cast<std::uint64_t>(std::bit_width(subtree - 1))};
}

std::uint64_t all_reduce_bytes(std::uint64_t n, std::uint64_t rank, std::uint64_t bytes) {
  switch (all_reduce_form(static_cast<int>(n), bytes)) {
    case AllReduceForm::rounds:
      return (n - 1) * bytes;
    case AllReduceForm::tree: {
      const TreePlace place = tree_place(n, rank);
      return ((rank == 0 ? 0 : place.subtree) + place.children) * bytes;
    }
    case AllReduceForm::segmented:
      break;
  }
  const std::uint64_t part = (bytes / n + 63) / 64 * 64;
  const std::uint64_t begin = std::min(rank * part, bytes);
  const std::uint64_t end = rank + 1 == n ? bytes : std::min(begin + part, bytes);
  return bytes - (end - begin) + (n - 1) * (end - begin);
}

}  // namespace

AllReduceForm all_reduce_form(int size, std::uint64_t bytes) {
  if (bytes * static_cast<std::uint64_t>(size) <= kRoundsBytes) return AllReduceForm::rounds;
  return bytes <= kLatencyBytes ? AllReduceForm::tree : AllReduceForm::segmented;
}

bool gathers_in_rounds(int size, std::uint64_t part_bytes) {
  // With up to 3 ranks, rounds need as many messages as a flat exchange.
  return size > 3 && part_bytes <= kLatencyBytes;
}

bool uses_shared_memory(std::uint64_t part_bytes) {
  return part_bytes > kLatencyBytes;
}

std::uint64_t sent_bytes(std::string_view operation, int size, int rank, std::uint64_t payload,
                         int root, bool shared) {
  const auto n = static_cast<std::uint64_t>(size);
  if (n == 1 || operation == "barrier") return 0;
  if (operation == "all_reduce")
    return all_reduce_bytes(n, static_cast<std::uint64_t>(rank), payload);
  if (operation == "reduce_scatter") return payload - payload / n;
  if (operation == "all_gather") return (n - 1) * payload;
  if (operation == "broadcast") {
    if (shared && uses_shared_memory(payload)) return rank == root ? (n - 1) * payload : 0;
    const auto after_root = static_cast<std::uint64_t>((rank + size - root) % size);
    return tree_place(n, after_root).children * payload;
  }
  fail(ErrorKind::internal, "no formula for the bytes of '{}'", operation);
}

std::uint64_t sent_bytes(int rank, std::span<const std::uint64_t> part_bytes) {
  std::uint64_t bytes = 0;
  for (std::size_t peer = 0; peer < part_bytes.size(); ++peer)
    bytes += static_cast<int>(peer) == rank ? 0 : part_bytes[peer];
  return bytes;
}

}  // namespace trireme::comm
