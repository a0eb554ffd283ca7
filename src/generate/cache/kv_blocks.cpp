#include "generate/cache/kv_blocks.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"

namespace trireme::generate {

KvBlocks::KvBlocks(std::int64_t total)
    : users_(static_cast<std::size_t>(total), 0),
      unused_at_(users_.size(), unused_.end()),
      key_(users_.size()) {
  // Take low block numbers first. The memory of blocks that were never written is not resident, so
  // unused high blocks cost no memory.
  for (std::int64_t block = total; block-- > 0;) empty_.push_back(static_cast<Block>(block));
}

std::size_t KvBlocks::KeyHash::operator()(const Key& key) const noexcept {
  return xxh3_64(std::as_bytes(std::span(&key, 1)));
}

KvBlocks::Key KvBlocks::key_of(PrefixId chain, Tokens tokens) {
  Key key{chain, {}};
  std::copy(tokens.begin(), tokens.end(), key.tokens.begin());
  return key;
}

std::optional<KvBlocks::Block> KvBlocks::take() {
  Block block = 0;
  if (!empty_.empty()) {
    block = empty_.back();
    empty_.pop_back();
  } else if (!unused_.empty()) {
    block = unused_.front();
    unused_.pop_front();
    unpublish(block);
  } else {
    return std::nullopt;
  }
  users_[static_cast<std::size_t>(block)] = 1;
  reached_ = std::max<std::int64_t>(reached_, block + 1);
  return block;
}

void KvBlocks::give_back(Block block) {
  const auto i = static_cast<std::size_t>(block);
  TRIREME_ASSERT(users_[i] > 0);
  if (--users_[i] > 0) return;
  if (key_[i]) {
    unused_at_[i] = unused_.insert(unused_.end(), block);
  } else {
    empty_.push_back(block);
  }
}

std::optional<KvBlocks::Found> KvBlocks::share(PrefixId chain, Tokens tokens) {
  const auto found = published_.find(key_of(chain, tokens));
  if (found == published_.end()) return std::nullopt;
  const auto i = static_cast<std::size_t>(found->second.block);
  if (users_[i]++ == 0) unused_.erase(unused_at_[i]);
  return found->second;
}

KvBlocks::PrefixId KvBlocks::publish(Block block, PrefixId chain, Tokens tokens) {
  const Key key = key_of(chain, tokens);
  const auto [entry, is_new] = published_.try_emplace(key, Found{block, last_prefix_id_ + 1});
  if (is_new) {
    ++last_prefix_id_;
    key_[static_cast<std::size_t>(block)] = key;
  }
  return entry->second.chain;
}

void KvBlocks::unpublish(Block block) {
  auto& key = key_[static_cast<std::size_t>(block)];
  published_.erase(*key);
  key.reset();
}

void KvBlocks::withdraw_published() {
  for (const Block block : unused_) empty_.push_back(block);
  unused_.clear();
  published_.clear();
  std::fill(key_.begin(), key_.end(), std::nullopt);
}

}  // namespace trireme::generate
