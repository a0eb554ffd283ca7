#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <list>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace trireme::generate {

/// Allocates the blocks of a key-value cache and shares full blocks between sequences with the same
/// prefix.
///
/// A full block may be published under its tokens and the id of the prefix before the block. Equal
/// prefix ids and tokens mean equal keys and values. A published block without users stays
/// published until its memory is needed. The least recently used block is reused first.
class KvBlocks {
 public:
  static constexpr std::int64_t kTokens = 16;  // tokens per block
  using Block = std::int32_t;
  using Tokens = std::span<const std::uint32_t, static_cast<std::size_t>(kTokens)>;
  /// Identifies all tokens up to the end of a full block.
  using PrefixId = std::uint64_t;
  static constexpr PrefixId kStart = 0;  // the empty prefix

  explicit KvBlocks(std::int64_t total);

  [[nodiscard]] static std::int64_t needed(std::int64_t tokens) {
    return (tokens + kTokens - 1) / kTokens;
  }

  /// Allocates a block with one user. Returns nullopt if all blocks are in use.
  std::optional<Block> take();

  void give_back(Block block);

  struct Found {
    Block block = 0;
    PrefixId chain = kStart;  // the prefix up to the block's end
  };

  /// Finds the block that was published with `tokens` after the prefix `chain`, and adds one user
  /// to this block.
  std::optional<Found> share(PrefixId chain, Tokens tokens);

  /// Publishes a block that its user has filled, or fills in this step, with `tokens` after the
  /// prefix `chain`. If another block with the same content is already published, `block` is not
  /// published. Returns the id of the prefix up to the block's end.
  PrefixId publish(Block block, PrefixId chain, Tokens tokens);

  /// Withdraws all published blocks, because their content is not valid.
  void withdraw_published();

  [[nodiscard]] std::int64_t total() const { return static_cast<std::int64_t>(users_.size()); }

  /// Returns the number of blocks that can be taken.
  [[nodiscard]] std::int64_t available() const {
    return static_cast<std::int64_t>(empty_.size() + unused_.size());
  }

  /// Returns the number of blocks that were used at least once. These are the blocks [0,
  /// reached()), because take() prefers low block numbers.
  [[nodiscard]] std::int64_t reached() const { return reached_; }

  [[nodiscard]] std::int64_t used() const { return total() - available(); }

 private:
  struct Key {
    PrefixId chain = kStart;
    std::array<std::uint32_t, static_cast<std::size_t>(kTokens)> tokens{};

    bool operator==(const Key&) const = default;
  };

  struct KeyHash {
    std::size_t operator()(const Key& key) const noexcept;
  };

  static Key key_of(PrefixId chain, Tokens tokens);
  void unpublish(Block block);

  std::vector<std::int32_t> users_;  // number of users of each block
  std::vector<Block> empty_;         // neither used nor published; the last element is taken next
  std::list<Block> unused_;          // published without users; least recently used first
  // position in unused_; valid only for blocks in unused_
  std::vector<std::list<Block>::iterator> unused_at_;
  std::vector<std::optional<Key>> key_;  // key of each published block
  std::unordered_map<Key, Found, KeyHash> published_;
  PrefixId last_prefix_id_ = kStart;
  std::int64_t reached_ = 0;
};

}  // namespace trireme::generate
