#include "comm/mpi/mpi_transport.hpp"

#include <sched.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>
#include <vector>

#include "core/error.hpp"

namespace trireme::comm {
namespace {

// MPI counts are of type int, so longer messages are split into chunks. Chunks have the same tag,
// so they arrive in order.
constexpr std::uint64_t kMaxChunk = std::uint64_t{1} << 30;

constexpr double kYield_s = 100e-6;
constexpr std::chrono::microseconds kSleep{50};

class MpiTransfer final : public Transfer {
 public:
  MpiTransfer(int peer, bool receives) : peer_(peer), receives_(receives) {}

  MpiTransfer(const MpiTransfer&) = delete;
  MpiTransfer& operator=(const MpiTransfer&) = delete;

  ~MpiTransfer() override {
    if (mpi_finalized()) return;
    for (auto& request : requests_) {
      if (request == MPI_REQUEST_NULL) continue;
      MPI_Cancel(&request);
      MPI_Request_free(&request);
    }
  }

  MPI_Request* add(int bytes) {
    expected_.push_back(bytes);
    requests_.push_back(MPI_REQUEST_NULL);
    return &requests_.back();
  }

  bool done() override {
    for (; next_ < requests_.size(); ++next_) {
      int complete = 0;
      MPI_Status status{};
      const int code = MPI_Test(&requests_[next_], &complete, &status);
      check_mpi(code, formatted("{} rank {}{}", receives_ ? "receive from" : "send to", peer_,
                                receives_ ? formatted(" of {} bytes", expected_[next_]) : ""));
      if (complete == 0) return false;
      if (receives_) check_size(status);
    }
    return true;
  }

 private:
  void check_size(const MPI_Status& status) const {
    int got = 0;
    check_mpi(MPI_Get_count(&status, MPI_BYTE, &got), "MPI_Get_count");
    if (got == expected_[next_]) return;
    fail(
        ErrorKind::usage,
        "rank {} sends {} bytes where {} are expected; the ranks called the operation with different sizes",
        peer_, got, expected_[next_]);
  }

  const int peer_;
  const bool receives_;
  std::vector<MPI_Request> requests_;
  std::vector<int> expected_;
  std::size_t next_ = 0;  // earlier chunks are done
};

/// Calls start(offset, chunk_bytes, request) for every chunk; a message of 0 bytes is one chunk.
template <class Start>
TransferPtr start_chunks(int peer, bool receives, std::uint64_t bytes, const Start& start) {
  auto transfer = std::make_unique<MpiTransfer>(peer, receives);
  std::uint64_t offset = 0;
  do {
    const int chunk = static_cast<int>(std::min(bytes - offset, kMaxChunk));
    start(offset, chunk, transfer->add(chunk));
    offset += static_cast<std::uint64_t>(chunk);
  } while (offset < bytes);
  return transfer;
}

}  // namespace

void check_mpi(int code, std::string_view what) {
  if (code == MPI_SUCCESS) return;
  std::array<char, MPI_MAX_ERROR_STRING> text{};
  int length = 0;
  MPI_Error_string(code, text.data(), &length);
  fail(ErrorKind::comm, "{}: {}", what, text.data());
}

MpiTransport::MpiTransport(MpiComm comm, bool shares_cores)
    : comm_(std::move(comm)), shares_cores_(shares_cores) {
  check_mpi(MPI_Comm_set_errhandler(comm_.get(), MPI_ERRORS_RETURN), "MPI_Comm_set_errhandler");
  check_mpi(MPI_Comm_rank(comm_.get(), &rank_), "MPI_Comm_rank");
  check_mpi(MPI_Comm_size(comm_.get(), &size_), "MPI_Comm_size");
  void* value = nullptr;
  int found = 0;
  check_mpi(MPI_Comm_get_attr(comm_.get(), MPI_TAG_UB, &value, &found), "MPI_Comm_get_attr");
  if (found != 0) max_tag_ = *static_cast<int*>(value);
}

TransferPtr MpiTransport::start_send(int peer, int tag, const void* data, std::uint64_t bytes) {
  return start_chunks(peer, false, bytes,
                      [&](std::uint64_t offset, int chunk, MPI_Request* request) {
                        check_mpi(MPI_Isend(static_cast<const std::byte*>(data) + offset, chunk,
                                            MPI_BYTE, peer, tag, comm_.get(), request),
                                  formatted("MPI_Isend of {} bytes to rank {}", chunk, peer));
                      });
}

TransferPtr MpiTransport::receive(int peer, int tag, void* data, std::uint64_t bytes) {
  return start_chunks(peer, true, bytes,
                      [&](std::uint64_t offset, int chunk, MPI_Request* request) {
                        check_mpi(MPI_Irecv(static_cast<std::byte*>(data) + offset, chunk, MPI_BYTE,
                                            peer, tag, comm_.get(), request),
                                  formatted("MPI_Irecv of {} bytes from rank {}", chunk, peer));
                      });
}

// The operating system takes a rank that only calls sched_yield for a busy one. So it may put two
// computing ranks on one core and two waiting ranks on another. If ranks share cores, a rank sleeps
// during a long wait. During a short wait, the rank only yields, so that a message has no delay.
void MpiTransport::pause(double waited_s) {
  if (shares_cores_ && waited_s > kYield_s) {
    std::this_thread::sleep_for(kSleep);
  } else {
    sched_yield();
  }
}

}  // namespace trireme::comm
