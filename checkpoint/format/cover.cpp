#include "checkpoint/format/cover.hpp"

#include <algorithm>
#include <map>
#include <utility>

#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

using Rectangle =
    std::pair<std::vector<std::int64_t>, std::vector<std::int64_t>>;  // offset, extent
constexpr std::size_t kMaxRectangles = 4096;
constexpr std::size_t kMaxPairs = std::size_t{1}
                                  << 22;  // pairs of slices in overlapping rectangles

bool rectangles_meet(const Rectangle& a, const Rectangle& b) {
  for (std::size_t dim = 0; dim < a.first.size(); ++dim) {
    if (a.first[dim] + a.second[dim] <= b.first[dim] ||
        b.first[dim] + b.second[dim] <= a.first[dim])
      return false;
  }
  return true;
}

/// Returns true if two flat ranges of one rectangle share an element. Sorts the ranges.
bool ranges_overlap(std::vector<parallel::Slice>& ranges) {
  std::sort(ranges.begin(), ranges.end(), [](const parallel::Slice& a, const parallel::Slice& b) {
    return a.flat_begin < b.flat_begin;
  });
  for (std::size_t i = 1; i < ranges.size(); ++i) {
    if (ranges[i].flat_begin < ranges[i - 1].flat_end) return true;
  }
  return false;
}

bool any_meet(const std::vector<std::int64_t>& shape, const std::vector<parallel::Slice>& a,
              const std::vector<parallel::Slice>& b) {
  return std::any_of(a.begin(), a.end(), [&](const parallel::Slice& left) {
    return std::any_of(b.begin(), b.end(), [&](const parallel::Slice& right) {
      return parallel::meet(shape, left, right);
    });
  });
}

}  // namespace

bool lies_inside(const std::vector<std::int64_t>& shape, const parallel::Slice& part) {
  bool good = part.offset.size() == shape.size() && part.extent.size() == shape.size();
  for (std::size_t dim = 0; good && dim < shape.size(); ++dim) {
    good = part.offset[dim] >= 0 && part.extent[dim] >= 0 && part.offset[dim] <= shape[dim] &&
           part.extent[dim] <= shape[dim] - part.offset[dim];
  }
  return good && 0 <= part.flat_begin && part.flat_begin <= part.flat_end &&
         part.flat_end <= part.rectangle_count();
}

std::string cover_problem(const std::vector<std::int64_t>& shape,
                          const std::vector<parallel::Slice>& parts) {
  std::map<Rectangle, std::vector<parallel::Slice>> groups;
  std::int64_t count = 0;
  const std::int64_t wanted = parallel::Slice::whole(shape).count();
  for (const parallel::Slice& part : parts) {
    if (part.count() > wanted - count) return formatted("more than its {} elements", wanted);
    count += part.count();
    groups[{part.offset, part.extent}].push_back(part);
  }
  if (count != wanted) return formatted("{} of {} elements", count, wanted);
  if (groups.size() > kMaxRectangles)
    return formatted("cut into {} rectangles, at most {}", groups.size(), kMaxRectangles);
  std::size_t num_pairs = 0;
  for (auto one = groups.begin(); one != groups.end(); ++one) {
    if (ranges_overlap(one->second)) return "slices overlap";
    for (auto other = std::next(one); other != groups.end(); ++other) {
      if (!rectangles_meet(one->first, other->first)) continue;
      num_pairs += one->second.size() * other->second.size();
      if (num_pairs > kMaxPairs) return "cut into too many slices of overlapping rectangles";
      if (any_meet(shape, one->second, other->second)) return "slices overlap";
    }
  }
  return "";
}

}  // namespace trireme::checkpoint
