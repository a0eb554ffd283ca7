#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace trireme {

/// Who uses which blocks of a key-value cache, and which tokens lie in them: a text that begins as
/// another takes its blocks.
///
/// A full block may be published: its tokens behind a chain, which stands for all tokens before it.
/// Equal chains and tokens are the same keys and values. Published blocks that nobody uses stay until
/// their place is needed, the one longest unused first.
class KvBlocks {
 public:
  static constexpr std::int64_t kTokens = 16;  // of a block
  using Block = std::int32_t;
  using Tokens = std::span<const std::uint32_t, static_cast<std::size_t>(kTokens)>;
  /// All tokens up to the end of a full block.
  using Chain = std::uint64_t;
  static constexpr Chain kStart = 0;  // no tokens

  explicit KvBlocks(std::int64_t total);

  [[nodiscard]] static std::int64_t needed(std::int64_t tokens) {
    return (tokens + kTokens - 1) / kTokens;
  }

  /// A block for one user; none if all are in use.
  std::optional<Block> take();

  /// One user less.
  void give_back(Block block);

  struct Found {
    Block block = 0;
    Chain chain = kStart;  // up to its end
  };

  /// The block that has been published with `tokens` behind `chain`, with one user more.
  std::optional<Found> share(Chain chain, Tokens tokens);

  /// `block`, which its user has filled or fills in this step with `tokens` behind `chain`, may be
  /// shared from here on, unless another holds the same. Returns the chain up to its end.
  Chain publish(Block block, Chain chain, Tokens tokens);

  /// Nothing that was published is shared any more: its content is not what was said.
  void forget_published();

  [[nodiscard]] std::int64_t total() const { return static_cast<std::int64_t>(users_.size()); }

  /// That can be taken.
  [[nodiscard]] std::int64_t available() const {
    return static_cast<std::int64_t>(empty_.size() + unused_.size());
  }

  /// Blocks [0, reached) have been taken at some time; the first ones are taken first.
  [[nodiscard]] std::int64_t reached() const { return reached_; }

  [[nodiscard]] std::int64_t used() const { return total() - available(); }

 private:
  struct Key {
    Chain chain = kStart;
    std::array<std::uint32_t, static_cast<std::size_t>(kTokens)> tokens{};

    bool operator==(const Key&) const = default;
  };

  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  static Key key_of(Chain chain, Tokens tokens);
  void unpublish(Block block);

  std::vector<std::int32_t> users_;                // of each block
  std::vector<Block> empty_;                       // neither used nor published; the next one last
  std::list<Block> unused_;                        // published, the longest unused first
  std::vector<std::list<Block>::iterator> place_;  // in unused_, where it is there
  std::vector<std::optional<Key>> key_;            // of published blocks
  std::unordered_map<Key, Found, KeyHash> published_;
  Chain last_chain_ = kStart;
  std::int64_t reached_ = 0;
};

}  // namespace trireme
