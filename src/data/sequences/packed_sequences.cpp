#include <algorithm>
#include <map>
#include <numeric>

#include "core/error.hpp"
#include "data/sequences/pack_documents.hpp"
#include "data/sequences/sequences.hpp"

namespace trireme::data {
namespace {

/// The sequences of all shards, from the tables of a shard or from tables in memory.
class PackedSequences : public Sequences {
 public:
  PackedSequences(const TokenSet& set, std::int64_t seq_len) : set_(set), seq_len_(seq_len) {}

  void add_prepared(std::size_t shard) {
    parts_.push_back({shard, true, {}});
    first_.push_back(first_.back() + set_.manifest().shards[shard].packs.at(seq_len_));
  }

  void add_table(std::size_t shard, PackTable table) {
    first_.push_back(first_.back() + table.num_sequences());
    parts_.push_back({shard, false, std::move(table)});
    prepared_ = false;
  }

  [[nodiscard]] std::uint64_t size() const override { return first_.back(); }

  [[nodiscard]] bool prepared() const override { return prepared_; }

  [[nodiscard]] std::int64_t num_targets(std::uint64_t position) const override {
    const auto [part, sequence] = locate(position);
    return part.prepared ? set_.shard(part.shard).num_targets(seq_len_, sequence)
                         : part.table.targets[sequence];
  }

  [[nodiscard]] std::vector<Piece> pieces(std::uint64_t position) const override {
    const auto [part, sequence] = locate(position);
    std::vector<Piece> result;
    if (part.prepared) {
      for (const Segment& segment : set_.shard(part.shard).segments(seq_len_, sequence))
        result.push_back({part.shard, segment});
      return result;
    }
    const PackTable& table = part.table;
    for (std::uint64_t i = table.seq_ptr[sequence]; i < table.seq_ptr[sequence + 1]; ++i) {
      result.push_back({part.shard, {table.seg_doc[i], table.seg_begin[i], table.seg_len[i]}});
    }
    return result;
  }

 private:
  struct Part {
    std::size_t shard = 0;
    bool prepared = false;
    PackTable table;  // set if not prepared
  };

  struct Place {
    const Part& part;
    std::uint64_t sequence;
  };

  [[nodiscard]] Place locate(std::uint64_t position) const {
    TRIREME_ASSERT(position < size());
    const auto after = std::upper_bound(first_.begin(), first_.end(), position);
    const auto part = static_cast<std::size_t>(after - first_.begin()) - 1;
    return {parts_[part], position - first_[part]};
  }

  const TokenSet& set_;
  std::int64_t seq_len_;
  bool prepared_ = true;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> first_{0};  // [parts+1] first sequence of each part
};

/// Sorts the remaining parts of one shard by document and position and joins adjacent parts.
std::vector<Segment> join_neighbours(std::vector<Segment> pieces) {
  std::sort(pieces.begin(), pieces.end(), [](const Segment& a, const Segment& b) {
    return a.doc != b.doc ? a.doc < b.doc : a.begin < b.begin;
  });
  std::vector<Segment> joined;
  for (const Segment& piece : pieces) {
    if (!joined.empty() && joined.back().doc == piece.doc &&
        joined.back().begin + joined.back().length == piece.begin) {
      joined.back().length += piece.length;
    } else {
      joined.push_back(piece);
    }
  }
  return joined;
}

/// Packs parts as if each were a document, then maps the result back to their documents.
PackTable pack_pieces(const std::vector<Segment>& pieces, std::int64_t seq_len) {
  std::vector<std::uint64_t> offset{0};
  for (const Segment& piece : pieces) offset.push_back(offset.back() + piece.length);
  PackTable table = pack_documents(offset, seq_len);
  for (std::size_t i = 0; i < table.seg_doc.size(); ++i) {
    const Segment& piece = pieces[table.seg_doc[i]];
    table.seg_doc[i] = piece.doc;
    table.seg_begin[i] += piece.begin;
  }
  return table;
}

/// Packs documents [begin, end) of a shard of texts.
PackTable pack_texts(const TokenShard& shard, std::uint64_t begin, std::uint64_t end,
                     std::int64_t seq_len) {
  const std::vector<std::uint64_t> offsets = shard.document_offsets();
  PackTable table = pack_documents(std::span(offsets).subspan(begin, end - begin + 1), seq_len);
  for (std::uint32_t& doc : table.seg_doc) doc += static_cast<std::uint32_t>(begin);
  return table;
}

/// Packs conversations like `pack` does for this length: longer conversations lose their end, and
/// conversations without a remaining target are omitted.
PackTable pack_chats(const TokenShard& shard, const std::vector<std::uint32_t>& documents,
                     std::int64_t seq_len) {
  const std::vector<std::uint64_t> offsets = shard.document_offsets();
  const SpanTable targets = shard.target_spans();
  std::vector<Segment> kept;
  for (const std::uint32_t doc : documents) {
    const std::uint64_t length = offsets[doc + 1] - offsets[doc];
    const auto left =
        static_cast<std::uint32_t>(std::min(length, static_cast<std::uint64_t>(seq_len)));
    if (count_targets(targets.of(doc), 0, left) > 0) kept.push_back({doc, 0, left});
  }
  PackTable table = pack_pieces(kept, seq_len);
  count_span_targets(targets, table);
  return table;
}

std::vector<std::uint32_t> documents_between(std::uint64_t begin, std::uint64_t end) {
  std::vector<std::uint32_t> documents(end - begin);
  std::iota(documents.begin(), documents.end(), static_cast<std::uint32_t>(begin));
  return documents;
}

/// Returns the documents of the remaining parts of one shard, in order.
std::vector<std::uint32_t> documents_of(const std::vector<Segment>& pieces) {
  std::vector<std::uint32_t> documents;
  for (const Segment& piece : pieces) documents.push_back(piece.doc);
  std::sort(documents.begin(), documents.end());
  return documents;
}

}  // namespace

std::unique_ptr<Sequences> packed_sequences(const TokenSet& set, std::int64_t seq_len,
                                            const DocumentRange& documents) {
  auto result = std::make_unique<PackedSequences>(set, seq_len);
  std::uint64_t first = 0;  // first document of the shard, counted over the set
  for (std::size_t i = 0; i < set.num_shards(); ++i) {
    const ShardEntry& shard = set.manifest().shards[i];
    const std::uint64_t count = shard.counts.documents;
    const std::uint64_t begin = std::clamp(documents.begin, first, first + count) - first;
    const std::uint64_t end = std::clamp(documents.end, first, first + count) - first;
    first += count;
    if (end - begin == count && shard.packs.contains(seq_len)) {
      result->add_prepared(i);
    } else if (begin < end) {
      const TokenShard& opened = set.shard(i);
      result->add_table(i, opened.has_spans()
                               ? pack_chats(opened, documents_between(begin, end), seq_len)
                               : pack_texts(opened, begin, end, seq_len));
    }
  }
  return result;
}

std::unique_ptr<Sequences> rest_of_sequences(const TokenSet& set, const Sequences& before,
                                             const std::function<bool(std::uint64_t)>& taken,
                                             std::int64_t seq_len) {
  std::map<std::size_t, std::vector<Segment>> left;  // key: shard
  for (std::uint64_t position = 0; position < before.size(); ++position) {
    if (taken(position)) continue;
    for (const Piece& piece : before.pieces(position)) left[piece.shard].push_back(piece.segment);
  }
  auto result = std::make_unique<PackedSequences>(set, seq_len);
  for (auto& [shard, pieces] : left) {
    const TokenShard& opened = set.shard(shard);
    result->add_table(shard, opened.has_spans()
                                 ? pack_chats(opened, documents_of(pieces), seq_len)
                                 : pack_pieces(join_neighbours(std::move(pieces)), seq_len));
  }
  return result;
}

}  // namespace trireme::data
