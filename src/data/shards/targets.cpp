#include "data/shards/targets.hpp"

#include <algorithm>

namespace trireme::data {
namespace {

/// Returns the part of `span` in (begin, end): the first token of a part is never a target.
Span clip(const Span& span, std::uint32_t begin, std::uint32_t end) {
  const std::uint32_t from = std::max(span.begin, begin + 1);
  return {from, std::max(from, std::min(span.end, end))};
}

/// Returns the number of prompt tokens that a rule always keeps.
std::uint64_t least_prompt(std::uint64_t prompt, std::uint64_t seq_len, PairCutRule rule) {
  switch (rule) {
    case PairCutRule::prompt:
      return std::min(prompt, (seq_len + 3) / 4);
    case PairCutRule::prompt_to_last_token:
      return std::min<std::uint64_t>(prompt, 1);
    case PairCutRule::end:
    case PairCutRule::drop:
      break;
  }
  return prompt;
}

}  // namespace

void SpanTable::add(std::span<const Span> of_document) {
  spans.insert(spans.end(), of_document.begin(), of_document.end());
  ptr.push_back(spans.size());
}

void SpanTable::append(const SpanTable& other) {
  const std::uint64_t base = spans.size();
  spans.insert(spans.end(), other.spans.begin(), other.spans.end());
  for (std::size_t i = 1; i < other.ptr.size(); ++i) ptr.push_back(base + other.ptr[i]);
}

void TextTable::add(std::string_view of_document) {
  bytes += of_document;
  ptr.push_back(bytes.size());
}

void TextTable::append(const TextTable& other) {
  const std::uint64_t before = bytes.size();
  bytes += other.bytes;
  for (std::size_t i = 1; i < other.ptr.size(); ++i) ptr.push_back(before + other.ptr[i]);
}

std::uint64_t SpanTable::num_tokens() const noexcept {
  std::uint64_t sum = 0;
  for (const Span& span : spans) sum += span.end - span.begin;
  return sum;
}

void PairTable::append(const PairTable& other) {
  prompt_len.insert(prompt_len.end(), other.prompt_len.begin(), other.prompt_len.end());
  chosen_len.insert(chosen_len.end(), other.chosen_len.begin(), other.chosen_len.end());
  rejected_len.insert(rejected_len.end(), other.rejected_len.begin(), other.rejected_len.end());
  chosen.append(other.chosen);
  rejected.append(other.rejected);
}

std::optional<PairCut> cut_pair(const PairLengths& lengths, std::uint64_t seq_len,
                                PairCutRule rule) {
  const std::uint64_t longer = std::max(lengths.chosen, lengths.rejected);
  const std::uint64_t excess = longer > seq_len ? longer - seq_len : 0;
  if (excess > 0 && rule == PairCutRule::drop) return std::nullopt;
  const std::uint64_t kept_prompt = least_prompt(lengths.prompt, seq_len, rule);
  const std::uint64_t begin = std::min(excess, lengths.prompt - kept_prompt);
  return PairCut{begin, std::min(lengths.chosen, begin + seq_len),
                 std::min(lengths.rejected, begin + seq_len)};
}

bool keeps_targets(const PairLengths& lengths, const PairCut& cut, std::span<const Span> chosen,
                   std::span<const Span> rejected, PairCutRule rule) {
  const auto side_keeps = [&](std::span<const Span> spans, std::uint64_t whole, std::uint64_t end) {
    const bool needs_answer = end < whole && rule != PairCutRule::prompt_to_last_token;
    const std::uint64_t begin = needs_answer ? before_answer(lengths.prompt) : cut.begin;
    return begin < end && count_targets(spans, static_cast<std::uint32_t>(begin),
                                        static_cast<std::uint32_t>(end - begin)) > 0;
  };
  return side_keeps(chosen, lengths.chosen, cut.chosen_end) &&
         side_keeps(rejected, lengths.rejected, cut.rejected_end);
}

std::uint32_t count_targets(std::span<const Span> spans, std::uint32_t begin,
                            std::uint32_t length) {
  std::uint32_t count = 0;
  for (const Span& span : spans) {
    const Span inside = clip(span, begin, begin + length);
    count += inside.end - inside.begin;
  }
  return count;
}

void count_span_targets(const SpanTable& table, PackTable& pack) {
  for (std::size_t n = 0; n < pack.targets.size(); ++n) {
    pack.targets[n] = 0;
    for (std::uint64_t i = pack.seq_ptr[n]; i < pack.seq_ptr[n + 1]; ++i)
      pack.targets[n] +=
          count_targets(table.of(pack.seg_doc[i]), pack.seg_begin[i], pack.seg_len[i]);
  }
}

std::int64_t fill_targets(std::span<const Span> spans, std::uint32_t begin,
                          std::span<const std::int64_t> ids, std::span<std::int64_t> targets) {
  std::int64_t count = 0;
  for (const Span& span : spans) {
    const Span inside = clip(span, begin, begin + static_cast<std::uint32_t>(ids.size()));
    for (std::uint32_t at = inside.begin; at < inside.end; ++at)
      targets[at - begin - 1] = ids[at - begin];
    count += inside.end - inside.begin;
  }
  return count;
}

}  // namespace trireme::data
