#include <ATen/record_function.h>

#include <set>

#include "objective/linear_cross_entropy.hpp"
#include "ops/attention.hpp"
#include "ops/dropout.hpp"
#include "ops/gated_activation.hpp"
#include "ops/int8_linear.hpp"
#include "ops/linear.hpp"
#include "ops/matmul.hpp"
#include "ops/operations.hpp"
#include "ops/paged_attention.hpp"
#include "ops/product.hpp"
#include "ops/rms_norm.hpp"
#include "ops/rope.hpp"
#include "optim/block_squares.hpp"
#include "unit/ops/support.hpp"

/// Tests which implementation an operation uses. A wrong choice gives the right values, only more
/// slowly.
namespace trireme::ops::testing {
namespace {

struct Row {
  bool (*accepts)(const at::Tensor& x);
  int id;
};

TEST(Choose, TakesTheFirstRowThatAcceptsAndElseThePlainOne) {
  static constexpr std::array kRows{
      Row{[](const at::Tensor& x) { return x.scalar_type() == at::kHalf; }, 0},
      Row{[](const at::Tensor& x) { return x.element_size() == 2; }, 1}, Row{nullptr, 2}};
  const auto chosen = [](Path path, at::ScalarType type) {
    return choose(path, kRows, at::ones({1}, type)).id;
  };
  EXPECT_EQ(chosen(Path::fast, at::kHalf), 0);
  EXPECT_EQ(chosen(Path::fast, at::kBFloat16), 1);
  EXPECT_EQ(chosen(Path::fast, at::kFloat), 2);
  EXPECT_EQ(chosen(Path::plain, at::kHalf), 2);
}

/// Returns true if `call` dispatches the ATen operation `name`.
bool dispatches(const std::string& name, const std::function<void()>& call) {
  static std::set<std::string> seen;
  seen.clear();
  const auto handle = at::addThreadLocalCallback(at::RecordFunctionCallback(
      [](const at::RecordFunction& function) -> std::unique_ptr<at::ObserverContext> {
        seen.insert(function.name());
        return nullptr;
      }));
  call();
  at::removeCallback(handle);
  return seen.count(name) > 0;
}

/// A call of an operation, and an ATen operation that only its plain implementation uses.
struct Operation {
  const char* name;
  const char* plain_operation;
  std::function<void(at::ScalarType type, Path path)> call;
  std::optional<ops::Operation> name_of_plain_ops = {};
};

at::Tensor some(at::IntArrayRef shape, at::ScalarType type) {
  return random(shape).to(type);
}

std::vector<Operation> operations() {
  const auto norm = [](at::ScalarType type, Path path) {
    return rms_norm_forward(some({3, 8}, type), some({8}, type), kEps, path);
  };
  const auto rope_of = [](at::ScalarType type) {
    const auto tables = rope_tables(4, 16, 1e4, type == at::kDouble ? at::kDouble : at::kFloat);
    return QkNormRope{{}, {}, kEps, tables, at::arange(3).unsqueeze(0)};
  };
  const auto paged = [](at::ScalarType type, Path path, bool store) {
    const auto cache =
        make_paged_cache(2, 1, 16, [&](std::int64_t count) { return at::zeros({count}, type); });
    const auto plan = plan_paged({{0, 1, 0, {1}}}, at::kCPU);
    const auto row = some({1, 1, 1, 16}, type);
    if (store) paged_store(row, row, plan, cache, path);
    if (!store) paged_attention(row, plan, cache, 1.0, path);
  };
  using enum ops::Operation;
  return {
      {"rms_norm forward", "aten::square", norm, rms_norm},
      {"rms_norm backward", "aten::mean",
       [=](at::ScalarType type, Path path) {
         const auto x = some({3, 8}, type);
         rms_norm_backward(x, x, some({8}, type), norm(type, path).rstd, path);
       },
       rms_norm},
      {"gated forward", "aten::silu",
       [](at::ScalarType type, Path path) {
         gated_forward(some({3, 8}, type), find_activation("silu"), path);
       },
       gated_activation},
      {"gated backward", "aten::sigmoid",
       [](at::ScalarType type, Path path) {
         gated_backward(some({3, 4}, type), some({3, 8}, type), find_activation("silu"), path);
       },
       gated_activation},
      {"qkv_norm_rope forward", "aten::cat",
       [=](at::ScalarType type, Path path) {
         qkv_norm_rope_forward(some({1, 3, 48}, type), 1, 1, rope_of(type), path);
       },
       rope},
      {"qkv_norm_rope backward", "aten::cat",
       [=](at::ScalarType type, Path path) {
         const auto grad = some({1, 1, 3, 16}, type);
         qkv_norm_rope_backward(grad, grad, grad, some({1, 3, 48}, type), rope_of(type), path);
       },
       rope},
      {"dropout", "aten::bitwise_xor",
       [](at::ScalarType type, Path path) {
         DropoutMask mask;
         mask.p = 0.5;
         mask.samples = at::zeros({1}, at::kLong);
         mask.positions = at::arange(3).unsqueeze(0);
         dropout_apply(some({1, 3, 8}, type), mask, path);
       },
       dropout},
      {"attention", "aten::logical_not",
       [](at::ScalarType type, Path path) {
         const auto x = some({1, 1, 4, 32}, type);
         ops::attention(x, x, x, {}, path);
       },
       ops::Operation::attention},
      {"inference_linear", "aten::linear",
       [](at::ScalarType type, Path path) {
         inference_linear(some({3, 8}, type), some({4, 8}, type), path);
       }},
      {"inference_linear int8", "aten::linear",
       [](at::ScalarType type, Path path) {
         inference_linear(some({3, 8}, type), to_int8(random({4, 8})), path);
       }},
      {"paged_store", "aten::index_put_",
       [=](at::ScalarType type, Path path) { paged(type, path, true); }},
      {"paged_attention", "aten::softmax",
       [=](at::ScalarType type, Path path) { paged(type, path, false); }},
      {"linear_cross_entropy", "aten::log_softmax",
       [](at::ScalarType type, Path path) {
         objective::linear_cross_entropy(some({3, 8}, type), some({5, 8}, type), at::arange(3), {},
                                         path);
       },
       cross_entropy},
  };
}

TEST(Choose, TakesTheCpuImplementationInFp32AndBf16) {
  for (const Operation& operation : operations()) {
    for (const at::ScalarType type : {at::kFloat, at::kBFloat16, at::kHalf, at::kDouble}) {
      const bool native = type == at::kFloat || type == at::kBFloat16;
      for (const Path path : {Path::fast, Path::plain}) {
        EXPECT_EQ(dispatches(operation.plain_operation, [&] { operation.call(type, path); }),
                  path == Path::plain || !native)
            << operation.name << ' ' << at::toString(type) << ' ' << (path == Path::fast);
      }
    }
  }
}

TEST(Choose, PlainOpsMakeOneOperationPlain) {
  std::vector<ops::Operation> found;
  const at::Tensor matrix = at::ones({32, 32});
  const bool has_products = takes_packed_matmul(matrix, matrix);
  for (std::size_t i = 0; i < kOperations.size(); ++i) {
    const auto plain = static_cast<ops::Operation>(i);
    compute_plainly({&plain, 1});
    for (const Operation& operation : operations()) {
      const bool is_plain = operation.name_of_plain_ops == plain;
      EXPECT_EQ(
          dispatches(operation.plain_operation, [&] { operation.call(at::kFloat, Path::fast); }),
          is_plain)
          << operation.name << " with " << kOperations.at(i);
      if (is_plain) found.push_back(plain);
    }
    const auto words = at::zeros({68}, at::kLong);
    const bool is_norm = plain == ops::Operation::grad_norm;
    EXPECT_EQ(
        dispatches("aten::index_add_", [&] { optim::add_block_squares(at::ones({70}), 0, words); }),
        is_norm);
    if (is_norm) found.push_back(plain);
    const bool is_matmul = plain == ops::Operation::matmul;
    EXPECT_EQ(dispatches("aten::mm", [&] { product(matrix, matrix); }), is_matmul || !has_products);
    if (is_matmul) found.push_back(plain);
  }
  compute_plainly({});
  constexpr std::size_t kNotHere = 3;  // embedding and fp8 have one path; adamw_test has optimizer
  EXPECT_EQ(std::set(found.begin(), found.end()).size(), kOperations.size() - kNotHere);
}

}  // namespace
}  // namespace trireme::ops::testing
