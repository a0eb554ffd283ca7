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

/// Selects the source of each sample, so that each source occurs according to its weight and as
/// evenly as possible. Thread-safe.
///
/// Both rules are based on the greedy rule of Megatron-LM. Sample i comes from the source s with
/// the largest value w_s * max(i, 1) - count_s, and then count_s increases by one. The weights w
/// are normalized to the sum 1. The computation uses doubles. If several sources are equal, the
/// first source is used.
///   megatron  exactly this rule. The first access to sample i costs O(i * sources), later accesses
///             cost O(sources). The rule needs 8 bytes per source for every 65,536 samples.
///   table     weights are rounded to multiples of 1/65,536 (largest remainder). The greedy rule
///             runs once for 65,536 samples, and the sequence repeats this table. The cost is O(1)
///             for any i, and the table needs 400 kB. The deviation from the weights is less than
///             1/65,536. The sources are spread as evenly as with the greedy rule.
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

/// Divides weights by their sum. Adds the weights in the order of NumPy (pairwise from 8 terms on),
/// so that the results equal the doubles of Megatron-LM.
std::vector<double> normalize_weights(std::span<const double> weights);

}  // namespace trireme::data
