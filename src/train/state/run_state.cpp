#include "train/state/run_state.hpp"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "core/error.hpp"
#include "parallel/torch_bridge.hpp"

namespace trireme {
namespace {

template <class T>
std::string to_text(T value) {
  char buffer[40];
  const auto [end, code] = std::to_chars(buffer, buffer + sizeof buffer, value);
  TRIREME_ASSERT(code == std::errc{});
  return {buffer, end};
}

template <class T>
T number(const std::map<std::string, std::string>& values, const char* key) {
  const auto found = values.find(key);
  if (found == values.end())
    fail(ErrorKind::data, "the checkpoint has no value '{}': it is not one of a training run", key);
  T value{};
  const std::string& text = found->second;
  const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc{} || end != text.data() + text.size()) {
    fail(ErrorKind::data, "the checkpoint's value '{}' is '{}', expected a number", key, text);
  }
  return value;
}

}  // namespace

StateView::StateView(ParamRegistry& registry, Optimizer& optimizer, int data_rank, int data_size)
    : owned_bytes_(static_cast<std::size_t>(data_size)), data_rank_(data_rank) {
  for (ParamId id = 0; id < registry.size(); ++id)
    add(formatted("param/{}", registry.spec(id).name), registry, id, registry.main(id));
  for (const OptimizerSlot& slot : optimizer.slots()) {
    for (ParamId id = 0; id < registry.size(); ++id) {
      add(formatted("optim/{}/{}", slot.name, registry.spec(id).name), registry, id,
          registry.view_of(slot.flat, id));
    }
  }
}

void StateView::add(const std::string& name, const ParamRegistry& registry, ParamId id,
                    const at::Tensor& local) {
  at::Tensor host = local;
  if (!local.is_cpu()) {
    host = at::empty(local.sizes(), local.options().device(at::kCPU).pinned_memory(true));
    mirrors_.push_back({local, host});
  }
  const auto owner = std::min_element(owned_bytes_.begin(), owned_bytes_.end());
  const auto bytes = static_cast<std::size_t>(host.nbytes());
  *owner += static_cast<std::int64_t>(bytes);
  tensors_.push_back({name, to_dtype(local.scalar_type()), registry.spec(id).shape,
                      registry.slice(id),
                      std::span(static_cast<std::byte*>(host.mutable_data_ptr()), bytes),
                      owner - owned_bytes_.begin() == data_rank_});
}

void StateView::stage() {
  for (Mirror& mirror : mirrors_) mirror.host.copy_(mirror.device);
}

void StateView::unstage() {
  for (Mirror& mirror : mirrors_) mirror.device.copy_(mirror.host);
}

std::int64_t number_in(const std::map<std::string, std::string>& values, const char* key,
                       std::int64_t least, std::int64_t most) {
  const auto value = number<std::int64_t>(values, key);
  if (value < least || value > most) {
    fail(ErrorKind::data, "the checkpoint's value '{}' is {}, must be in [{}, {}]", key, value,
         least, most);
  }
  return value;
}

void put_progress(std::map<std::string, std::string>& values, const Progress& progress,
                  const LossScaler& scaler) {
  values["step"] = to_text(progress.step);
  values["update"] = to_text(progress.update);
  values["data.next_sample"] = to_text(progress.next_sample);
  values["tokens"] = to_text(progress.tokens);
  values["scaler.scale"] = to_text(scaler.scale());
  values["scaler.good_steps"] = to_text(scaler.good_steps());
}

std::int64_t saved_next_sample(const std::map<std::string, std::string>& values) {
  return number_in(values, "data.next_sample", 0, std::numeric_limits<std::int64_t>::max());
}

Progress load_progress(const std::map<std::string, std::string>& values, std::int64_t step,
                       LossScaler& scaler) {
  constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();
  if (scaler.dynamic()) {
    const auto scale = number<double>(values, "scaler.scale");
    if (!(scale > 0 && std::isfinite(scale)))
      fail(ErrorKind::data, "the checkpoint's value 'scaler.scale' is {}, must be above 0", scale);
    scaler.restore(scale, number_in(values, "scaler.good_steps", 0, kMost));
  }
  return {number_in(values, "step", step, step), number_in(values, "update", 0, step),
          saved_next_sample(values), number_in(values, "tokens", 0, kMost)};
}

}  // namespace trireme
