#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/options.hpp"
#include "core/files/file.hpp"

namespace trireme::testing {

/// A pair of connected sockets between any two ranks, made before the ranks are forked. A rank that
/// dies closes its ends: its peers see the end of file.
class SocketMesh {
 public:
  explicit SocketMesh(int size);

  [[nodiscard]] int size() const { return static_cast<int>(rows_.size()); }

  /// In the process of `rank`: its row; all other ends are closed here.
  std::vector<Fd> take(int rank);

 private:
  std::vector<std::vector<Fd>> rows_;  // rows_[a][b]: a's end of the pair with b
};

/// The world communicator of one forked rank, over its row of a SocketMesh: the collectives of
/// src/comm/p2p, bytes by sockets. One thread uses it.
std::unique_ptr<Communicator> make_socket_world(std::vector<Fd> row, int rank,
                                                const CommOptions& options);

}  // namespace trireme::testing
