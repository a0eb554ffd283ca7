#include "support/layouts/covering.hpp"

#include <algorithm>
#include <tuple>

#include "core/error.hpp"

namespace trireme::testing {
namespace {

/// Returns one number for each pair of factor values that the case has. A factor paired with itself
/// stands for its single value.
std::vector<std::size_t> parts_of(const FactorValues& one, Cover cover) {
  const std::size_t factors = one.values.size();
  const auto place = [&](std::size_t factor) {
    TRIREME_ASSERT(one.values[factor] >= 0 && one.values[factor] < kMostFactorValues);
    return factor * kMostFactorValues + static_cast<std::size_t>(one.values[factor]);
  };
  std::vector<std::size_t> parts;
  for (std::size_t a = 0; a < factors; ++a)
    for (std::size_t b = a; b < (cover == Cover::each_value ? a + 1 : factors); ++b)
      parts.push_back(place(a) * factors * kMostFactorValues + place(b));
  return parts;
}

}  // namespace

std::vector<std::size_t> covering_indices(const std::vector<FactorValues>& cases, Cover cover) {
  std::vector<std::vector<std::size_t>> parts;
  std::vector<bool> missing;
  for (const FactorValues& one : cases) {
    parts.push_back(parts_of(one, cover));
    missing.resize(std::max(missing.size(), parts.back().back() + 1));
    for (const std::size_t part : parts.back()) missing[part] = true;
  }
  std::vector<std::size_t> chosen;
  while (true) {
    std::size_t best = 0;
    std::tuple<std::ptrdiff_t, int> most{0, 0};  // number of new pairs, -cost
    for (std::size_t i = 0; i < cases.size(); ++i) {
      const auto news =
          std::count_if(parts[i].begin(), parts[i].end(), [&](auto part) { return missing[part]; });
      if (news == 0 || (std::get<0>(most) > 0 && std::tuple(news, -cases[i].cost) <= most))
        continue;
      most = {news, -cases[i].cost};
      best = i;
    }
    if (std::get<0>(most) == 0) return chosen;
    for (const std::size_t part : parts[best]) missing[part] = false;
    chosen.push_back(best);
  }
}

}  // namespace trireme::testing
