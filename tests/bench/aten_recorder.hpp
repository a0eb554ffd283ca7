#pragma once
#include <cstdint>
#include <map>
#include <string>

/// Counts the ATen operations that a GPU would launch as kernels, and the bytes that they read and
/// write, while the same program runs on a CPU.
namespace trireme::bench {

/// Work of some ATen operations. Differences and multiples of counts are counts, too.
struct Work {
  double launches = 0;
  double bytes = 0;          // read and written in device memory, if each operand passes once
  double product_bytes = 0;  // the part of matrix products
  double flops = 0;          // operations of matrix products
  double host_waits = 0;     // reads of a device value by the host

  Work& operator+=(const Work& other) {
    launches += other.launches;
    bytes += other.bytes;
    product_bytes += other.product_bytes;
    flops += other.flops;
    host_waits += other.host_waits;
    return *this;
  }

  Work operator*(double factor) const {
    return {launches * factor, bytes * factor, product_bytes * factor, flops * factor,
            host_waits * factor};
  }

  Work operator+(const Work& other) const {
    Work sum = *this;
    return sum += other;
  }

  Work operator-(const Work& other) const { return *this + other * -1.0; }
};

/// The work by name of the ATen operation ("aten::mul").
using WorkByName = std::map<std::string, Work>;

/// Records the operations of this thread from construction to destruction.
///
/// A view or an allocation launches nothing. A composite operation is counted by its parts. Every
/// other operation is one kernel that reads its tensor arguments once and writes its results once;
/// of an expanded tensor only the distinct elements count, and of a table only the selected rows.
class AtenRecorder {
 public:
  explicit AtenRecorder(WorkByName& work);
  AtenRecorder(const AtenRecorder&) = delete;
  AtenRecorder& operator=(const AtenRecorder&) = delete;
  ~AtenRecorder();

 private:
  std::uint64_t handle_;
};

}  // namespace trireme::bench
