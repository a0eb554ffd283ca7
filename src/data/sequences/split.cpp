#include "data/sequences/split.hpp"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>

#include "core/error.hpp"
#include "core/number.hpp"

namespace trireme::data {
namespace {

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Split Split::parse(std::string_view text, std::string_view name) {
  std::array<double, 3> shares{};
  std::size_t count = 0;
  double sum = 0;
  for (std::string_view rest = text;;) {
    const std::size_t comma = rest.find(',');
    const auto share = parse_number(trim(rest.substr(0, comma)));
    if (!share || *share < 0 || count == shares.size()) {
      fail(ErrorKind::usage, "{} = {}, must be one to three numbers of 0 or more, like 969,30,1",
           name, text);
    }
    shares[count++] = *share;
    sum += *share;
    if (comma == std::string_view::npos) break;
    rest.remove_prefix(comma + 1);
  }
  if (!(sum > 0)) fail(ErrorKind::usage, "{} = {}, must not be all 0", name, text);
  Split split;
  for (std::size_t i = 0; i < shares.size(); ++i)
    split.ends_[i + 1] = split.ends_[i] + shares[i] / sum;
  return split;
}

bool Split::has(SplitPart part) const {
  const auto i = static_cast<std::size_t>(part);
  return ends_[i + 1] > ends_[i];
}

DocumentRange Split::part(SplitPart part, std::uint64_t num_documents) const {
  const auto i = static_cast<std::size_t>(part);
  const auto end = [&](std::size_t at) {
    const double documents = std::nearbyint(ends_[at] * static_cast<double>(num_documents));
    return std::min(static_cast<std::uint64_t>(documents), num_documents);
  };
  return {end(i), std::max(end(i), end(i + 1))};
}

}  // namespace trireme::data
