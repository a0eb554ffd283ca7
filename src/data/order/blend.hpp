#pragma once
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// Which source sample i of a blend is from, and how many of the samples before
/// it were from the same one.
struct BlendPick {
  std::uint32_t source = 0;
  std::uint64_t ordinal = 0;
};

enum class BlendRule { table, megatron };

/// "table" or "megatron"; Error(usage) naming it as `name` for anything else.
BlendRule parse_blend_rule(std::string_view text, std::string_view name);
std::string_view name_of(BlendRule rule);

/// A sequence of sources in which each comes as often as its weight says, at every point as evenly
/// as can be. Functions may be called from several threads.
///
/// Megatron's greedy rule: sample i is from argmax_s (w_s * max(i, 1) - count_s), the first of
/// equals, in doubles, w normalised to sum 1; then count_s grows by one.
///   megatron  exactly that. Looking at sample i costs O(i * sources) once, then O(sources) each,
///             and 8 bytes a source for every 65,536 samples.
///   table     weights are rounded to multiples of 1/65,536 (largest remainder), the greedy rule is
///             run for 65,536 samples once, and the sequence repeats that table: O(1) for any i,
///             400 kB. Deviates from the weights by less than 1/65,536, from the even spread by no
///             more than the greedy rule does.
class Blend {
 public:
  virtual ~Blend() = default;
  Blend() = default;
  Blend(const Blend&) = delete;
  Blend& operator=(const Blend&) = delete;
  Blend(Blend&&) = delete;
  Blend& operator=(Blend&&) = delete;

  [[nodiscard]] virtual BlendPick pick(std::uint64_t index) const = 0;

  /// [sources] how many of the samples before `index` are from each.
  [[nodiscard]] virtual std::vector<std::uint64_t> counts(std::uint64_t index) const = 0;
};

/// Throws Error(usage) for no weights, more than 4,096, one that is not more than 0, or (table) one
/// that is rounded to nothing.
std::unique_ptr<Blend> make_blend(std::span<const double> weights, BlendRule rule);

/// Weights divided by their sum, the sum added up as NumPy does it (pairwise from 8 terms on), so
/// that the doubles are Megatron's.
std::vector<double> normalize_weights(std::span<const double> weights);

}  // namespace trireme
