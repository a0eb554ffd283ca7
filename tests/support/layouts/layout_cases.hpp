#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/layouts/layout_rows.hpp"
#include "train/verify/layout_trial.hpp"

/// The layouts that are held to train as one process does, and what each trains.
namespace trireme::testing {

/// One value of each of nine factors.
struct LayoutCase {
  std::int64_t number = 0;  // of all: its place in all_layout_cases()
  std::int64_t dp = 1;
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t zero = 0;
  bool sequence = false;
  std::int64_t form = 0;       // of context parallelism, where cp > 1
  std::int64_t recompute = 0;  // kRecomputes
  std::int64_t accumulation = 1;
  bool sgd = false;   // plain, with a clip that bites; else AdamW
  bool lora = false;  // adapters alone are trained; no factor

  [[nodiscard]] int ranks() const { return static_cast<int>(dp * tp * cp); }
};

/// What takes turns over the cases: everything else that could make a layout another training. A
/// function of the case's factors, the optimizer aside.
struct LayoutTurns {
  std::size_t shape = 0;  // model: heads, key heads, tie, dropout, sizes, experts
  RowKind rows = RowKind::documents;
  bool by_work = false;  // places dealt by work
  std::int64_t zero_shard = 0;
  bool zero_reshard = true;
  std::int64_t zero_prefetch = 1;
  std::int64_t zero_persist = 0;
  bool hierarchical = false;
  bool offload = false;
  std::int64_t tp_chunks = 1;
  double bucket_mb = 0;
  LoraConfig adapters = {};  // where there are any
};

inline constexpr std::size_t kNumShapes = 7;

LayoutTurns turns_of(const LayoutCase& one);

/// The factors and the turns, in words.
std::string name_of(const LayoutCase& one);

/// 32 factorizations of 1, 2, 3, 4, 6 and 8 ranks over (dp, tp, cp), with every value of the other
/// factors that can be; fewest ranks first.
std::vector<LayoutCase> all_layout_cases();

/// Of `cases` few that have every pair of values of two factors which any of them has.
std::vector<LayoutCase> covering_set(const std::vector<LayoutCase>& cases);

/// Of `cases` fewer still, which have every single value.
std::vector<LayoutCase> each_value_once(const std::vector<LayoutCase>& cases);

/// Whether TRIREME_TEST_MATRIX is set.
bool is_matrix_run();

/// Of it K - 1 and N. Throws Error(usage) if it is not K/N.
std::pair<std::size_t, std::size_t> matrix_part();

/// The cases of this run: `by_default`, or with TRIREME_TEST_MATRIX=K/N part K of N of `in_matrix`.
/// Throws Error(usage) for another value.
std::vector<LayoutCase> cases_of_this_run(const std::vector<LayoutCase>& by_default,
                                          const std::vector<LayoutCase>& in_matrix);

/// The same layouts with adapters.
std::vector<LayoutCase> with_adapters(std::vector<LayoutCase> cases);

/// What the case trains, in fp64 on plain operations, for 5 updates.
TrialPlan layout_plan(const LayoutCase& one);

/// The same updates on one process, each as one micro-batch.
TrialPlan one_process_plan(const LayoutCase& one);

/// Cases with equal keys have equal one-process plans.
std::string one_process_key(const LayoutCase& one);

/// Of a parameter, whole [its shape], in fp32: of a model that has learned, with activations and
/// scores of order 1 and norms that are not all ones.
at::Tensor learned_values(const ParamRegistry& registry, ParamId id);

/// Sets all weights, on any layout, and in every precision up to its rounding.
void set_weights(ParamRegistry& registry, const std::function<at::Tensor(ParamId)>& values_of);

void set_learned_weights(ParamRegistry& registry);

}  // namespace trireme::testing
