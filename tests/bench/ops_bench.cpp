// Measures every operation of a block, forward and backward, on one thread, at the shape of a 30 M
// parameter model (hidden 512, 8 query and 4 key heads of 64, FFN 1664, vocabulary 6400) for 4 x
// 512 tokens: the operations of this project and those of eager PyTorch (fp32 weights, bf16
// autocast, ATen operations). Uses thread CPU time, so that other processes disturb little.
// usage: ops_bench [repeats, default 7]
#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <ATen/autocast_mode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <string>
#include <vector>

#include "objective/linear_cross_entropy.hpp"
#include "ops/attention.hpp"
#include "ops/gated_activation.hpp"
#include "ops/rms_norm.hpp"
#include "ops/rope.hpp"
#include "support/ops_autograd.hpp"

namespace {

using namespace trireme::ops;
using namespace trireme::ops::testing;
using Tensors = std::vector<at::Tensor>;

constexpr std::int64_t B = 4;
constexpr std::int64_t T = 512;
constexpr std::int64_t C = 512;
constexpr std::int64_t H = 8;
constexpr std::int64_t Hk = 4;
constexpr std::int64_t D = 64;
constexpr std::int64_t F = 1664;
constexpr std::int64_t V = 6400;
constexpr int kLayers = 8;
constexpr double kEps = 1e-6;
const ops::Activation kSilu = ops::find_activation("silu");
int repeats = 7;

double thread_seconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

/// Returns the best of `repeats`, in milliseconds.
double time_ms(const std::function<void()>& body) {
  body();
  double best = 1e30;
  for (int i = 0; i < repeats; ++i) {
    const double start = thread_seconds();
    body();
    best = std::min(best, thread_seconds() - start);
  }
  return best * 1e3;
}

struct Times {
  double forward = 0;
  double both = 0;
};

/// Measures forward alone (graph included), then forward and backward to all `inputs`.
Times time_op(const Tensors& inputs, const std::function<Tensors()>& op) {
  Times times;
  times.forward = time_ms([&] { op(); });
  Tensors grads;
  for (const auto& out : op()) grads.push_back(at::ones_like(out));
  times.both = time_ms([&] { torch::autograd::grad(op(), inputs, grads); });
  return times;
}

void report(const char* name, const Times& ours, const Times& eager) {
  std::printf("%-28s fwd %8.2f vs %8.2f  fwd+bwd %8.2f vs %8.2f ms   %.2fx\n", name, ours.forward,
              eager.forward, ours.both, eager.both, eager.both / ours.both);
  std::fflush(stdout);
}

at::Tensor leaf(at::IntArrayRef shape, at::ScalarType type, double scale = 1.0) {
  return (at::randn(shape) * scale).to(type).requires_grad_();
}

struct Autocast {
  Autocast() {
    at::autocast::set_autocast_enabled(at::kCPU, true);
    at::autocast::set_autocast_dtype(at::kCPU, at::kBFloat16);
    at::autocast::increment_nesting();
  }

  Autocast(const Autocast&) = delete;
  Autocast& operator=(const Autocast&) = delete;

  ~Autocast() {
    if (at::autocast::decrement_nesting() == 0) at::autocast::clear_cache();
    at::autocast::set_autocast_enabled(at::kCPU, false);
  }
};

at::Tensor eager_norm(const at::Tensor& x, const at::Tensor& weight) {
  const auto wide = x.to(at::kFloat);
  return (weight * (wide * at::rsqrt(wide.pow(2).mean(-1, true) + kEps))).to(x.scalar_type());
}

at::Tensor eager_rope(const at::Tensor& x, const at::Tensor& cos, const at::Tensor& sin) {
  const auto halves = x.chunk(2, -1);
  return x * cos + at::cat({-halves[1], halves[0]}, -1) * sin;
}

struct Layer {
  at::Tensor norm1, q_norm, k_norm, norm2;
  at::Tensor q, k, v, qkv, o, gate, up, gate_up, down;
};

Layer make_layer(at::ScalarType type, bool fused) {
  Layer l;
  l.norm1 = leaf({C}, type);
  l.norm2 = leaf({C}, type);
  l.q_norm = leaf({D}, type);
  l.k_norm = leaf({D}, type);
  if (fused) {
    l.qkv = leaf({(H + 2 * Hk) * D, C}, type, 0.04);
    l.gate_up = leaf({2 * F, C}, type, 0.04);
  } else {
    l.q = leaf({H * D, C}, type, 0.04);
    l.k = leaf({Hk * D, C}, type, 0.04);
    l.v = leaf({Hk * D, C}, type, 0.04);
    l.gate = leaf({F, C}, type, 0.04);
    l.up = leaf({F, C}, type, 0.04);
  }
  l.o = leaf({C, H * D}, type, 0.04);
  l.down = leaf({C, F}, type, 0.04);
  return l;
}

Tensors weights_of(const Layer& l) {
  Tensors all;
  for (const auto& w : {l.norm1, l.q_norm, l.k_norm, l.norm2, l.q, l.k, l.v, l.qkv, l.o, l.gate,
                        l.up, l.gate_up, l.down}) {
    if (w.defined()) all.push_back(w);
  }
  return all;
}

at::Tensor repeat_kv(const at::Tensor& x) {  // [B, T, Hk, D] -> [B, T, H, D]
  return x.unsqueeze(3).expand({B, T, Hk, H / Hk, D}).reshape({B, T, H, D});
}

at::Tensor eager_layer(const Layer& l, const at::Tensor& x, const at::Tensor& cos,
                       const at::Tensor& sin) {
  const auto normed = eager_norm(x, l.norm1);
  const auto q =
      eager_rope(eager_norm(at::linear(normed, l.q).view({B, T, H, D}), l.q_norm), cos, sin);
  const auto k =
      eager_rope(eager_norm(at::linear(normed, l.k).view({B, T, Hk, D}), l.k_norm), cos, sin);
  const auto v = at::linear(normed, l.v).view({B, T, Hk, D});
  const auto out = at::scaled_dot_product_attention(q.transpose(1, 2), repeat_kv(k).transpose(1, 2),
                                                    repeat_kv(v).transpose(1, 2), {}, 0.0, true);
  const auto h = x + at::linear(out.transpose(1, 2).reshape({B, T, H * D}), l.o);
  const auto normed2 = eager_norm(h, l.norm2);
  return h + at::linear(at::silu(at::linear(normed2, l.gate)) * at::linear(normed2, l.up), l.down);
}

/// Chains layers like a model: takes the residual stream and the last branch's output, and returns
/// the same pair.
std::pair<at::Tensor, at::Tensor> our_layer(const Layer& l, const at::Tensor& stream,
                                            const at::Tensor& branch, ops::QkNormRope setup,
                                            const ops::AttentionSetup& attention_setup) {
  setup.q_weight = l.q_norm;
  setup.k_weight = l.k_norm;
  const auto [x, normed] = add_rms_norm(stream, branch, l.norm1, kEps);
  const auto [q, k, v] = qkv_norm_rope(at::linear(normed, l.qkv), H, Hk, setup);
  const auto out = ops::attention(q, k, v, attention_setup);
  const auto projected = at::linear(out.transpose(1, 2).reshape({B, T, H * D}), l.o);
  const auto [h, normed2] = add_rms_norm(x, projected, l.norm2, kEps);
  return {h, at::linear(ops::gated_activation(at::linear(normed2, l.gate_up), kSilu), l.down)};
}

void bench_linears() {
  std::printf("linear GF/s, %ld tokens: forward, dX, dW\n", static_cast<long>(B * T));

  struct Shape {
    const char* name;
    std::int64_t in, out;
  };

  for (const auto& s : {Shape{"qkv fused", C, (H + 2 * Hk) * D}, Shape{"q", C, H * D},
                        Shape{"k", C, Hk * D}, Shape{"gate+up", C, 2 * F}, Shape{"gate", C, F},
                        Shape{"down", F, C}, Shape{"head", C, V}}) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      const at::NoGradGuard no_grad;
      const auto x = at::randn({B * T, s.in}).to(type);
      const auto w = at::randn({s.out, s.in}).to(type);
      const auto dy = at::randn({B * T, s.out}).to(type);
      const double work = 2e-6 * static_cast<double>(B * T * s.in * s.out);
      std::printf("  %-10s %5ld -> %5ld %-9s %6.0f %6.0f %6.0f\n", s.name, static_cast<long>(s.in),
                  static_cast<long>(s.out), at::toString(type),
                  work / time_ms([&] { at::linear(x, w); }), work / time_ms([&] { at::mm(dy, w); }),
                  work / time_ms([&] { at::mm(dy.t(), x); }));
    }
  }
}

struct Fixture {
  ops::RopeTables tables = ops::rope_tables(T, D, 1e6, at::kFloat);
  at::Tensor positions = at::arange(T, at::kLong).expand({B, T}).contiguous();
  at::Tensor cos = at::cat({tables.cos, tables.cos}, -1).view({1, T, 1, D});
  at::Tensor sin = at::cat({tables.sin, tables.sin}, -1).view({1, T, 1, D});
  ops::AttentionSetup whole{1.0 / std::sqrt(static_cast<double>(D)), true, {}};
  ops::AttentionSetup documents{
      whole.scale,
      true,
      {{0, 512}, {0, 200, 512}, {0, 90, 260, 400, 512}, {0, 60, 150, 250, 330, 420, 512}}};

  [[nodiscard]] ops::QkNormRope rope() const { return {{}, {}, kEps, tables, positions}; }
};

void bench_row_ops(const Fixture& f) {
  const auto x = leaf({B, T, C}, at::kBFloat16);
  const auto r = leaf({B, T, C}, at::kBFloat16);
  const auto w = leaf({C}, at::kBFloat16);
  const auto x32 = leaf({B, T, C}, at::kFloat);
  const auto w32 = leaf({C}, at::kFloat);
  report("rms_norm", time_op({x, w}, [&] { return Tensors{rms_norm(x, w, kEps)}; }),
         time_op({x32, w32}, [&] { return Tensors{eager_norm(x32, w32)}; }));
  report("add_rms_norm",
         time_op({x, r, w},
                 [&] {
                   auto out = add_rms_norm(x, r, w, kEps);
                   return Tensors{out.first, out.second};
                 }),
         time_op({x32, r, w32}, [&] {
           const auto sum = x32 + r;
           return Tensors{sum, eager_norm(sum, w32)};
         }));

  const auto qkv = leaf({B, T, (H + 2 * Hk) * D}, at::kBFloat16);
  const auto qw = leaf({D}, at::kBFloat16);
  const auto kw = leaf({D}, at::kBFloat16);
  const auto q = leaf({B, T, H, D}, at::kBFloat16);
  const auto k = leaf({B, T, Hk, D}, at::kBFloat16);
  const auto qw32 = leaf({D}, at::kFloat);
  auto setup = f.rope();
  setup.q_weight = qw;
  setup.k_weight = kw;
  report("qkv_norm_rope",
         time_op({qkv, qw, kw},
                 [&] {
                   auto out = qkv_norm_rope(qkv, H, Hk, setup);
                   return Tensors{out.q, out.k, out.v};
                 }),
         time_op({q, k, qw32}, [&] {
           return Tensors{eager_rope(eager_norm(q, qw32), f.cos, f.sin),
                          eager_rope(eager_norm(k, qw32), f.cos, f.sin)};
         }));

  const auto gate_up = leaf({B, T, 2 * F}, at::kBFloat16);
  const auto gate = leaf({B, T, F}, at::kBFloat16);
  const auto up = leaf({B, T, F}, at::kBFloat16);
  const auto ours = [&](const char* name) {
    return time_op({gate_up}, [&, activation = ops::find_activation(name)] {
      return Tensors{ops::gated_activation(gate_up, activation)};
    });
  };
  report("silu, gated", ours("silu"),
         time_op({gate, up}, [&] { return Tensors{at::silu(gate) * up}; }));
  report("gelu_tanh, gated", ours("gelu_tanh"),
         time_op({gate, up}, [&] { return Tensors{at::gelu(gate, "tanh") * up}; }));
  report("relu2, gated", ours("relu2"),
         time_op({gate, up}, [&] { return Tensors{at::relu(gate).square() * up}; }));
}

void bench_attention(const Fixture& f) {
  const auto q = leaf({B, H, T, D}, at::kBFloat16);
  const auto k = leaf({B, Hk, T, D}, at::kBFloat16);
  const auto v = leaf({B, Hk, T, D}, at::kBFloat16);
  const auto eager = [&](const std::optional<at::Tensor>& mask) {
    return time_op({q, k, v}, [&] {
      return Tensors{at::scaled_dot_product_attention(q, k.repeat_interleave(H / Hk, 1),
                                                      v.repeat_interleave(H / Hk, 1), mask, 0.0,
                                                      !mask.has_value())};
    });
  };
  report("attention, whole rows",
         time_op({q, k, v}, [&] { return Tensors{ops::attention(q, k, v, f.whole)}; }), eager({}));
  const auto mask = ops::attention_mask(f.documents, B, T, at::kCPU).unsqueeze(1);
  report("attention, 13 documents",
         time_op({q, k, v}, [&] { return Tensors{ops::attention(q, k, v, f.documents)}; }),
         eager(mask));
}

Times bench_head(Times& eager) {
  const auto x = leaf({B * T, C}, at::kBFloat16);
  const auto w = leaf({V, C}, at::kBFloat16, 0.04);
  const auto x32 = leaf({B * T, C}, at::kFloat);
  const auto w32 = leaf({V, C}, at::kFloat, 0.04);
  const auto targets = at::randint(0, V, {B * T}, at::kLong);
  // Its backward is computed in forward.
  const Times ours{time_ms([&] { linear_cross_entropy(x, w, targets, {.want_grads = false}); }),
                   time_ms([&] { linear_cross_entropy(x, w, targets); })};
  eager = time_op({x32, w32}, [&] {
    const Autocast autocast;
    const auto logits = at::linear(x32, w32);
    return Tensors{at::cross_entropy_loss(logits, targets, {}, at::Reduction::Sum)};
  });
  report("linear_cross_entropy", ours, eager);
  return ours;
}

void bench_layer(const Fixture& f) {
  Times eager_head;
  const auto our_head = bench_head(eager_head);

  const auto stream = leaf({B, T, C}, at::kBFloat16);
  const auto branch = leaf({B, T, C}, at::kBFloat16);
  const auto ours = make_layer(at::kBFloat16, true);
  auto our_inputs = weights_of(ours);
  our_inputs.insert(our_inputs.end(), {stream, branch});
  const auto our_times = time_op(our_inputs, [&] {
    auto [h, out] = our_layer(ours, stream, branch, f.rope(), f.whole);
    return Tensors{h, out};
  });

  const auto x32 = leaf({B, T, C}, at::kFloat);
  const auto eager = make_layer(at::kFloat, false);
  auto eager_inputs = weights_of(eager);
  eager_inputs.push_back(x32);
  const auto eager_times = time_op(eager_inputs, [&] {
    const Autocast autocast;
    return Tensors{eager_layer(eager, x32, f.cos, f.sin)};
  });
  report("one layer", our_times, eager_times);
  const double ours_ms = kLayers * our_times.both + our_head.both;
  const double eager_ms = kLayers * eager_times.both + eager_head.both;
  std::printf("%d layers and head: %.0f vs %.0f ms, %.0f vs %.0f tokens/s (no optimizer), %.2fx\n",
              kLayers, ours_ms, eager_ms, B * T / ours_ms * 1e3, B * T / eager_ms * 1e3,
              eager_ms / ours_ms);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc > 1) repeats = std::max(1, std::atoi(argv[1]));
  at::set_num_threads(1);
  at::manual_seed(1);
  std::ifstream info("/proc/cpuinfo");
  std::string family;
  for (std::string line; std::getline(info, line) && line.rfind("flags", 0) != 0;) {
    if (line.rfind("model name", 0) == 0 || line.rfind("cpu family", 0) == 0 ||
        line.rfind("model\t", 0) == 0) {
      family += line.substr(line.find(':') + 1) + ",";
    }
  }
  std::printf(
      "CPU:%s ATen %s, 1 thread, best of %d, thread CPU time; ours (bf16) vs eager (fp32 under "
      "bf16 autocast)\n",
      family.c_str(), at::get_cpu_capability().c_str(), repeats);
  const Fixture fixture;
  bench_row_ops(fixture);
  bench_attention(fixture);
  bench_layer(fixture);
  bench_linears();
}
