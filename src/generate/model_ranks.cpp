#include "generate/model_ranks.hpp"

#include <ATen/ATen.h>

#include <array>
#include <chrono>
#include <thread>

#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/refusal.hpp"
#include "core/process/failpoints.hpp"
#include "core/process/run_main.hpp"
#include "model/transformer.hpp"

namespace trireme::generate {
namespace {

using namespace std::chrono_literals;

constexpr const char* kTag = "generation step";

enum Command : std::int64_t { kMakeCache, kComputeRows, kLogits, kEnd };

/// Reads a message in the order in which it was written.
class MessageReader {
 public:
  explicit MessageReader(const std::vector<std::int64_t>& message) : message_(message) {}

  std::int64_t number() { return message_.at(at_++); }

  std::vector<std::int64_t> list() {
    std::vector<std::int64_t> values(static_cast<std::size_t>(number()));
    for (std::int64_t& value : values) value = number();
    return values;
  }

 private:
  const std::vector<std::int64_t>& message_;
  std::size_t at_ = 0;
};

void add_list(std::vector<std::int64_t>& message, const std::vector<std::int64_t>& values) {
  message.push_back(static_cast<std::int64_t>(values.size()));
  message.insert(message.end(), values.begin(), values.end());
}

std::vector<std::int64_t> message_of(const StepRows& rows) {
  std::vector<std::int64_t> message{kComputeRows};
  add_list(message, rows.tokens);
  add_list(message, rows.previous);
  add_list(message, rows.positions);
  add_list(message, rows.kept);
  message.push_back(static_cast<std::int64_t>(rows.texts.size()));
  for (const ops::PagedSequence& text : rows.texts) {
    for (const std::int64_t value : {text.first_row, text.num_rows, text.before})
      message.push_back(value);
    add_list(message, {text.blocks.begin(), text.blocks.end()});
  }
  return message;
}

StepRows rows_of(MessageReader& reader) {
  StepRows rows;
  rows.tokens = reader.list();
  rows.previous = reader.list();
  rows.positions = reader.list();
  rows.kept = reader.list();
  rows.texts.resize(static_cast<std::size_t>(reader.number()));
  for (ops::PagedSequence& text : rows.texts) {
    text.first_row = reader.number();
    text.num_rows = reader.number();
    text.before = reader.number();
    for (const std::int64_t block : reader.list())
      text.blocks.push_back(static_cast<std::int32_t>(block));
  }
  return rows;
}

/// Waits for a message. After 2 ms, the rank sleeps between its checks: an idle server must not
/// keep its cores busy.
void wait_asleep(comm::Work& work) {
  const auto begun = std::chrono::steady_clock::now();
  while (!work.poll()) {
    if (std::chrono::steady_clock::now() - begun < 2ms) {
      std::this_thread::yield();
    } else {
      std::this_thread::sleep_for(1ms);
    }
  }
}

comm::Broadcast from_rank_0(std::int64_t* data, std::size_t count) {
  return {.data = data, .count = count, .dtype = DType::i64, .root = 0, .tag = kTag};
}

std::vector<std::int64_t> receive(comm::Communicator& world) {
  std::int64_t size = 0;
  wait_asleep(*world.broadcast(from_rank_0(&size, 1)));
  std::vector<std::int64_t> message(static_cast<std::size_t>(size));
  world.broadcast(from_rank_0(message.data(), message.size()))->wait();
  return message;
}

enum class Direction { send, receive };

/// Sends or receives a tensor in host memory.
void exchange_tensor(comm::Communicator& pipeline, int peer, const at::Tensor& tensor,
                     Direction direction) {
  const at::Tensor whole = tensor.contiguous();
  if (whole.nbytes() == 0) return;
  const std::array message{
      comm::Message{peer, whole.data_ptr(), static_cast<std::uint64_t>(whole.nbytes())}};
  comm::Exchange request{.tag = "stage activations"};
  (direction == Direction::send ? request.sends : request.receives) = message;
  pipeline.exchange(request)->wait();
}

/// Sends a tensor of the last stage to rank 0 of the model, which returns it. The last stage
/// returns `tensor`, and other ranks return an undefined tensor.
at::Tensor on_first_stage(const model::Transformer& model, comm::Communicator& pipeline,
                          const at::Tensor& tensor, at::IntArrayRef shape, at::ScalarType dtype) {
  const bool is_first_of_tensor = model.tensor().rank() == 0;
  if (model.has_head()) {
    if (is_first_of_tensor) exchange_tensor(pipeline, 0, tensor, Direction::send);
    return tensor;
  }
  if (pipeline.rank() != 0 || !is_first_of_tensor) return {};
  at::Tensor received = at::empty(shape, dtype);
  exchange_tensor(pipeline, pipeline.size() - 1, received, Direction::receive);
  return received;
}

}  // namespace

at::Tensor compute_rows(model::Transformer& model, const StepRows& rows,
                        const model::KvCache& cache, comm::Communicator* pipeline) {
  const at::Device device = model.registry().device();
  const auto on_device = [&](const std::vector<std::int64_t>& numbers) {
    return at::tensor(numbers, at::kLong).to(device);
  };
  model::CachedStep pass;
  pass.tokens = on_device(rows.tokens);
  if (model.config().smear) pass.previous = on_device(rows.previous);
  pass.positions = on_device(rows.positions).unsqueeze(0);
  pass.kept = on_device(rows.kept);
  for (const ops::AttentionMask& mask : model.attention_masks())
    pass.plans.push_back(ops::plan_paged(rows.texts, device, mask));
  if (pipeline == nullptr) return model.hidden_cached(pass, cache);
  const at::ScalarType dtype = model.registry().dtypes().compute;
  const std::int64_t width = model.config().hidden_size;
  const int stage = pipeline->rank();
  if (stage > 0) {
    pass.in = at::empty({std::ssize(rows.tokens), width}, dtype);
    exchange_tensor(*pipeline, stage - 1, pass.in, Direction::receive);
  }
  const at::Tensor out = model.hidden_cached(pass, cache);
  if (!model.has_head()) exchange_tensor(*pipeline, stage + 1, out, Direction::send);
  return on_first_stage(model, *pipeline, out, {std::ssize(rows.kept), width}, dtype);
}

at::Tensor compute_logits(model::Transformer& model, const at::Tensor& hidden, std::int64_t first,
                          std::int64_t rows, comm::Communicator* pipeline) {
  at::Tensor some;
  if (model.has_head()) some = model.logits(hidden.narrow(0, first, rows)).to(at::kCPU);
  if (pipeline == nullptr) return some;
  const bool is_double = model.registry().dtypes().compute == at::kDouble;
  return on_first_stage(model, *pipeline, some, {rows, model.config().vocab_size},
                        is_double ? at::kDouble : at::kFloat);
}

void ModelRanks::send(std::vector<std::int64_t> message) {
  if (world_.size() == 1) return;
  is_computing_ = true;
  auto size = static_cast<std::int64_t>(message.size());
  world_.broadcast(from_rank_0(&size, 1))->wait();
  world_.broadcast(from_rank_0(message.data(), message.size()))->wait();
}

void ModelRanks::make_cache(std::int64_t num_blocks) {
  send({kMakeCache, num_blocks});
  is_computing_ = false;
}

void ModelRanks::compute_rows(const StepRows& rows) {
  send(message_of(rows));
}

void ModelRanks::logits(std::int64_t first, std::int64_t rows) {
  send({kLogits, first, rows});
}

int ModelRanks::lead(const std::function<int()>& body) {
  if (world_.size() == 1) return body();
  int code = kExitDone;
  std::optional<Error> error;
  try {
    code = body();
  } catch (const BrokenPipe&) {
    if (!is_computing_) send({kEnd, kExitDone});
    throw;
  } catch (...) {
    error = current_error();
  }
  if (error && is_computing_) throw Error(*error);
  send({kEnd, error ? exit_code(error->kind()) : code});
  if (error) throw comm::AgreedError(*error);
  return code;
}

int follow(model::Transformer& model, comm::Communicator& world, comm::Communicator* pipeline) {
  model::KvCache cache;
  at::Tensor hidden;
  while (true) {
    const std::vector<std::int64_t> message = receive(world);
    failpoint("generate.follow");
    MessageReader reader(message);
    switch (reader.number()) {
      case kMakeCache:
        cache = model.make_cache(reader.number());
        break;
      case kComputeRows:
        hidden = compute_rows(model, rows_of(reader), cache, pipeline);
        break;
      case kLogits: {
        const std::int64_t first = reader.number();
        (void)compute_logits(model, hidden, first, reader.number(), pipeline);
        break;
      }
      default:
        return static_cast<int>(reader.number());
    }
  }
}

}  // namespace trireme::generate
