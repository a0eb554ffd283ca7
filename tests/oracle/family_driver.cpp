// usage: family_driver CHECKPOINT TOKENS.safetensors OUT.safetensors NEW
// TOKENS has "tokens" [B, T] i64; each row is one document. Writes what families.py compares with
// transformers:
//   logits [B, T, vocab] f32    of the checkpoint's model
//   greedy [B, NEW] i64         the greedy continuation of each row by the engine, with cached keys
//   loss [1] f64, grad/NAME     mean cross entropy of all targets and its gradients, in fp64
#include <cstring>

#include "checkpoint/exchange/safetensors.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"
#include "device/torch_bridge.hpp"
#include "generate/answer_all.hpp"
#include "generate/load/load_model.hpp"
#include "parallel/units/gathered.hpp"
#include "support/full_logits.hpp"
#include "support/layouts/layout_cases.hpp"
#include "train/verify/trial_model.hpp"

namespace {

using namespace trireme;

using Sources = std::vector<checkpoint::SafetensorsSource>;

void add(Sources& sources, const std::string& name, const at::Tensor& tensor) {
  const at::Tensor whole = tensor.detach().contiguous();
  sources.push_back({name, device::to_dtype(whole.scalar_type()), whole.sizes().vec(),
                     [whole](std::span<std::byte> bytes) {
                       std::memcpy(bytes.data(), whole.const_data_ptr(), bytes.size());
                     }});
}

at::Tensor read_tokens(const std::filesystem::path& path) {
  const checkpoint::SafetensorsFile file = checkpoint::SafetensorsFile::open(path);
  const at::Tensor tokens = at::empty(file.entries().at("tokens").shape, at::kLong);
  file.read("tokens", {static_cast<std::byte*>(tokens.data_ptr()), tokens.nbytes()});
  return tokens;
}

void add_logits(Sources& sources, generate::LoadedModel& model, const at::Tensor& tokens) {
  parallel::Microbatch batch;
  batch.tokens = tokens;
  batch.positions = at::arange(batch.length(), at::kLong).expand_as(tokens).contiguous();
  batch.samples = at::zeros({batch.rows()}, at::kLong);
  add(sources, "logits", full_logits(*model.transformer, batch));
}

/// The prompts are computed in chunks, so that a chunk begins inside a window.
void add_greedy(Sources& sources, generate::LoadedModel& model, const at::Tensor& tokens,
                std::int64_t count) {
  generate::GenerationEngine engine(*model.transformer, model.tokenizer,
                                    {.prompt_tokens = 11, .prompt_tokens_while_decoding = 3});
  std::vector<generate::Request> requests;
  for (std::int64_t row = 0; row < tokens.size(0); ++row) {
    generate::Request request;
    for (std::int64_t i = 0; i < tokens.size(1); ++i)
      request.prompt.push_back(static_cast<std::uint32_t>(tokens[row][i].item<std::int64_t>()));
    request.max_tokens = count;
    request.sampling.temperature = 0;
    requests.push_back(std::move(request));
  }
  std::vector<std::int64_t> drawn;
  for (const generate::Answer& answer : generate::answer_all(engine, std::move(requests)))
    for (const generate::TokenReport& token : answer.tokens) drawn.push_back(token.id);
  add(sources, "greedy", at::tensor(drawn, at::kLong).view({tokens.size(0), -1}));
}

data::Batch batch_of(const at::Tensor& tokens) {
  data::Batch batch;
  batch.B = tokens.size(0);
  batch.T = tokens.size(1);
  batch.segment_bounds.push_back(0);
  const at::Tensor flat = tokens.contiguous().flatten();
  batch.tokens.assign(flat.const_data_ptr<std::int64_t>(),
                      flat.const_data_ptr<std::int64_t>() + flat.numel());
  for (std::int64_t row = 0; row < batch.B; ++row) {
    for (std::int64_t i = 0; i < batch.T; ++i) {
      const auto at = static_cast<std::size_t>(row * batch.T + i);
      batch.positions.push_back(i);
      batch.targets.push_back(i + 1 < batch.T ? batch.tokens[at + 1] : data::kIgnoreTarget);
    }
    batch.segment_bounds.push_back(static_cast<std::int32_t>((row + 1) * batch.T));
    batch.sample_indices.push_back(row);
    batch.row_lengths.push_back(batch.T);
  }
  batch.num_targets = batch.update_targets = batch.B * (batch.T - 1);
  batch.update_samples = batch.B;
  batch.update_batches = 1;
  return batch;
}

void add_gradients(Sources& sources, generate::LoadedModel& model, const at::Tensor& tokens) {
  comm::SelfCommunicator world;
  train::TrialShape shape;
  shape.model = model.transformer->config();
  shape.model.moe.router_aux_loss_coef = 0;
  shape.optim.clip_norm = 0;
  train::TrialModel trial(world, shape);
  trireme::testing::set_weights(trial.registry,
                                [&](parallel::ParamId id) { return model.registry.weight(id); });
  const data::Batch batch = batch_of(tokens);
  const train::UpdateResult result =
      trial.step.run(std::span(&batch, 1), batch.num_targets, 1, 1, 0);
  add(sources, "loss",
      at::tensor({result.loss_sum / static_cast<double>(batch.num_targets)}, at::kDouble));
  const at::Tensor all = parallel::gathered_grads(trial.registry, world);
  parallel::ParamId id = 0;
  for (const parallel::GatheredParam& param : parallel::gathered_params(trial.registry))
    add(sources, cat("grad/", param.name), param.of(all).view(trial.registry.spec(id++).shape));
}

int run(const std::vector<std::string>& words) {
  if (words.size() != 4)
    fail(ErrorKind::usage, "family_driver takes CHECKPOINT TOKENS.safetensors OUT.safetensors NEW");
  const at::Tensor tokens = read_tokens(words[1]);
  Sources sources;
  const auto model = generate::load_model(words[0], {}, at::kCPU);
  add_logits(sources, *model, tokens);
  add_greedy(sources, *model, tokens, std::stoll(words[3]));
  const auto wide = generate::load_model(words[0], {at::kDouble, at::kDouble}, at::kCPU);
  add_gradients(sources, *wide, tokens);
  comm::SelfCommunicator alone;
  checkpoint::write_safetensors(words[2], sources, alone);
  return kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("family_driver", [&] {
    hdf5_init();
    return run({argv + 1, argv + argc});
  });
}
