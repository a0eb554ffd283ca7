#include "core/edit_distance.hpp"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/error.hpp"

namespace trireme {
namespace {

/// A shorter word begins too many candidates by chance.
constexpr std::size_t kLeastBeginning = 3;

}  // namespace

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before_last;
  std::vector<std::size_t> last(b.size() + 1);
  std::iota(last.begin(), last.end(), std::size_t{0});
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t replace = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replace});
      const bool swapped = i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1];
      if (swapped) row[j] = std::min(row[j], before_last[j - 2] + 1);
    }
    before_last = last;
    std::swap(last, row);
  }
  return last[b.size()];
}

std::string nearest(std::string_view word, std::span<const std::string> candidates,
                    std::size_t max_distance) {
  const std::string* best = nullptr;
  std::size_t best_distance = max_distance + 1;
  for (const std::string& candidate : candidates) {
    const std::size_t gap = word.size() > candidate.size() ? word.size() - candidate.size()
                                                           : candidate.size() - word.size();
    if (gap >= best_distance) continue;
    const std::size_t distance = edit_distance(word, candidate);
    if (distance < best_distance && distance < std::max(word.size(), candidate.size())) {
      best = &candidate;
      best_distance = distance;
    }
  }
  if (best_distance <= 1) return *best;
  // The beginning of a longer word is nearer to this word than a short word with other letters.
  const auto is_beginning = [&](const std::string& candidate) {
    return word.size() >= kLeastBeginning && candidate.starts_with(word);
  };
  const auto longer = std::find_if(candidates.begin(), candidates.end(), is_beginning);
  if (longer != candidates.end() &&
      std::count_if(candidates.begin(), candidates.end(), is_beginning) == 1)
    return *longer;
  return best == nullptr ? "" : *best;
}

std::string did_you_mean(std::string_view word, std::span<const std::string> candidates) {
  const std::string match = nearest(word, candidates);
  return match.empty() ? "" : formatted("; did you mean '{}'?", match);
}

}  // namespace trireme
