#include "generate/logit_row.hpp"

#include <ATen/ATen.h>

#include <algorithm>
#include <cmath>

#include "core/error.hpp"

namespace trireme::generate {

void copy_row(const at::Tensor& logits, std::int64_t row, std::vector<double>& out) {
  const at::Tensor from = logits.select(0, row);
  const auto copy = [&](const auto* numbers) { out.assign(numbers, numbers + from.numel()); };
  if (from.scalar_type() == at::kDouble) {
    copy(from.const_data_ptr<double>());
  } else {
    copy(from.const_data_ptr<float>());
  }
}

void check_finite(std::span<const double> logits, std::int64_t num_tokens, const char* reason) {
  if (std::all_of(logits.begin(), logits.end(), [](double x) { return std::isfinite(x); })) return;
  fail(ErrorKind::numeric, "the model's logits are not finite after {} tokens: {}", num_tokens,
       reason);
}

std::vector<std::uint32_t> unused_ids(const text::Tokenizer& tokenizer, std::int64_t vocab_size) {
  std::vector<std::uint32_t> ids;
  for (std::uint32_t id = 0; id < vocab_size; ++id) {
    const bool is_gap = !tokenizer.is_ids_only() && tokenizer.token_bytes(id).empty();
    if (is_gap || id >= tokenizer.vocab_size()) ids.push_back(id);
  }
  return ids;
}

void apply_mask(TokenMask& mask, std::span<double> logits) {
  std::vector<std::uint64_t> bits((logits.size() + 63) / 64, 0);
  if (!mask.allow(bits, static_cast<std::int64_t>(logits.size()))) return;
  bool any = false;
  for (std::size_t id = 0; id < logits.size(); ++id) {
    const bool allowed = ((bits[id / 64] >> (id % 64)) & 1U) != 0;
    any = any || (allowed && std::isfinite(logits[id]));
    if (!allowed) logits[id] = -INFINITY;
  }
  if (!any) fail(ErrorKind::internal, "the token mask of a request allows no token");
}

}  // namespace trireme::generate
