#pragma once
#include <cstdint>

namespace trireme::ops {

/// The keys [begin, end) of one document, in order of position.
struct KeyInterval {
  std::int64_t begin;
  std::int64_t end;

  bool operator==(const KeyInterval&) const = default;
};

}  // namespace trireme::ops
