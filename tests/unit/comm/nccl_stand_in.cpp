#include "unit/comm/nccl_stand_in.hpp"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>

#include "comm/thread/thread_world.hpp"
#include "core/error.hpp"

// Definitions of the opaque handles of the real headers.
struct ncclComm {
  std::unique_ptr<trireme::comm::Communicator> ranks;
  int device = -1;
  std::string id;
};

struct CUstream_st {
  int number = 0;
  int device = 0;
  int priority = 0;
  std::set<int> ready_for;  // streams with events that it has waited for since its last collective
};

struct CUevent_st {
  CUstream_st* stream = nullptr;  // null: the default stream, or not recorded
  bool recorded = false;
  bool never = false;
};

namespace trireme::testing {
namespace {

struct Rank {
  int node = 0;
  int num_devices = 1;
  int first_device = 0;
  int device = -1;
  int group_depth = 0;
  ncclComm_t group_comm = nullptr;
  std::vector<comm::Message> sends;
  std::vector<comm::Message> receives;
  std::vector<std::string> calls;
};

thread_local Rank t_rank;
std::mutex g_mutex;
std::map<std::string, std::shared_ptr<comm::ThreadWorld>> g_worlds;  // by unique id
std::atomic<int> g_ids = 0;
std::atomic<int> g_streams = 0;
std::atomic<bool> g_hang = false;

void note(const std::string& call) {
  t_rank.calls.push_back(call);
}

std::string number_of(cudaStream_t stream) {
  return stream == nullptr ? "default" : cat(stream->number);
}

ncclResult_t make_id(ncclUniqueId* id) {
  std::memset(id->internal, 0, sizeof id->internal);
  const std::string text = formatted("id{}", ++g_ids);
  text.copy(id->internal, text.size());
  note("get_unique_id");
  return ncclSuccess;
}

ncclResult_t init_rank(ncclComm_t* comm, int size, ncclUniqueId id, int rank) {
  std::shared_ptr<comm::ThreadWorld> world;
  {
    const std::lock_guard lock(g_mutex);
    auto& slot = g_worlds[id.internal];
    if (!slot) slot = std::make_shared<comm::ThreadWorld>(size);
    world = slot;
  }
  EXPECT_GT(std::strlen(id.internal), 0U) << "an id that no call made";
  *comm = new ncclComm{world->communicator(rank), t_rank.device, id.internal};
  note(formatted("init_rank {}/{} device {}", rank, size, t_rank.device));
  (*comm)->ranks->barrier();  // the real call also returns when all ranks have arrived
  return ncclSuccess;
}

ncclResult_t destroy(ncclComm_t comm) {
  note("comm_destroy");
  delete comm;
  return ncclSuccess;
}

/// Checks the rules for a collective on a stream.
void check_enqueue(const char* what, ncclComm_t comm, cudaStream_t stream) {
  EXPECT_EQ(t_rank.device, comm->device) << what << " with another current device";
  ASSERT_NE(stream, nullptr) << what << " on the default stream";
  EXPECT_EQ(stream->device, comm->device);
  EXPECT_FALSE(stream->ready_for.empty()) << what << " does not wait for the caller's stream";
  if (t_rank.group_depth == 0) stream->ready_for.clear();
  note(formatted("{} device {} stream {}", what, t_rank.device, stream->number));
}

DType our_type(ncclDataType_t type) {
  const std::map<ncclDataType_t, DType> types{
      {ncclFloat64, DType::f64}, {ncclFloat32, DType::f32}, {ncclBfloat16, DType::bf16},
      {ncclFloat16, DType::f16}, {ncclInt64, DType::i64},   {ncclInt32, DType::i32},
      {ncclInt8, DType::i8},     {ncclUint64, DType::u64},  {ncclUint32, DType::u32},
      {ncclUint8, DType::u8}};
  return types.at(type);
}

comm::ReduceOp our_op(ncclRedOp_t op) {
  return op == ncclSum   ? comm::ReduceOp::sum
         : op == ncclMax ? comm::ReduceOp::max
                         : comm::ReduceOp::min;
}

ncclResult_t all_reduce(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  check_enqueue("all_reduce", comm, stream);
  if (!g_hang) comm->ranks->all_reduce({in, out, count, our_type(type), our_op(op)})->wait();
  return ncclSuccess;
}

ncclResult_t reduce_scatter(const void* in, void* out, size_t count, ncclDataType_t type,
                            ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
  check_enqueue("reduce_scatter", comm, stream);
  comm->ranks->reduce_scatter({in, out, count, our_type(type), our_op(op)})->wait();
  return ncclSuccess;
}

ncclResult_t all_gather(const void* in, void* out, size_t count, ncclDataType_t type,
                        ncclComm_t comm, cudaStream_t stream) {
  check_enqueue("all_gather", comm, stream);
  comm->ranks->all_gather({in, out, count, our_type(type)})->wait();
  return ncclSuccess;
}

ncclResult_t broadcast(const void* in, void* out, size_t count, ncclDataType_t type, int root,
                       ncclComm_t comm, cudaStream_t stream) {
  check_enqueue("broadcast", comm, stream);
  EXPECT_EQ(in, out);
  comm->ranks->broadcast({out, count, our_type(type), root})->wait();
  return ncclSuccess;
}

ncclResult_t send(const void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                  cudaStream_t stream) {
  EXPECT_GT(t_rank.group_depth, 0) << "a send outside a group can deadlock";
  EXPECT_NE(peer, comm->ranks->rank());
  check_enqueue("send", comm, stream);
  t_rank.group_comm = comm;
  t_rank.sends.push_back({peer, const_cast<void*>(data), count});
  return ncclSuccess;
}

ncclResult_t receive(void* data, size_t count, ncclDataType_t, int peer, ncclComm_t comm,
                     cudaStream_t stream) {
  EXPECT_GT(t_rank.group_depth, 0) << "a receive outside a group can deadlock";
  check_enqueue("recv", comm, stream);
  t_rank.group_comm = comm;
  t_rank.receives.push_back({peer, data, count});
  return ncclSuccess;
}

ncclResult_t group_start() {
  note("group_start");
  ++t_rank.group_depth;
  return ncclSuccess;
}

ncclResult_t group_end() {
  note("group_end");
  EXPECT_GT(t_rank.group_depth, 0);
  if (--t_rank.group_depth > 0 || t_rank.group_comm == nullptr) return ncclSuccess;
  t_rank.group_comm->ranks->exchange({.sends = t_rank.sends, .receives = t_rank.receives})->wait();
  t_rank.sends.clear();
  t_rank.receives.clear();
  t_rank.group_comm = nullptr;
  return ncclSuccess;
}

cudaError_t count_devices(int* count) {
  *count = t_rank.num_devices;
  return cudaSuccess;
}

cudaError_t set_device(int device) {
  t_rank.device = device;
  return cudaSuccess;
}

cudaError_t bus_id(char* text, int length, int device) {
  EXPECT_LT(device, t_rank.num_devices);
  const std::string id = formatted("0000:0{}:0{}.0", t_rank.node, t_rank.first_device + device);
  EXPECT_GT(length, static_cast<int>(id.size()));
  std::strcpy(text, id.c_str());
  return cudaSuccess;
}

cudaError_t priorities(int* least, int* greatest) {
  *least = 0;
  *greatest = -5;
  return cudaSuccess;
}

cudaError_t make_stream(cudaStream_t* stream, unsigned flags, int priority) {
  EXPECT_EQ(flags, static_cast<unsigned>(cudaStreamNonBlocking));
  EXPECT_EQ(priority, -5);
  *stream = new CUstream_st{++g_streams, t_rank.device, priority, {}};
  return cudaSuccess;
}

cudaError_t free_stream(cudaStream_t stream) {
  delete stream;
  return cudaSuccess;
}

cudaError_t wait_event(cudaStream_t stream, cudaEvent_t event, unsigned) {
  EXPECT_TRUE(event->recorded) << "waiting for an event that was not recorded orders nothing";
  if (stream != nullptr && event->stream != stream) {
    stream->ready_for.insert(event->stream == nullptr ? 0 : event->stream->number);
  }
  note(formatted("stream {} waits for stream {}", number_of(stream), number_of(event->stream)));
  return cudaSuccess;
}

cudaError_t make_event(cudaEvent_t* event, unsigned flags) {
  EXPECT_EQ(flags, static_cast<unsigned>(cudaEventDisableTiming));
  *event = new CUevent_st;
  return cudaSuccess;
}

cudaError_t free_event(cudaEvent_t event) {
  delete event;
  return cudaSuccess;
}

cudaError_t record_event(cudaEvent_t event, cudaStream_t stream) {
  *event = {stream, true, g_hang && stream != nullptr};
  note(formatted("record on stream {}", number_of(stream)));
  return cudaSuccess;
}

cudaError_t copy(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t) {
  EXPECT_EQ(kind, cudaMemcpyDeviceToDevice);
  std::memcpy(to, from, bytes);
  return cudaSuccess;
}

}  // namespace

const comm::NcclApi& stand_in_api() {
  static const comm::NcclApi api{
      make_id,
      init_rank,
      destroy,
      destroy,
      [](ncclComm_t, ncclResult_t* state) { return *state = ncclSuccess; },
      [](ncclResult_t) { return "stand-in error"; },
      all_reduce,
      reduce_scatter,
      all_gather,
      broadcast,
      send,
      receive,
      group_start,
      group_end,
      [](cudaError_t) { return "stand-in error"; },
      count_devices,
      set_device,
      bus_id,
      priorities,
      make_stream,
      free_stream,
      wait_event,
      make_event,
      free_event,
      record_event,
      [](cudaEvent_t event) { return event->never ? cudaErrorNotReady : cudaSuccess; },
      copy,
  };
  return api;
}

void stand_in_rank(int node, int num_devices, int first_device) {
  t_rank = {};
  t_rank.node = node;
  t_rank.num_devices = num_devices;
  t_rank.first_device = first_device;
}

std::vector<std::string> stand_in_calls() {
  return std::exchange(t_rank.calls, {});
}

void stand_in_hang(bool on) {
  g_hang = on;
}

}  // namespace trireme::testing
