#pragma once
#include <array>
#include <cstdint>
#include <string_view>

namespace trireme {

/// Documents [begin, end) of a set, counted over its shards in order.
struct DocumentRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  bool operator==(const DocumentRange&) const = default;
};

enum class SplitPart { train, valid, test };

/// "969,30,1": how many of a set's documents, in file order, are for training, validation and test.
/// One to three numbers of 0 or more, of any sum; what is not given is 0.
///
/// The parts of D documents end at round(D * share), shares summed from the left, halves to even:
/// Megatron's rule for the same text. Source: Megatron-LM, blended_megatron_dataset_builder.
class Split {
 public:
  /// Throws Error(usage) naming the text as `name` ("data.split") for anything else.
  static Split parse(std::string_view text, std::string_view name);

  [[nodiscard]] DocumentRange part(SplitPart part, std::uint64_t num_documents) const;

 private:
  std::array<double, 4> ends_{};  // 0, share of train, of train and valid, of all
};

}  // namespace trireme
