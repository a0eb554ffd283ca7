#include "checkpoint/maintenance/diff.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "checkpoint/exchange/convert.hpp"
#include "checkpoint/load/logical_reader.hpp"
#include "checkpoint/maintenance/verify.hpp"
#include "core/error.hpp"
#include "core/join.hpp"
#include "core/number.hpp"

namespace trireme::checkpoint {
namespace {

/// Counts the different elements of two tensors of equal shape.
class ElementDifferences {
 public:
  explicit ElementDifferences(DType dtype) : dtype_(dtype), element_(size_of(dtype)) {}

  void add(std::span<const std::byte> a, std::span<const std::byte> b) {
    total_ += a.size() / element_;
    if (std::memcmp(a.data(), b.data(), a.size()) == 0) return;
    for (std::size_t at = 0; at < a.size(); at += element_) {
      if (std::memcmp(a.data() + at, b.data() + at, element_) == 0) continue;
      ++count_;
      if (!is_float(dtype_)) continue;
      const double difference =
          std::abs(value(a.subspan(at, element_)) - value(b.subspan(at, element_)));
      // A NaN on one side is the largest possible difference.
      largest_ = std::isnan(difference) || std::isnan(largest_) ? std::nan("")
                                                                : std::max(largest_, difference);
    }
  }

  [[nodiscard]] std::string text() const {
    if (count_ == 0) return "";
    return formatted("{} of {} elements differ{}", count_, total_,
                     is_float(dtype_) ? ", by " + number_text(largest_) + " at most" : "");
  }

 private:
  [[nodiscard]] double value(std::span<const std::byte> bytes) const {
    double wide = 0;
    if (dtype_ == DType::f64) {
      std::memcpy(&wide, bytes.data(), sizeof wide);
      return wide;
    }
    float narrow = 0;
    convert_floats(dtype_, bytes, DType::f32, std::as_writable_bytes(std::span<float>(&narrow, 1)));
    return narrow;
  }

  DType dtype_;
  std::size_t element_;
  std::uint64_t count_ = 0;
  std::uint64_t total_ = 0;
  double largest_ = 0;
};

std::string shape_text(const SavedTensor& tensor) {
  return formatted("{} [{}]", dtype_name(tensor.dtype), joined(tensor.shape, ", "));
}

std::string tensor_difference(const Checkpoint& a, const SavedTensor& in_a, const Checkpoint& b,
                              const SavedTensor& in_b) {
  if (in_a.dtype != in_b.dtype || in_a.shape != in_b.shape)
    return formatted("{} and {}", shape_text(in_a), shape_text(in_b));
  ElementDifferences differences(in_a.dtype);
  LogicalReader reader_a(a, in_a);
  LogicalReader reader_b(b, in_b);
  for (auto window = reader_a.next(); !window.empty(); window = reader_a.next())
    differences.add(window, reader_b.next());
  return differences.text();
}

/// Compares two sorted maps. `compare` returns the difference of two values with the same key.
template <class Map, class Compare>
std::string compare_maps(const char* kind, const Map& a, const Map& b, const Compare& compare) {
  std::string text;
  for (const auto& [key, value] : a) {
    const auto other = b.find(key);
    const std::string difference =
        other == b.end() ? "only in the first" : compare(value, other->second);
    if (!difference.empty()) text += formatted("{} {}: {}\n", kind, key, difference);
  }
  for (const auto& [key, value] : b) {
    if (!a.contains(key)) text += formatted("{} {}: only in the second\n", kind, key);
  }
  return text;
}

std::map<std::string, std::string> file_hashes(const CheckpointManifest& manifest) {
  std::map<std::string, std::string> hashes;
  for (const SavedFile& file : manifest.files) hashes[file.name] = file.hash;
  return hashes;
}

}  // namespace

std::string checkpoint_differences(const Checkpoint& a, const Checkpoint& b) {
  (void)verify_checkpoint(a.path());
  (void)verify_checkpoint(b.path());
  const CheckpointManifest& first = a.manifest();
  const CheckpointManifest& second = b.manifest();
  return compare_maps("value", first.values, second.values,
                      [](const auto& x, const auto& y) {
                        return x == y ? std::string() : formatted("{} and {}", x, y);
                      }) +
         compare_maps(
             "file", file_hashes(first), file_hashes(second),
             [](const auto& x, const auto& y) { return std::string(x == y ? "" : "differs"); }) +
         compare_maps("tensor", first.tensors, second.tensors,
                      [&](const auto& x, const auto& y) { return tensor_difference(a, x, b, y); });
}

}  // namespace trireme::checkpoint
