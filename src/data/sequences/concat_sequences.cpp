#include <algorithm>

#include "data/sequences/sequences.hpp"

namespace trireme::data {
namespace {

/// Returns the first token of document `document`, counted over the tokens of the set.
std::uint64_t token_of_document(const TokenSet& set, std::uint64_t document) {
  std::uint64_t tokens = 0;
  for (std::size_t i = 0; i < set.num_shards(); ++i) {
    const ShardCounts& counts = set.manifest().shards[i].counts;
    if (document < counts.documents) return tokens + set.shard(i).document_begin(document);
    document -= counts.documents;
    tokens += counts.tokens;
  }
  return tokens;
}

/// Returns the document that contains token `token` of a shard.
std::uint64_t document_at(const TokenShard& shard, std::uint64_t token) {
  std::uint64_t low = 0;  // this document starts at or before token
  std::uint64_t high = shard.num_documents();
  while (high - low > 1) {
    const std::uint64_t middle = low + (high - low) / 2;
    (shard.document_begin(middle) <= token ? low : high) = middle;
  }
  return low;
}

}  // namespace

ConcatSequences::ConcatSequences(const TokenSet& set, std::int64_t seq_len,
                                 const DocumentRange& documents)
    : set_(set),
      seq_len_(static_cast<std::uint64_t>(seq_len)),
      begin_(token_of_document(set, documents.begin)),
      end_(token_of_document(set, documents.end)) {
  for (const ShardEntry& shard : set.manifest().shards)
    first_token_.push_back(first_token_.back() + shard.counts.tokens);
}

std::uint64_t ConcatSequences::size() const {
  return (end_ - begin_ + seq_len_ - 1) / seq_len_;
}

std::vector<TokenRun> ConcatSequences::runs(std::uint64_t position) const {
  std::uint64_t at = begin_ + position * seq_len_;
  const std::uint64_t end = std::min(at + seq_len_ + 1, end_);
  std::vector<TokenRun> runs;
  while (at < end) {
    const auto after = std::upper_bound(first_token_.begin(), first_token_.end(), at);
    const auto shard = static_cast<std::size_t>(after - first_token_.begin()) - 1;
    const std::uint64_t length = std::min(end, *after) - at;
    runs.push_back({shard, at - first_token_[shard], length});
    at += length;
  }
  return runs;
}

std::vector<Piece> ConcatSequences::pieces(std::uint64_t position) const {
  std::vector<Piece> pieces;
  std::uint64_t room = seq_len_;
  for (const TokenRun& run : runs(position)) {
    const TokenShard& shard = set_.shard(run.shard);
    std::uint64_t at = run.begin;
    const std::uint64_t end = run.begin + std::min(run.length, room);
    room -= end - at;
    if (at == end) break;
    std::uint64_t doc = document_at(shard, at);
    std::uint64_t doc_begin = shard.document_begin(doc);
    while (at < end) {
      const std::uint64_t doc_end =
          doc + 1 < shard.num_documents() ? shard.document_begin(doc + 1) : shard.num_tokens();
      const std::uint64_t stop = std::min(end, doc_end);
      if (stop > at) {  // skip empty documents
        pieces.push_back(
            {run.shard,
             {static_cast<std::uint32_t>(doc), static_cast<std::uint32_t>(at - doc_begin),
              static_cast<std::uint32_t>(stop - at)}});
      }
      at = stop;
      doc_begin = doc_end;
      ++doc;
    }
  }
  return pieces;
}

std::int64_t ConcatSequences::num_targets(std::uint64_t position) const {
  std::int64_t targets = 0;
  for (const Piece& piece : pieces(position)) targets += std::int64_t{piece.segment.length} - 1;
  return targets;
}

}  // namespace trireme::data
