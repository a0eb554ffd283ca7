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

/// Sources: NVIDIA data sheets of A100, A800, A30, A40, A10, L4, L40S, H100 (SXM, PCIe, NVL), H200
/// (SXM, NVL), HGX B200 and GB200 NVL72; the GA102, Ada and RTX Blackwell architecture white papers
/// for GeForce. Data sheets since 2022 print figures with sparsity, which are twice these.
/// The more specific name comes first. A row without figures is a variant with another speed that
/// no data sheet of this list covers.
constexpr std::array kPeaks{
    PeakRow{"H100 PCIe", 756, 51.2},
    PeakRow{"H100 NVL", 835, 60},
    PeakRow{"H100", 989.4, 66.9},
    PeakRow{"H200 NVL", 835, 60},
    PeakRow{"H200", 989.4, 66.9},
    PeakRow{"A100", 312, 19.5},
    PeakRow{"A800", 312, 19.5},
    PeakRow{"A30", 165, 10.3},
    PeakRow{"A40", 149.7, 37.4},
    PeakRow{"A10", 125, 31.2},
    PeakRow{"L4", 121, 30.3},
    PeakRow{"L40S", 362, 91.6},
    PeakRow{"GB200", 2500, 80},
    PeakRow{"B200", 2250, 75},
    PeakRow{"RTX 5090 D"},
    PeakRow{"RTX 5090 Laptop"},
    PeakRow{"RTX 5090", 209.5, 104.8},
    PeakRow{"RTX 4090 D"},
    PeakRow{"RTX 4090 Laptop"},
    PeakRow{"RTX 4090", 165.2, 82.6},
    PeakRow{"RTX 3090 Ti"},
    PeakRow{"RTX 3090", 71, 35.6},
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
  const auto* const row = std::find_if(
      kPeaks.begin(), kPeaks.end(), [&](const PeakRow& one) { return has_words(name, one.name); });
  if (row == kPeaks.end()) return 0;
  constexpr double kTera = 1e12;
  if (compute == at::kBFloat16 || compute == at::kHalf) return row->half * kTera;
  return compute == at::kFloat ? row->fp32 * kTera : 0;
}

}  // namespace trireme::device
