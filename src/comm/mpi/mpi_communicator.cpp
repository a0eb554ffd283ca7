#include "comm/mpi/mpi_communicator.hpp"

#include "comm/mpi/mpi_library.hpp"
#include "comm/mpi/mpi_transport.hpp"
#include "comm/p2p/p2p_communicator.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/error.hpp"

namespace trireme {
namespace {

class MpiCommunicator final : public P2PCommunicator {
 public:
  MpiCommunicator(std::string name, const std::shared_ptr<MpiTransport>& transport,
                  std::shared_ptr<Engine> engine, CommOptions options)
      : P2PCommunicator(std::move(name), transport, std::move(engine), std::move(options)),
        mpi_(transport) {}

  [[nodiscard]] const char* backend() const override { return "mpi"; }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    // MPI_Comm_split blocks without progress on pending operations. The barrier makes sure that no
    // rank of this group still needs this rank.
    barrier({.tag = "split"});
    MPI_Comm raw = MPI_COMM_NULL;
    check_mpi(MPI_Comm_split(mpi_->comm(), color < 0 ? MPI_UNDEFINED : color, key, &raw),
              formatted("MPI_Comm_split of {} into {}", this->name(), name));
    if (raw == MPI_COMM_NULL) return nullptr;
    MpiComm group(raw);
    int size = 0;
    check_mpi(MPI_Comm_size(group.get(), &size), "MPI_Comm_size");
    if (size == 1) return std::make_unique<SelfCommunicator>(name, options());
    return std::make_unique<MpiCommunicator>(
        name, std::make_shared<MpiTransport>(std::move(group), options().shares_cores), engine_,
        options());
  }

 protected:
  [[nodiscard]] bool counts_sends(std::string_view operation) const override {
    const bool reduces = operation == "all_reduce" || operation == "reduce_scatter";
    return !reduces || options().mpi_reduce == MpiReduce::ordered;
  }

  WorkPtr start_all_reduce(Call call, const Reduction& request) override {
    if (options().mpi_reduce == MpiReduce::ordered || request.count == 0) {
      return P2PCommunicator::start_all_reduce(std::move(call), request);
    }
    return launch(std::move(call), make_library_all_reduce(mpi_->comm(), request));
  }

  WorkPtr start_reduce_scatter(Call call, const Reduction& request) override {
    if (options().mpi_reduce == MpiReduce::ordered || request.count == 0) {
      return P2PCommunicator::start_reduce_scatter(std::move(call), request);
    }
    return launch(std::move(call), make_library_reduce_scatter(mpi_->comm(), request));
  }

 private:
  const std::shared_ptr<MpiTransport> mpi_;
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_world(const CommOptions& options) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) fail(ErrorKind::internal, "comm backend 'mpi' before a Session was made");
  MPI_Comm raw = MPI_COMM_NULL;
  check_mpi(MPI_Comm_dup(MPI_COMM_WORLD, &raw), "MPI_Comm_dup of the world");
  MpiComm world(raw);
  int size = 0;
  check_mpi(MPI_Comm_size(world.get(), &size), "MPI_Comm_size");
  if (size == 1) return std::make_unique<SelfCommunicator>("world", options);
  return std::make_unique<MpiCommunicator>(
      "world", std::make_shared<MpiTransport>(std::move(world), options.shares_cores),
      std::make_shared<Engine>(), options);
}

}  // namespace trireme
