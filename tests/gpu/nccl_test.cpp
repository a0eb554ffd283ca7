/// NCCL on a real GPU with one rank. Trireme makes no NCCL communicator for a group of one, so the
/// first test calls NCCL itself, through the function table of the backend.

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

#include "comm/factory.hpp"
#include "comm/nccl/nccl_api.hpp"
#include "comm/nccl/nccl_backend.hpp"
#include "comm/nccl/nccl_handles.hpp"

namespace trireme {
namespace {

constexpr std::size_t kCount = (std::size_t{1} << 20) + 3;  // odd, larger than one chunk of NCCL

const comm::NcclApi& api() {
  return comm::real_nccl_api();
}

/// Device memory for kCount floats.
class DeviceFloats {
 public:
  DeviceFloats() {
    comm::check_cuda(api(), cudaMalloc(reinterpret_cast<void**>(&data_), bytes()), "cudaMalloc");
  }

  DeviceFloats(const DeviceFloats&) = delete;
  DeviceFloats& operator=(const DeviceFloats&) = delete;

  ~DeviceFloats() { cudaFree(data_); }

  [[nodiscard]] float* data() const { return data_; }

  [[nodiscard]] static std::size_t bytes() { return kCount * sizeof(float); }

  void write(const std::vector<float>& values) const {
    comm::check_cuda(api(), cudaMemcpy(data_, values.data(), bytes(), cudaMemcpyHostToDevice),
                     "write");
    // A copy from pageable memory may return before the device has all bytes, and the streams of
    // the tests do not wait for the default stream.
    comm::check_cuda(api(), cudaDeviceSynchronize(), "cudaDeviceSynchronize");
  }

  [[nodiscard]] std::vector<float> read() const {
    comm::check_cuda(api(), cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    std::vector<float> values(kCount);
    comm::check_cuda(api(), cudaMemcpy(values.data(), data_, bytes(), cudaMemcpyDeviceToHost),
                     "read");
    return values;
  }

 private:
  float* data_ = nullptr;
};

std::vector<float> numbers() {
  std::vector<float> values(kCount);
  std::iota(values.begin(), values.end(), 1.0F);
  return values;
}

/// Fills the output with a wrong value before the operation.
void poison(const DeviceFloats& output) {
  output.write(std::vector<float>(kCount, -1.0F));
}

TEST(NcclOnOneGpu, ReducesGathersAndBroadcasts) {
  comm::check_cuda(api(), api().set_device(0), "cudaSetDevice 0");
  ncclUniqueId id{};
  comm::check_nccl(api(), api().get_unique_id(&id), "ncclGetUniqueId");
  ncclComm_t comm = nullptr;
  comm::check_nccl(api(), api().comm_init_rank(&comm, 1, id, 0), "ncclCommInitRank");
  const comm::CommStream stream(api());
  const DeviceFloats input;
  const DeviceFloats output;
  input.write(numbers());

  poison(output);
  comm::check_nccl(api(),
                   api().all_reduce(input.data(), output.data(), kCount, ncclFloat32, ncclSum, comm,
                                    stream.get()),
                   "ncclAllReduce");
  EXPECT_EQ(output.read(), numbers());
  poison(output);
  comm::check_nccl(api(),
                   api().reduce_scatter(input.data(), output.data(), kCount, ncclFloat32, ncclMax,
                                        comm, stream.get()),
                   "ncclReduceScatter");
  EXPECT_EQ(output.read(), numbers());
  poison(output);
  comm::check_nccl(api(),
                   api().all_gather(input.data(), output.data(), DeviceFloats::bytes(), ncclUint8,
                                    comm, stream.get()),
                   "ncclAllGather");
  EXPECT_EQ(output.read(), numbers());
  poison(output);
  comm::check_nccl(api(),
                   api().broadcast(input.data(), output.data(), DeviceFloats::bytes(), ncclUint8, 0,
                                   comm, stream.get()),
                   "ncclBroadcast");
  EXPECT_EQ(output.read(), numbers());
  ncclResult_t state = ncclSuccess;
  comm::check_nccl(api(), api().comm_get_async_error(comm, &state), "ncclCommGetAsyncError");
  EXPECT_EQ(state, ncclSuccess);
  comm::check_nccl(api(), api().comm_destroy(comm), "ncclCommDestroy");
}

TEST(NcclOnOneGpu, SendsToItself) {
  comm::check_cuda(api(), api().set_device(0), "cudaSetDevice 0");
  ncclUniqueId id{};
  comm::check_nccl(api(), api().get_unique_id(&id), "ncclGetUniqueId");
  ncclComm_t comm = nullptr;
  comm::check_nccl(api(), api().comm_init_rank(&comm, 1, id, 0), "ncclCommInitRank");
  const comm::CommStream stream(api());
  const DeviceFloats input;
  const DeviceFloats output;
  input.write(numbers());
  poison(output);
  comm::check_nccl(api(), api().group_start(), "ncclGroupStart");
  comm::check_nccl(
      api(), api().send(input.data(), DeviceFloats::bytes(), ncclUint8, 0, comm, stream.get()),
      "ncclSend");
  comm::check_nccl(
      api(), api().recv(output.data(), DeviceFloats::bytes(), ncclUint8, 0, comm, stream.get()),
      "ncclRecv");
  comm::check_nccl(api(), api().group_end(), "ncclGroupEnd");
  EXPECT_EQ(output.read(), numbers());
  comm::check_nccl(api(), api().comm_destroy(comm), "ncclCommDestroy");
}

/// The backend in a world of one rank: streams, events and copies on the device, and its groups.
TEST(NcclOnOneGpu, AWorldOfOneRankCopiesInTheOrderOfTheCallersStream) {
  const auto world = comm::make_world("nccl", comm::LaunchInfo{}, {}, comm::nccl_backends());
  EXPECT_EQ(world->size(), 1);
  const auto group = world->split(0, 0, "dp");
  const comm::CommStream stream(api());
  const DeviceFloats input;
  const DeviceFloats middle;
  const DeviceFloats output;
  input.write(numbers());
  poison(middle);
  poison(output);
  const comm::Stream mine{stream.get()};

  const auto reduced = group->all_reduce({.input = input.data(),
                                          .output = middle.data(),
                                          .count = kCount,
                                          .dtype = DType::f32,
                                          .op = comm::ReduceOp::sum,
                                          .stream = mine,
                                          .tag = "reduce"});
  reduced->wait();
  const auto gathered = world->all_gather({.input = middle.data(),
                                           .output = output.data(),
                                           .count = kCount,
                                           .dtype = DType::f32,
                                           .stream = mine,
                                           .tag = "gather"});
  gathered->wait();
  world->barrier();

  EXPECT_EQ(output.read(), numbers());
  EXPECT_TRUE(gathered->poll());
}

}  // namespace
}  // namespace trireme
