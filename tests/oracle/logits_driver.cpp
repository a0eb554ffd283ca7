// usage: logits_driver CHECKPOINT TOKENS.safetensors LOGITS.safetensors
// TOKENS has "tokens" [B, T] i64; each row is one document. Writes "logits" [B, T, vocab] f32 of
// the checkpoint's model.
#include <cstring>

#include "checkpoint/exchange/safetensors.hpp"
#include "comm/self/self_communicator.hpp"
#include "core/files/hdf5.hpp"
#include "core/process/run_main.hpp"
#include "generate/load/load_model.hpp"
#include "support/full_logits.hpp"

namespace {

using namespace trireme;

at::Tensor read_tokens(const std::filesystem::path& path) {
  const checkpoint::SafetensorsFile file = checkpoint::SafetensorsFile::open(path);
  const at::Tensor tokens = at::empty(file.entries().at("tokens").shape, at::kLong);
  file.read("tokens", {static_cast<std::byte*>(tokens.data_ptr()), tokens.nbytes()});
  return tokens;
}

int run(const std::vector<std::string>& words) {
  if (words.size() != 3)
    fail(ErrorKind::usage, "logits_driver takes CHECKPOINT TOKENS.safetensors LOGITS.safetensors");
  const auto model = generate::load_model(words[0], {}, at::kCPU);
  parallel::Microbatch batch;
  batch.tokens = read_tokens(words[1]);
  batch.positions = at::arange(batch.length(), at::kLong).expand_as(batch.tokens).contiguous();
  batch.samples = at::zeros({batch.rows()}, at::kLong);
  const at::Tensor logits = full_logits(*model->transformer, batch).contiguous();
  const auto fill = [&](std::span<std::byte> bytes) {
    std::memcpy(bytes.data(), logits.const_data_ptr(), bytes.size());
  };
  comm::SelfCommunicator alone;
  checkpoint::write_safetensors(words[2],
                                std::vector<checkpoint::SafetensorsSource>{
                                    {"logits", DType::f32, logits.sizes().vec(), fill}},
                                alone);
  return kExitDone;
}

}  // namespace

int main(int argc, char** argv) {
  return run_main("logits_driver", [&] {
    hdf5_init();
    return run({argv + 1, argv + argc});
  });
}
