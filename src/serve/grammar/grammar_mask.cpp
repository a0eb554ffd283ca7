#include "serve/grammar/grammar_mask.hpp"

#include <algorithm>

#include "core/error.hpp"
#include "text/added_tokens.hpp"

namespace trireme::serve {
namespace {

/// Limits of the cache. When one of them is exceeded, the cache is cleared. A state takes about 1.1
/// KiB.
constexpr std::size_t kMaxStates = 20'000;
constexpr std::size_t kMaxKnownBytes = std::size_t{16} << 20;

constexpr std::string_view kSpaces = " \n\r\t";

void set_bit(std::span<std::uint64_t> words, std::uint32_t id) {
  if (id / 64 < words.size()) words[id / 64] |= std::uint64_t{1} << id % 64;
}

}  // namespace

SortedTokens::SortedTokens(const text::Tokenizer& tokenizer,
                           std::span<const std::string_view> markers, std::int64_t vocab_size)
    : tokenizer_(tokenizer) {
  const auto size = static_cast<std::uint32_t>(
      std::min<std::int64_t>(vocab_size, std::int64_t{tokenizer.vocab_size()}));
  std::vector<bool> is_left_out(size, false);
  for (const text::AddedToken& token : tokenizer_.added_tokens()) {
    const bool is_marker =
        std::find(markers.begin(), markers.end(), token.content) != markers.end();
    if (token.id < size) is_left_out[token.id] = !is_marker;
  }
  for (std::uint32_t id = 0; id < size; ++id) {
    const std::string_view bytes = tokenizer_.token_bytes(id);
    if (!bytes.empty() && !is_left_out[id]) rows_.push_back({bytes, id, 0});
  }
  std::sort(rows_.begin(), rows_.end(), [](const Row& a, const Row& b) {
    return a.bytes != b.bytes ? a.bytes < b.bytes : a.id < b.id;
  });
  for (std::size_t i = 1; i < rows_.size(); ++i) {
    const std::string_view before = rows_[i - 1].bytes;
    const std::string_view here = rows_[i].bytes;
    const auto same = std::mismatch(before.begin(), before.end(), here.begin(), here.end()).first;
    rows_[i].shared = static_cast<std::uint32_t>(same - before.begin());
  }
}

GrammarMask::GrammarMask(TextGrammar grammar, std::shared_ptr<const SortedTokens> table,
                         std::vector<std::uint32_t> end_tokens, std::vector<FreeText> before)
    : reader_(std::move(grammar.grammar), grammar.start),
      table_(std::move(table)),
      end_tokens_(std::move(end_tokens)),
      before_(std::move(before)),
      state_(reader_.start()) {
  TRIREME_ASSERT(!end_tokens_.empty());
}

bool GrammarMask::allow(std::span<std::uint64_t> bits, std::int64_t) {
  if (!before_.empty()) {
    if (before_.front().may_end) return false;
    std::fill(bits.begin(), bits.end(), ~std::uint64_t{0});
    for (const std::uint32_t id : end_tokens_)
      if (id / 64 < bits.size()) bits[id / 64] &= ~(std::uint64_t{1} << id % 64);
    return true;
  }
  if (reader_.num_states() > kMaxStates) {
    known_.clear();
    state_ = reader_.forget_all_but(state_);
  }
  if (known_.size() * bits.size() * sizeof(bits[0]) > kMaxKnownBytes) known_.clear();
  auto found = known_.find(state_);
  if (found == known_.end()) found = known_.emplace(state_, words_of(state_, bits.size())).first;
  std::copy(found->second.begin(), found->second.end(), bits.begin());
  return true;
}

GrammarMask::Words GrammarMask::words_of(GrammarReader::State state, std::size_t size) {
  Words words(size, 0);
  bool any = false;
  std::vector<GrammarReader::State> path{state};  // state after each byte of the row
  const std::vector<SortedTokens::Row>& rows = table_->rows();
  for (std::size_t i = 0; i < rows.size();) {
    const std::string_view bytes = rows[i].bytes;
    path.resize(std::min<std::size_t>(path.size(), rows[i].shared + 1));
    while (path.size() <= bytes.size() && path.back() != GrammarReader::kDead)
      path.push_back(reader_.step(path.back(), static_cast<unsigned char>(bytes[path.size() - 1])));
    if (path.back() != GrammarReader::kDead) {
      set_bit(words, rows[i++].id);
      any = true;
      continue;
    }
    // length of the shortest prefix that the grammar does not allow
    const std::size_t dead = path.size() - 1;
    path.pop_back();
    for (++i; i < rows.size() && rows[i].shared >= dead;) ++i;
  }
  if (reader_.may_end(state) || !any) {
    for (const std::uint32_t id : end_tokens_) set_bit(words, id);
  }
  return words;
}

void GrammarMask::accept(std::uint32_t id) {
  if (std::find(end_tokens_.begin(), end_tokens_.end(), id) != end_tokens_.end()) return;
  const std::string_view bytes = table_->bytes_of(id);
  if (before_.empty()) return read(bytes);
  tail_ += bytes;
  while (!before_.empty()) {
    std::string& begin = before_.front().begin;
    if (!begin.empty()) {
      const std::size_t spaces = std::min(tail_.find_first_not_of(kSpaces), tail_.size());
      const std::string_view text = std::string_view(tail_).substr(spaces);
      if (begin.starts_with(text)) return;  // the next token decides
      const bool exists = text.starts_with(begin);
      begin.clear();
      if (!exists) before_.erase(before_.begin());
      continue;
    }
    const std::string& until = before_.front().until;
    const std::size_t at = tail_.find(until);
    if (at == std::string::npos) {
      if (tail_.size() >= until.size()) tail_.erase(0, tail_.size() - until.size() + 1);
      return;
    }
    tail_.erase(0, at + until.size());
    before_.erase(before_.begin());
  }
  read(tail_);
  if (state_ == GrammarReader::kDead)
    // after `until`, the token contained text that the grammar does not allow
    state_ = reader_.start();
}

void GrammarMask::read(std::string_view bytes) {
  for (const char c : bytes) state_ = reader_.step(state_, static_cast<unsigned char>(c));
}

}  // namespace trireme::serve
