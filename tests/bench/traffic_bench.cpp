// Counts kernel launches and bytes moved of a training step as a GPU would run it, and estimates
// step time and MFU of an A100 and an H100 from them. Nothing runs on a GPU: the step runs on the
// CPU in bf16 with 1 or 2 layers, rows and micro-batches, and the counts, which are linear in each
// of the three, are extended to the whole shape. A run with 3 layers checks the extension.
//
//   plain  every operation as ATen operations, as on a GPU without the kernels of ops/cuda
//   fused  operations with a kernel in ops/cuda by the launches and bytes of that kernel
//
// Attention is ATen's flash attention in both columns, by formula (flash_attention()). Products are
// LibTorch's. A GPU writes weight gradients in fp32, but the counts have 2 bytes for each element.
// usage: bench_traffic [--list] [minimind-1024x16|gpt-124m]...
//   --list  also print the ATen operations of an update with 3 layers and one row
#include <ATen/ATen.h>
#include <torch/csrc/autograd/autograd.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <string>
#include <vector>

#include "bench/aten_recorder.hpp"
#include "bench/fused_work.hpp"
#include "comm/self/self_communicator.hpp"
#include "device/precision.hpp"
#include "ops/attention.hpp"
#include "ops/operations.hpp"
#include "ops/product.hpp"
#include "train/verify/trial_model.hpp"

namespace trireme::bench {
namespace {

/// Three factors of a run.
struct Size {
  double layers = 1;
  double rows = 1;
  double micro_steps = 1;
};

data::Batch make_batch(const Shape& shape, std::int64_t rows) {
  const auto length = static_cast<std::int64_t>(shape.length);
  data::Batch batch;
  batch.B = rows;
  batch.T = length;
  batch.segment_bounds.push_back(0);
  for (std::int64_t row = 0; row < rows; ++row) {
    for (std::int64_t i = 0; i < length; ++i) {
      batch.tokens.push_back((row * 7919 + i * 31) % shape.model.vocab_size);
      batch.positions.push_back(i);
      batch.targets.push_back(i + 1 < length ? (row * 7919 + (i + 1) * 31) % shape.model.vocab_size
                                             : data::kIgnoreTarget);
    }
    batch.segment_bounds.push_back(static_cast<std::int32_t>((row + 1) * length));
    batch.sample_indices.push_back(row);
  }
  batch.num_targets = rows * (length - 1);
  return batch;
}

/// Returns the ATen operations of attention on this CPU, forward and backward in one layer. They
/// are no part of the step on a GPU.
Work cpu_attention(const Shape& shape, std::int64_t rows) {
  const model::ModelConfig& c = shape.model;
  const auto length = static_cast<std::int64_t>(shape.length);
  const auto heads = [&](std::int64_t count) {
    return at::rand({rows, count, length, c.head_dim}).to(at::kBFloat16).requires_grad_();
  };
  const at::Tensor q = heads(c.num_heads);
  const at::Tensor k = heads(c.num_kv_heads);
  const at::Tensor qkv =
      at::rand({rows, length, (c.num_heads + 2 * c.num_kv_heads) * c.head_dim}).to(at::kBFloat16);
  const at::Tensor v =
      qkv.narrow(2, (c.num_heads + c.num_kv_heads) * c.head_dim, c.num_kv_heads * c.head_dim)
          .view({rows, length, c.num_kv_heads, c.head_dim})
          .transpose(1, 2)
          .requires_grad_();
  const at::Tensor grad = at::rand({rows, c.num_heads, length, c.head_dim}).to(at::kBFloat16);
  WorkByName work;
  {
    const AtenRecorder recorder(work);
    const at::Tensor out = ops::attention(q, k, v, c.attention_setup(0));
    torch::autograd::grad({out}, {q, k, v}, {grad});
  }
  Work sum;
  for (const auto& [name, one] : work) sum += one;
  return sum;
}

/// Counts one update of `size`, without attention.
Work count_update(const Shape& shape, const Size& size, const std::vector<ops::Operation>& plain,
                  WorkByName* names = nullptr) {
  train::TrialShape trial_shape{shape.model};
  trial_shape.model.num_layers = static_cast<std::int64_t>(size.layers);
  trial_shape.model.max_seq_len = static_cast<std::int64_t>(shape.length);
  trial_shape.dtypes = device::precision_dtypes("bf16");
  trial_shape.path = ops::Path::fast;
  trial_shape.optim.name = "adamw";
  comm::SelfCommunicator world;
  train::TrialModel trial(world, trial_shape);
  const auto rows = static_cast<std::int64_t>(size.rows);
  const std::vector<data::Batch> batches(static_cast<std::size_t>(size.micro_steps),
                                         make_batch(shape, rows));
  ops::compute_plainly(plain);
  WorkByName work;
  {
    const AtenRecorder recorder(work);
    trial.step.run(batches, 1, 1, 1, 1e-4);
  }
  ops::compute_plainly({});
  Work sum;
  for (const auto& [name, one] : work) sum += one;
  if (names != nullptr) *names = work;
  Work cpu_only = cpu_attention(shape, rows);
  cpu_only.host_waits += 2;  // the check of the positions in every layer
  return sum - cpu_only * (size.layers * size.micro_steps);
}

/// Counts at the corners of sizes 1 and 2, from which at() extends linearly in each factor.
class Extension {
 public:
  Extension(const Shape& shape, const std::vector<ops::Operation>& plain) {
    for (std::size_t i = 0; i < corners_.size(); ++i)
      corners_.at(i) = count_update(shape, corner(i), plain);
  }

  [[nodiscard]] Work at(const Size& size) const {
    Work sum;
    for (std::size_t i = 0; i < corners_.size(); ++i) {
      const Size here = corner(i);
      const auto weight = [](double at, double value) { return at == 1 ? 2 - value : value - 1; };
      sum += corners_.at(i) * (weight(here.layers, size.layers) * weight(here.rows, size.rows) *
                               weight(here.micro_steps, size.micro_steps));
    }
    return sum;
  }

 private:
  static Size corner(std::size_t i) {
    return {i & 1U ? 2.0 : 1.0, i & 2U ? 2.0 : 1.0, i & 4U ? 2.0 : 1.0};
  }

  std::array<Work, 8> corners_;
};

/// A gradient-accumulation step, and the rest of the update.
struct Counted {
  Work micro_step;
  Work update;
};

Counted counted(const Extension& extension, const Shape& shape) {
  const auto layers = static_cast<double>(shape.model.num_layers);
  const Work one = extension.at({layers, shape.rows, 1});
  const Work micro_step = extension.at({layers, shape.rows, 2}) - one;
  return {micro_step, one - micro_step};
}

struct Device {
  const char* name;
  double flops;  // dense bf16, data sheet
  double bytes_per_s;
};

/// Data sheets of A100 SXM4 80 GB and H100 SXM5.
constexpr std::array<Device, 2> kDevices{{{"A100", 312e12, 2.04e12}, {"H100", 989.4e12, 3.35e12}}};

/// Shares of the peaks that large bf16 products and elementwise kernels typically reach, and the
/// share of FlashAttention-2 (forward and backward).
constexpr double kProductShare = 0.70;
constexpr double kBandwidthShare = 0.85;
constexpr double kFlashShare = 0.45;
/// Time between two launches of one host thread, in seconds.
constexpr double kLaunch_s = 5e-6;

/// Returns the estimated time of an update with one gradient-accumulation step, in seconds. `ideal`: all peaks are
/// reached, which is a lower bound.
double step_s(const Device& device, const Work& step, const Work& attention, bool ideal) {
  const double bytes_per_s = device.bytes_per_s * (ideal ? 1 : kBandwidthShare);
  const double products = std::max(step.flops / (device.flops * (ideal ? 1 : kProductShare)),
                                   step.product_bytes / bytes_per_s);
  const double flash = std::max(attention.flops / (device.flops * (ideal ? 1 : kFlashShare)),
                                attention.bytes / bytes_per_s);
  const double memory = (step.bytes - step.product_bytes) / bytes_per_s;
  const double launches = ideal ? 0 : (step.launches + attention.launches) * kLaunch_s;
  return std::max(products + flash + memory, launches);
}

void print_row(const std::string& name, const Work& plain, const Work* fused) {
  std::printf("| %s | %.0f | %.2f |", name.c_str(), plain.launches, plain.bytes / 1e9);
  if (fused == nullptr) std::printf(" | |\n");
  if (fused != nullptr) std::printf(" %.0f | %.2f |\n", fused->launches, fused->bytes / 1e9);
}

void report(const Shape& shape, bool lists_operations) {
  std::vector<ops::Operation> all;
  std::vector<ops::Operation> without_update;
  for (std::size_t i = 0; i < ops::kOperations.size(); ++i) {
    const auto operation = static_cast<ops::Operation>(i);
    if (operation == ops::Operation::attention) continue;
    all.push_back(operation);
    if (operation != ops::Operation::grad_norm && operation != ops::Operation::optimizer)
      without_update.push_back(operation);
  }
  const Extension plain_extension(shape, all);
  const Size check{3, 1, 1};
  const Work expected = plain_extension.at(check);
  WorkByName names;
  const Work found = count_update(shape, check, all, &names);
  if (expected.launches != found.launches || std::abs(expected.bytes / found.bytes - 1) > 1e-12) {
    std::fprintf(
        stderr,
        "counts are not linear: 3 layers need %.0f launches and %.0f bytes, not %.0f and %.0f\n",
        found.launches, found.bytes, expected.launches, expected.bytes);
    std::exit(1);
  }
  const Counted plain = counted(plain_extension, shape);
  if (lists_operations) {
    for (const auto& [name, work] : names)
      std::printf("%-40s %8.0f launches %10.3f GB %4.0f waits\n", name.c_str(), work.launches,
                  work.bytes / 1e9, work.host_waits);
  }
  const Work attention = flash_attention(shape);
  std::printf("\n## %s: %.0f x %.0f tokens, %.1f M parameters\n\n", shape.name.c_str(), shape.rows,
              shape.length, shape.model.num_parameters_wide() / 1e6);
  std::printf(
      "| | plain launches | plain GB | fused launches | fused GB |\n|---|---|---|---|---|\n");
  Counted fused = plain;
  for (const FusedOperation& one : fused_operations()) {
    const Work own = plain_work(shape, one);
    const Work kernel = one.fused(shape);
    print_row(one.name, own, &kernel);
    fused.micro_step = fused.micro_step - own + kernel;
  }
  print_row("flash attention", attention, &attention);
  const Work plain_micro = plain.micro_step + attention;
  const Work fused_micro = fused.micro_step + attention;
  // The kernels of a CPU for these two operations dispatch nothing, so the rest of the update remains.
  fused.update = counted(Extension(shape, without_update), shape).update + fused_update(shape);
  print_row("**gradient-accumulation step**", plain_micro, &fused_micro);
  print_row("**rest of the update**", plain.update, &fused.update);
  std::printf(
      "\nHost waits: %.0f per gradient-accumulation step, %.0f per update. Products: %.1f TFLOP, attention: %.1f TFLOP.\n",
      plain.micro_step.host_waits, plain.update.host_waits, plain.micro_step.flops / 1e12,
      attention.flops / 1e12);
  std::printf(
      "\n| | plain ms | plain MFU | fused ms | fused MFU | bound ms |\n|---|---|---|---|---|---|\n");
  const double model_flops =
      shape.tokens() * shape.model.flops_per_token(static_cast<std::int64_t>(shape.length));
  for (const Device& device : kDevices) {
    const Work before = plain.micro_step + plain.update;
    const Work after = fused.micro_step + fused.update;
    const double plain_s = step_s(device, before, attention, false);
    const double fused_s = step_s(device, after, attention, false);
    std::printf("| %s | %.1f | %.1f %% | %.1f | %.1f %% | %.1f |\n", device.name, plain_s * 1e3,
                100 * model_flops / plain_s / device.flops, fused_s * 1e3,
                100 * model_flops / fused_s / device.flops,
                1e3 * step_s(device, after, attention, true));
  }
  std::fflush(stdout);
}

Shape shape_named(const std::string& name) {
  Shape shape{.name = name, .model = {}};
  shape.length = 1024;
  if (name == "gpt-124m") {
    shape.model = model::model_preset("minimind-2");
    shape.model.preset = "";
    shape.model.num_layers = 12;
    shape.model.num_heads = 12;
    shape.model.num_kv_heads = 12;
    shape.model.head_dim = 64;
    shape.model.intermediate_size = 2048;  // 8 / 3 of the width
    shape.rows = 64;
    model::resolve(shape.model, 50304);
  } else {
    shape.model = model::model_preset(name);
    shape.rows = 32;
    model::resolve(shape.model, 6400);
  }
  return shape;
}

}  // namespace
}  // namespace trireme::bench

int main(int argc, char** argv) {
  using namespace trireme;
  if (ops::widens_products(at::empty({1}, at::kBFloat16))) {
    std::fprintf(
        stderr,
        "This CPU multiplies bf16 in fp32, so the counts would contain conversions that no GPU runs.\n");
    return 1;
  }
  std::vector<std::string> names(argv + 1, argv + argc);
  const bool lists_operations = std::erase(names, "--list") > 0;
  if (names.empty()) names = {"minimind-1024x16", "gpt-124m"};
  for (const std::string& name : names) bench::report(bench::shape_named(name), lists_operations);
}
