#include "data/order/blend.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <mutex>
#include <numeric>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::data {
namespace {

constexpr std::uint64_t kTable = 65536;
constexpr std::size_t kMaxSources = 4096;

/// Returns the sum of doubles, added in the order of NumPy. Up to 128 terms are added with eight
/// running sums. More terms are split into two halves at a multiple of 8. Source of the rule:
/// numpy/_core/src/umath/loops_utils.h.src, pairwise_sum.
double pairwise_sum(std::span<const double> terms) {
  const std::size_t n = terms.size();
  if (n < 8) return std::accumulate(terms.begin(), terms.end(), 0.0);
  if (n <= 128) {
    std::array<double, 8> sums{};
    std::copy_n(terms.begin(), 8, sums.begin());
    std::size_t i = 8;
    for (; i + 8 <= n; i += 8) {
      for (std::size_t j = 0; j < 8; ++j) sums[j] += terms[i + j];
    }
    const double whole =
        ((sums[0] + sums[1]) + (sums[2] + sums[3])) + ((sums[4] + sums[5]) + (sums[6] + sums[7]));
    return std::accumulate(terms.begin() + static_cast<long>(i), terms.end(), whole);
  }
  const std::size_t half = n / 2 - n / 2 % 8;
  return pairwise_sum(terms.first(half)) + pairwise_sum(terms.subspan(half));
}

/// Applies the greedy rule sample by sample. This file is compiled without fused multiply-add,
/// because Megatron-LM rounds the product before the subtraction.
class Greedy {
 public:
  explicit Greedy(std::vector<double> weights)
      : weights_(std::move(weights)), counts_(weights_.size(), 0) {}

  std::uint32_t next() {
    const double at = std::max(static_cast<double>(index_), 1.0);
    std::size_t best = 0;
    double best_error = weights_[0] * at - static_cast<double>(counts_[0]);
    for (std::size_t s = 1; s < weights_.size(); ++s) {
      const double error = weights_[s] * at - static_cast<double>(counts_[s]);
      if (error > best_error) {
        best_error = error;
        best = s;
      }
    }
    ++counts_[best];
    ++index_;
    return static_cast<std::uint32_t>(best);
  }

  [[nodiscard]] const std::vector<std::uint64_t>& counts() const noexcept { return counts_; }

  void go_to(std::uint64_t index, std::vector<std::uint64_t> counts) {
    index_ = index;
    counts_ = std::move(counts);
  }

 private:
  std::vector<double> weights_;
  std::vector<std::uint64_t> counts_;
  std::uint64_t index_ = 0;
};

/// Converts weights to integer shares with the sum kTable. The weights with the largest remainders
/// are rounded up.
std::vector<std::uint64_t> quantize(const std::vector<double>& weights) {
  std::vector<std::uint64_t> shares;
  std::vector<double> remainder;
  std::uint64_t sum = 0;
  for (const double weight : weights) {
    const double exact = weight * static_cast<double>(kTable);
    shares.push_back(static_cast<std::uint64_t>(exact));
    remainder.push_back(exact - std::floor(exact));
    sum += shares.back();
  }
  std::vector<std::size_t> by_remainder(weights.size());
  std::iota(by_remainder.begin(), by_remainder.end(), 0);
  std::stable_sort(by_remainder.begin(), by_remainder.end(),
                   [&](std::size_t a, std::size_t b) { return remainder[a] > remainder[b]; });
  for (std::size_t i = 0; sum < kTable; ++i, ++sum) ++shares[by_remainder[i % shares.size()]];
  for (std::size_t s = 0; s < shares.size(); ++s) {
    if (shares[s] == 0) {
      fail(
          ErrorKind::usage,
          "source {} of the blend has weight {}, less than 1 / 65536 of the sum: omit it, or set data.blend_rule = megatron",
          s + 1, number_text(weights[s]));
    }
  }
  return shares;
}

class TableBlend : public Blend {
 public:
  explicit TableBlend(const std::vector<double>& weights) : shares_(quantize(weights)) {
    std::vector<double> exact;  // multiples of 1/65536: the rule is exact in doubles
    for (const std::uint64_t share : shares_)
      exact.push_back(static_cast<double>(share) / static_cast<double>(kTable));
    Greedy greedy(exact);
    for (std::uint64_t i = 0; i < kTable; ++i) {
      source_.push_back(static_cast<std::uint16_t>(greedy.next()));
      before_.push_back(static_cast<std::uint32_t>(greedy.counts()[source_.back()] - 1));
    }
    // The rule never selects a source that already has its share, so the final counts equal the
    // shares.
    TRIREME_ASSERT(greedy.counts() == shares_);
  }

  [[nodiscard]] BlendPick pick(std::uint64_t index) const override {
    const std::uint64_t at = index % kTable;
    const std::uint32_t source = source_[at];
    return {source, index / kTable * shares_[source] + before_[at]};
  }

  [[nodiscard]] std::vector<std::uint64_t> counts(std::uint64_t index) const override {
    std::vector<std::uint64_t> counts(shares_);
    for (std::uint64_t& count : counts) count *= index / kTable;
    for (std::uint64_t i = 0; i < index % kTable; ++i) ++counts[source_[i]];
    return counts;
  }

 private:
  std::vector<std::uint64_t> shares_;
  std::vector<std::uint16_t> source_;  // [kTable]
  std::vector<std::uint32_t> before_;  // [kTable] number of earlier entries of the same source
};

class MegatronBlend : public Blend {
 public:
  explicit MegatronBlend(std::vector<double> weights)
      : greedy_(std::move(weights)), anchors_{greedy_.counts()} {}

  [[nodiscard]] BlendPick pick(std::uint64_t index) const override {
    const std::lock_guard lock(mutex_);
    load(index / kTable);
    return window_[index % kTable];
  }

  [[nodiscard]] std::vector<std::uint64_t> counts(std::uint64_t index) const override {
    const std::lock_guard lock(mutex_);
    load(index / kTable);
    std::vector<std::uint64_t> counts = anchors_[index / kTable];
    for (std::uint64_t i = 0; i < index % kTable; ++i) ++counts[window_[i].source];
    return counts;
  }

 private:
  /// Computes window_ for samples [number * kTable, (number + 1) * kTable).
  void load(std::uint64_t number) const {
    if (number == number_ && !window_.empty()) return;
    const std::uint64_t known = std::min<std::uint64_t>(number, anchors_.size() - 1);
    greedy_.go_to(known * kTable, anchors_[known]);
    window_.resize(kTable);
    for (number_ = known;; ++number_) {
      for (BlendPick& pick : window_) {
        pick.source = greedy_.next();
        pick.ordinal = greedy_.counts()[pick.source] - 1;
      }
      if (number_ + 1 == anchors_.size()) anchors_.push_back(greedy_.counts());
      if (number_ == number) return;
    }
  }

  mutable std::mutex mutex_;
  mutable Greedy greedy_;
  mutable std::vector<std::vector<std::uint64_t>> anchors_;  // counts before each known window
  mutable std::vector<BlendPick> window_;
  mutable std::uint64_t number_ = 0;  // number of the current window
};

}  // namespace

BlendRule parse_blend_rule(std::string_view text, std::string_view name) {
  if (text == name_of(BlendRule::table)) return BlendRule::table;
  if (text == name_of(BlendRule::megatron)) return BlendRule::megatron;
  fail(ErrorKind::usage, "{} = {}, must be table or megatron", name, text);
}

std::string_view name_of(BlendRule rule) {
  return rule == BlendRule::table ? "table" : "megatron";
}

std::vector<double> normalize_weights(std::span<const double> weights) {
  const double sum = pairwise_sum(weights);
  std::vector<double> shares(weights.begin(), weights.end());
  for (double& share : shares) share /= sum;
  return shares;
}

std::unique_ptr<Blend> make_blend(std::span<const double> weights, BlendRule rule) {
  if (weights.empty() || weights.size() > kMaxSources)
    fail(ErrorKind::usage, "a blend of {} sources, must be 1 to {}", weights.size(), kMaxSources);
  for (const double weight : weights) {
    if (!(weight > 0) || !std::isfinite(weight))
      fail(ErrorKind::usage, "weight {} in a blend, must be greater than 0", number_text(weight));
  }
  const std::vector<double> shares = normalize_weights(weights);
  if (rule == BlendRule::megatron) return std::make_unique<MegatronBlend>(shares);
  return std::make_unique<TableBlend>(shares);
}

}  // namespace trireme::data
