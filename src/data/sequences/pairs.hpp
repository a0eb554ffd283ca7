#pragma once
#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "data/sequences/split.hpp"
#include "data/shards/token_set.hpp"

namespace trireme::data {

/// A preference pair after cut_pair.
struct CutPair {
  std::uint32_t begin = 0;       // number of tokens that both sides lost at their beginning
  std::uint32_t prompt_len = 0;  // remaining tokens of the prompt
  Pair::Side chosen;             // remaining ids; positions of targets refer to the uncut side
  Pair::Side rejected;

  /// For a document with one answer (SampleForm::answer): returns true if the answer is desirable,
  /// which means that the chosen side holds it.
  [[nodiscard]] bool is_desirable() const { return chosen.ids.size() > rejected.ids.size(); }

  /// Returns the side that holds the one answer.
  [[nodiscard]] const Pair::Side& answer() const { return is_desirable() ? chosen : rejected; }
};

/// The preference pairs of a set (or of a range of its documents) with sides of at most seq_len
/// tokens, in file order. The pairs are cut by the rule of the set. Pairs that `pack` at this
/// length would drop are omitted (keeps_targets). Thread-safe. Functions throw like TokenSet.
///   memory  4 bytes per pair if the length is below the packed length, else nothing
class Pairs {
 public:
  /// `set` must outlive this object.
  Pairs(const TokenSet& set, std::int64_t seq_len, const DocumentRange& documents);

  /// Keeps only the pairs of `before` that are not used yet (`taken` returns false for their
  /// position), and cuts them to another length.
  Pairs(const Pairs& before, const std::function<bool(std::uint64_t)>& taken, std::int64_t seq_len);

  [[nodiscard]] std::uint64_t size() const noexcept { return first_.back(); }

  /// Returns the number of targets on both sides of the pair at `position` in [0, size()). With
  /// `answers_only`, targets inside the prompt are not counted. Does not read tokens.
  [[nodiscard]] std::int64_t num_targets(std::uint64_t position, bool answers_only = false) const;

  /// Throws Error(data) for a side without tokens.
  [[nodiscard]] CutPair pair(std::uint64_t position) const;

  /// Returns the document that comes before the pair at `position` and has another prompt. It is the
  /// nearest such document of the whole data set, counted backwards from the pair and from the end
  /// of the set after its first document. Documents that keep no target are left out. If none of
  /// 64 documents has another prompt, returns the nearest one. Therefore the result depends only on
  /// the data set, the document and the length.
  [[nodiscard]] CutPair with_other_prompt(std::uint64_t position) const;

  /// Returns the document of the pair, counted over the shards of the set.
  [[nodiscard]] std::uint64_t document(std::uint64_t position) const;

 private:
  struct Part {
    std::size_t shard = 0;
    std::uint64_t begin = 0;                         // first document
    std::optional<std::vector<std::uint32_t>> kept;  // kept documents; nullopt: all from `begin` on
  };

  struct Place {
    std::size_t shard = 0;
    std::uint64_t document = 0;  // document in the shard
  };

  [[nodiscard]] std::vector<std::uint32_t> kept_documents(
      std::size_t shard, std::vector<std::uint32_t> documents) const;
  void add(std::size_t shard, std::uint64_t begin, std::uint64_t count);
  void add(std::size_t shard, std::vector<std::uint32_t> documents);
  [[nodiscard]] bool cuts() const;
  [[nodiscard]] Place locate(std::uint64_t position) const;
  [[nodiscard]] Pair read(const Place& place) const;
  /// Returns the pair after its cut; nullopt if the rule of the set drops it.
  [[nodiscard]] std::optional<CutPair> cut(Pair pair) const;
  /// Returns true if the document keeps targets at this length.
  [[nodiscard]] bool is_kept(const Place& place) const;

  const TokenSet& set_;
  PairCutRule rule_;
  std::uint64_t seq_len_;
  std::vector<Part> parts_;
  std::vector<std::uint64_t> first_{0};  // [parts+1] first pair of each part
};

}  // namespace trireme::data
