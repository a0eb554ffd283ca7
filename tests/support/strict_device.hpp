#pragma once
#include <ATen/core/Tensor.h>

#include <string>
#include <vector>

namespace trireme::testing {

/// Returns a device that behaves like a GPU towards the host: its memory is not the CPU's, and every
/// operation in which the host needs its values is a wait. Its operations run on the CPU, so their
/// results are those of the plain path.
at::Device strict_device();

/// Records the operations of strict_device() in which a host would wait for a GPU, from its
/// construction on: reads of values, operations with a size that depends on values, waits for
/// events, and copies to and from the host that are not asynchronous. At most one object at a time.
class HostWaits {
 public:
  HostWaits();
  ~HostWaits();
  HostWaits(const HostWaits&) = delete;
  HostWaits& operator=(const HostWaits&) = delete;

  /// Returns the names of the operations, in order: "to host [3]" for a copy of 3 elements.
  [[nodiscard]] std::vector<std::string> waits() const;

  /// Returns the number of asynchronous copies from the host.
  [[nodiscard]] int uploads() const;

  /// Returns the number of those copies that ran on a stream beside the one of the operations. An
  /// operation that does not wait for such a copy is in waits(): "aten::add before its copy".
  [[nodiscard]] int copies_beside() const;
};

}  // namespace trireme::testing
