#include "device/peak_table.hpp"

#include <algorithm>
#include <array>
#include <cctype>

namespace trireme::device {
namespace {

struct PeakRow {
  std::string_view name;  // a part of the device name that ends with a word
  double half = 0;        // bf16 and fp16, dense, TFLOP/s
  double fp32 = 0;        // TFLOP/s
};

/// Each row names its NVIDIA data sheet. Data sheets since 2022 print figures with sparsity, which
/// are twice these. Rows were compared with reproductions of the data sheets. For rows with (*),
/// only tables of other projects were found, which agree. The more specific name comes first. A row
/// without figures is a variant with another speed that no data sheet of this list covers.
constexpr std::array kPeaks{
    PeakRow{"H100 PCIe", 756, 51.2},  // H100 Tensor Core GPU, 2022: 1,513 with sparsity
    PeakRow{"H100 NVL", 835, 60},     // H100 Tensor Core GPU, 2024: 1,671 with sparsity (*)
    PeakRow{"H100", 989.4, 66.9},     // H100 architecture white paper, SXM5
    PeakRow{"H200 NVL", 835, 60},     // H200 Tensor Core GPU: 1,671 with sparsity (*)
    PeakRow{"H200", 989.4, 66.9},     // H200 Tensor Core GPU: 1,979 with sparsity
    PeakRow{"A100", 312, 19.5},       // A100 Tensor Core GPU, 40 GB and 80 GB
    PeakRow{"A800", 312, 19.5},       // A800 PCIe 80 GB: the multiprocessors of A100 (*)
    PeakRow{"A30", 165, 10.3},        // A30 Tensor Core GPU (*)
    PeakRow{"A40", 149.7, 37.4},      // A40
    PeakRow{"A10", 125, 31.2},        // A10 Tensor Core GPU
    PeakRow{"L4", 121, 30.3},         // L4 Tensor Core GPU: 242 with sparsity
    PeakRow{"L40S", 362, 91.6},       // L40S: 362.05, and 733 with sparsity
    PeakRow{"GB200", 2500, 80},       // Blackwell: GB200 NVL72, 5 PFLOP/s with sparsity
    PeakRow{"B200", 2250, 75},        // Blackwell: HGX B200, 4.5 PFLOP/s with sparsity
    PeakRow{"RTX 5090 D"},
    PeakRow{"RTX 5090 Laptop"},
    PeakRow{"RTX 5090", 209.5, 104.8},  // RTX Blackwell architecture white paper (*)
    PeakRow{"RTX 4090 D"},
    PeakRow{"RTX 4090 Laptop"},
    PeakRow{"RTX 4090", 165.2, 82.6},  // Ada architecture white paper (*)
    PeakRow{"RTX 3090 Ti"},
    PeakRow{"RTX 3090", 71, 35.6},  // GA102 architecture white paper (*)
};

/// Returns true if `words` are whole words of `name`: "L4" is in "NVIDIA L4", not in "NVIDIA L40S".
bool has_words(std::string_view name, std::string_view words) {
  const auto is_inside = [&](std::size_t i) {
    return i < name.size() && std::isalnum(static_cast<unsigned char>(name[i])) != 0;
  };
  for (std::size_t at = name.find(words); at != std::string_view::npos;
       at = name.find(words, at + 1)) {
    if (!(at > 0 && is_inside(at - 1)) && !is_inside(at + words.size())) return true;
  }
  return false;
}

}  // namespace

double data_sheet_flops(std::string_view name, at::ScalarType compute) {
  if (has_words(name, "MIG")) return 0;  // a part of a GPU, such as "NVIDIA A100 MIG 1g.5gb"
  const auto* const row = std::find_if(
      kPeaks.begin(), kPeaks.end(), [&](const PeakRow& one) { return has_words(name, one.name); });
  if (row == kPeaks.end()) return 0;
  constexpr double kTera = 1e12;
  if (compute == at::kBFloat16 || compute == at::kHalf) return row->half * kTera;
  return compute == at::kFloat ? row->fp32 * kTera : 0;
}

}  // namespace trireme::device
