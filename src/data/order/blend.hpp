#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// The source of sample i of a blend, and the number of earlier samples from that source.
struct BlendPick {
  std::uint32_t source = 0;
  std::uint64_t ordinal = 0;
};

enum class BlendRule { table, megatron };

/// Parses "table" or "megatron". Throws Error(usage) that names the setting `name` for any other
/// text.
BlendRule parse_blend_rule(std::string_view text, std::string_view name);
std::string_view name_of(BlendRule rule);

/// A sequence of sources that contains each source according to its weight, spread as evenly as
/// possible. Thread-safe.
///
/// The greedy rule of Megatron: sample i comes from argmax_s (w_s * max(i, 1) - count_s), the first
/// of equals, in doubles, with w normalized to sum 1; then count_s grows by one.
///   megatron  exactly this rule. The first access to sample i costs O(i * sources), later accesses
///             O(sources), and 8 bytes per source for every 65,536 samples.
///   table     weights are rounded to multiples of 1/65,536 (largest remainder). The greedy rule runs
///             once for 65,536 samples, and the sequence repeats that table: O(1) for any i, 400 kB.
///             Deviates from the weights by less than 1/65,536, and from the even spread not more
///             than the greedy rule does.
class Blend {
 public:
  virtual ~Blend() = default;
  Blend() = default;
  Blend(const Blend&) = delete;
  Blend& operator=(const Blend&) = delete;

  [[nodiscard]] virtual BlendPick pick(std::uint64_t index) const = 0;

  /// Returns for each source the number of samples before `index`, shape [sources].
  [[nodiscard]] virtual std::vector<std::uint64_t> counts(std::uint64_t index) const = 0;
};

/// Throws Error(usage) for no weights, more than 4,096 weights, a weight that is not greater than
/// 0, or (table) a weight that is rounded to 0.
std::unique_ptr<Blend> make_blend(std::span<const double> weights, BlendRule rule);

/// Divides weights by their sum. Adds like NumPy (pairwise from 8 terms on), so that the doubles
/// equal those of Megatron.
std::vector<double> normalize_weights(std::span<const double> weights);

}  // namespace trireme::data
