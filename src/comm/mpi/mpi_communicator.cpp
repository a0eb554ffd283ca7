#include "comm/mpi/mpi_communicator.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>
#include <vector>

#include "comm/mpi/mpi_shared_memory.hpp"
#include "comm/mpi/mpi_transport.hpp"
#include "comm/p2p/p2p_communicator.hpp"
#include "comm/p2p/volume.hpp"
#include "comm/reduce.hpp"
#include "comm/self/self_communicator.hpp"
#include "comm/shared/shared_operations.hpp"
#include "core/error.hpp"

namespace trireme::comm {
namespace {

// The reductions for CommOptions::mpi_reduce = library, which exist only for comparison. They make
// progress only inside MPI calls, and the MPI library chooses the order of additions.

// MPI counts are int, so longer buffers are reduced in chunks of this many elements.
constexpr std::uint64_t kMaxCount = std::uint64_t{1} << 30;

/// MPI operation for bf16 and f16. MPI does not have these types, so elements are passed as two
/// bytes.
template <DType dtype, ReduceOp op>
void reduce_pair(void* in, void* in_out, int* count, MPI_Datatype*) {
  const std::array<const void*, 2> pair{in, in_out};
  reduce_in_order(pair, in_out, static_cast<std::uint64_t>(*count), dtype, op);
}

/// MPI types and operations for bf16 and f16. They are created once and never freed, because they
/// are needed as long as MPI runs.
struct HalfTypes {
  HalfTypes() {
    MPI_Type_contiguous(2, MPI_BYTE, &type);
    MPI_Type_commit(&type);
    MPI_Op_create(reduce_pair<DType::bf16, ReduceOp::sum>, 1, &ops[0][0]);
    MPI_Op_create(reduce_pair<DType::bf16, ReduceOp::max>, 1, &ops[0][1]);
    MPI_Op_create(reduce_pair<DType::bf16, ReduceOp::min>, 1, &ops[0][2]);
    MPI_Op_create(reduce_pair<DType::f16, ReduceOp::sum>, 1, &ops[1][0]);
    MPI_Op_create(reduce_pair<DType::f16, ReduceOp::max>, 1, &ops[1][1]);
    MPI_Op_create(reduce_pair<DType::f16, ReduceOp::min>, 1, &ops[1][2]);
  }

  MPI_Datatype type = MPI_DATATYPE_NULL;
  std::array<std::array<MPI_Op, 3>, 2> ops{};
};

const HalfTypes& half_types() {
  static const HalfTypes types;
  return types;
}

MPI_Datatype mpi_type(DType dtype) {
  const MPI_Datatype half = half_types().type;
  const std::array types{MPI_DOUBLE,   MPI_FLOAT,    half,         half,
                         MPI_INT64_T,  MPI_INT32_T,  MPI_INT16_T,  MPI_INT8_T,
                         MPI_UINT64_T, MPI_UINT32_T, MPI_UINT16_T, MPI_UINT8_T};
  return types[static_cast<std::size_t>(dtype)];
}

MPI_Op mpi_op(DType dtype, ReduceOp op) {
  if (dtype == DType::bf16) return half_types().ops[0][static_cast<std::size_t>(op)];
  if (dtype == DType::f16) return half_types().ops[1][static_cast<std::size_t>(op)];
  constexpr std::size_t kSum = static_cast<std::size_t>(ReduceOp::sum);
  static_assert(kSum == 0);
  const std::array<MPI_Op, 3> ops{MPI_SUM, MPI_MAX, MPI_MIN};
  return ops[static_cast<std::size_t>(op)];
}

class LibraryOperation final : public Operation {
 public:
  MPI_Request* add() { return &requests_.emplace_back(MPI_REQUEST_NULL); }

  /// A copy of the input that must live until completion.
  std::vector<std::byte>& scratch() { return scratch_; }

  bool advance() override {
    int complete = 0;
    check_mpi(MPI_Testall(static_cast<int>(requests_.size()), requests_.data(), &complete,
                          MPI_STATUSES_IGNORE),
              "MPI_Testall of a reduction");
    return complete != 0;
  }

 private:
  std::vector<MPI_Request> requests_;
  std::vector<std::byte> scratch_;
};

std::unique_ptr<Operation> make_library_all_reduce(MPI_Comm comm, const Reduction& request) {
  auto operation = std::make_unique<LibraryOperation>();
  const std::uint64_t width = size_of(request.dtype);
  for (std::uint64_t begin = 0; begin < request.count; begin += kMaxCount) {
    const int n = static_cast<int>(std::min(kMaxCount, request.count - begin));
    const auto* from = static_cast<const std::byte*>(request.input) + begin * width;
    auto* to = static_cast<std::byte*>(request.output) + begin * width;
    check_mpi(MPI_Iallreduce(from == to ? MPI_IN_PLACE : from, to, n, mpi_type(request.dtype),
                             mpi_op(request.dtype, request.op), comm, operation->add()),
              "MPI_Iallreduce");
  }
  return operation;
}

std::unique_ptr<Operation> make_library_reduce_scatter(MPI_Comm comm, const Reduction& request) {
  auto operation = std::make_unique<LibraryOperation>();
  int size = 1;
  int rank = 0;
  check_mpi(MPI_Comm_size(comm, &size), "MPI_Comm_size");
  check_mpi(MPI_Comm_rank(comm, &rank), "MPI_Comm_rank");
  const auto ranks = static_cast<std::uint64_t>(size);
  const std::uint64_t width = size_of(request.dtype);
  const std::uint64_t count = request.count;
  const MPI_Datatype type = mpi_type(request.dtype);
  const MPI_Op op = mpi_op(request.dtype, request.op);
  const auto* parts = static_cast<const std::byte*>(request.input);
  auto* result = static_cast<std::byte*>(request.output);
  const std::uint64_t step =
      kMaxCount / ranks;  // the MPI library may sum the counts of all ranks in an int
  const bool overlaps = result == parts + static_cast<std::uint64_t>(rank) * count * width;
  if (!overlaps && count <= step) {
    check_mpi(MPI_Ireduce_scatter_block(parts, result, static_cast<int>(count), type, op, comm,
                                        operation->add()),
              "MPI_Ireduce_scatter_block");
    return operation;
  }
  // Chunks are not contiguous across parts, and MPI's in-place form puts the result at part 0.
  auto& copy = operation->scratch();
  copy.resize(ranks * count * width);
  std::uint64_t filled = 0;
  for (std::uint64_t begin = 0; begin < count; begin += step) {
    const std::uint64_t n = std::min(step, count - begin);
    const std::uint64_t chunk = filled;
    for (std::uint64_t p = 0; p < ranks; ++p, filled += n * width)
      std::memcpy(copy.data() + filled, parts + (p * count + begin) * width, n * width);
    check_mpi(MPI_Ireduce_scatter_block(copy.data() + chunk, result + begin * width,
                                        static_cast<int>(n), type, op, comm, operation->add()),
              "MPI_Ireduce_scatter_block");
  }
  return operation;
}

class MpiCommunicator final : public P2PCommunicator {
 public:
  MpiCommunicator(std::string name, const std::shared_ptr<MpiTransport>& transport,
                  std::shared_ptr<Engine> engine, CommOptions options)
      : P2PCommunicator(std::move(name), transport, std::move(engine), std::move(options)),
        mpi_(transport),
        rings_(share_memory(transport->comm(), this->options())) {}

  [[nodiscard]] const char* backend() const override { return "mpi"; }

  [[nodiscard]] bool shares_memory() const override { return rings_ != nullptr; }

  std::unique_ptr<Communicator> split(int color, int key, const std::string& name) override {
    // While MPI_Comm_split blocks, this rank makes no progress on pending operations. The barrier
    // ensures that no other rank of this group waits for such progress.
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
    if (rings_ && all_reduce_form(size(), request.bytes()) == AllReduceForm::segmented) {
      SentCount& sent = *call.sent;
      return launch(std::move(call), make_shared_all_reduce(rings_, sent, request));
    }
    if (options().mpi_reduce == MpiReduce::ordered || request.count == 0)
      return P2PCommunicator::start_all_reduce(std::move(call), request);
    return launch(std::move(call), make_library_all_reduce(mpi_->comm(), request));
  }

  WorkPtr start_reduce_scatter(Call call, const Reduction& request) override {
    if (rings_ && uses_shared_memory(request.bytes())) {
      SentCount& sent = *call.sent;
      return launch(std::move(call), make_shared_reduce_scatter(rings_, sent, request));
    }
    if (options().mpi_reduce == MpiReduce::ordered || request.count == 0)
      return P2PCommunicator::start_reduce_scatter(std::move(call), request);
    return launch(std::move(call), make_library_reduce_scatter(mpi_->comm(), request));
  }

  WorkPtr start_all_gather(Call call, const AllGather& request) override {
    if (!rings_ || !uses_shared_memory(request.bytes()))
      return P2PCommunicator::start_all_gather(std::move(call), request);
    SentCount& sent = *call.sent;
    return launch(std::move(call), make_shared_all_gather(rings_, sent, request));
  }

  WorkPtr start_broadcast(Call call, const Broadcast& request) override {
    if (!rings_ || !uses_shared_memory(request.bytes()))
      return P2PCommunicator::start_broadcast(std::move(call), request);
    SentCount& sent = *call.sent;
    return launch(std::move(call), make_shared_broadcast(rings_, sent, request));
  }

 private:
  const std::shared_ptr<MpiTransport> mpi_;
  const std::shared_ptr<SharedRings> rings_;  // null: all buffers go as messages
};

}  // namespace

std::unique_ptr<Communicator> make_mpi_world(const CommOptions& options) {
  int initialized = 0;
  MPI_Initialized(&initialized);
  if (initialized == 0) fail(ErrorKind::internal, "comm backend 'mpi' is used before Session");
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

}  // namespace trireme::comm
