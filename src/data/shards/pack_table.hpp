#pragma once
#include <cstdint>
#include <vector>

namespace trireme {

/// The sequences of one shard at one length, as parts of documents.
///   seq_ptr    [N+1]  segments of sequence n are [seq_ptr[n], seq_ptr[n+1])
///   seg_doc    [S]    document in the shard
///   seg_begin  [S]    first token, from the start of its document
///   seg_len    [S]    number of tokens, 1..seq_len
///   targets    [N]    number of positions of the sequence with a target
struct PackTable {
  std::int64_t seq_len = 0;
  std::vector<std::uint64_t> seq_ptr{0};
  std::vector<std::uint32_t> seg_doc;
  std::vector<std::uint32_t> seg_begin;
  std::vector<std::uint32_t> seg_len;
  std::vector<std::uint32_t> targets;

  [[nodiscard]] std::uint64_t num_sequences() const noexcept { return targets.size(); }
};

}  // namespace trireme
