#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace trireme::data {

/// Documents [begin, end) of a set, counted over its shards in order.
struct DocumentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  bool operator==(const DocumentRange&) const = default;
};

enum class SplitPart { train, valid, test };

/// Parses "969,30,1": the parts of the documents of a set, in file order, for training, validation
/// and test. One to three numbers of 0 or more with any sum; missing numbers are 0.
///
/// A part of D documents ends at round(D * f). f is the sum of the fractions of this part and of
/// all parts before it. Halves are rounded to even, as in Megatron-LM. Source: Megatron-LM,
/// blended_megatron_dataset_builder.
class Split {
 public:
  /// Throws Error(usage) that names the setting `name` ("data.split") for any other text.
  static Split parse(std::string_view text, std::string_view name);

  /// Returns true if the part has a share above 0.
  [[nodiscard]] bool has(SplitPart part) const;
  [[nodiscard]] DocumentRange part(SplitPart part, std::uint64_t num_documents) const;

 private:
  std::array<double, 4> ends_{};  // 0, then cumulative fractions of train, valid and test
};

}  // namespace trireme::data
