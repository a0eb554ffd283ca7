#include "ops/operations.hpp"

#include <atomic>
#include <cstdint>

#include "ops/path.hpp"

namespace trireme::ops {
namespace {

/// Bit i is set if operation i is plain.
std::atomic<std::uint32_t> plain_operations{0};

std::uint32_t bit_of(Operation operation) {
  return std::uint32_t{1} << static_cast<unsigned>(operation);
}

}  // namespace

void compute_plainly(std::span<const Operation> operations) {
  std::uint32_t bits = 0;
  for (const Operation operation : operations) bits |= bit_of(operation);
  plain_operations = bits;
}

Path path_of(Operation operation, Path path) {
  return (plain_operations & bit_of(operation)) != 0 ? Path::plain : path;
}

}  // namespace trireme::ops
