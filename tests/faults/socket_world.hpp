#pragma once
#include <memory>
#include <vector>

#include "comm/communicator.hpp"
#include "comm/options.hpp"
#include "core/files/file.hpp"

namespace trireme::testing {

/// A pair of connected sockets between any two ranks, made before the ranks are forked. If a rank
/// dies, its ends close and its peers read an end of file.
class SocketMesh {
 public:
  explicit SocketMesh(int size);

  [[nodiscard]] int size() const { return static_cast<int>(rows_.size()); }

  /// Returns the row of `rank` and closes all other ends. Call it in the process of `rank`.
  std::vector<Fd> take(int rank);

 private:
  std::vector<std::vector<Fd>> rows_;  // rows_[a][b] is a's end of the pair with b
};

/// Makes the world communicator of one forked rank from its row of a SocketMesh: the collectives of
/// src/comm/p2p over sockets. Only one thread may use it.
std::unique_ptr<comm::Communicator> make_socket_world(std::vector<Fd> row, int rank,
                                                      const comm::CommOptions& options);

}  // namespace trireme::testing
