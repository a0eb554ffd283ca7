#pragma once
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "support/layouts/layout_rows.hpp"
#include "train/verify/layout_trial.hpp"

/// The layouts that must train like one process, and the model and data of each.
namespace trireme::testing {

/// The values of the nine factors of one case.
struct LayoutCase {
  std::int64_t number = 0;  // index in all_layout_cases()
  std::int64_t dp = 1;
  std::int64_t tp = 1;
  std::int64_t cp = 1;
  std::int64_t zero = 0;
  bool sequence = false;
  std::int64_t form = 0;       // for cp > 1
  std::int64_t recompute = 0;  // index in kRecomputes
  std::int64_t accumulation = 1;
  bool sgd = false;   // SGD with a clip norm that takes effect; false: AdamW
  bool lora = false;  // trains adapters only; not a factor
  bool muon = false;  // Muon or NorMuon instead of AdamW; not a factor

  [[nodiscard]] int ranks() const { return static_cast<int>(dp * tp * cp); }
};

/// The settings that cycle over the cases: everything else that could make a layout train
/// differently. They are a function of the factors of the case, except for the optimizer.
struct LayoutSettings {
  std::size_t shape = 0;  // model: heads, key heads, tied embeddings, dropout, sizes, experts
  RowKind rows = RowKind::documents;
  bool by_work = false;  // positions are sharded by work
  std::int64_t zero_shard = 0;
  bool zero_reshard = true;
  std::int64_t zero_prefetch = 1;
  std::int64_t zero_persist = 0;
  bool hierarchical = false;
  bool offload = false;
  std::int64_t tp_chunks = 1;
  double bucket_mb = 0;
  model::LoraConfig adapters = {};  // for models with experts
};

inline constexpr std::size_t kNumShapes = 7;

LayoutSettings layout_settings_of(const LayoutCase& one);

/// Describes the factors and the other settings in words.
std::string name_of(const LayoutCase& one);

/// Returns 32 factorizations of 1, 2, 3, 4, 6 and 8 ranks over (dp, tp, cp), each with every
/// possible value of the other factors. Fewer ranks come first.
std::vector<LayoutCase> all_layout_cases();

/// Returns each layout of all_layout_cases() with only one of its two optimizers, drawn at random.
std::vector<LayoutCase> with_one_optimizer(std::vector<LayoutCase> cases);

/// Returns a small subset of `cases` that contains every pair of values of two factors that occurs
/// in any case.
std::vector<LayoutCase> covering_set(const std::vector<LayoutCase>& cases);

/// Returns a still smaller subset of `cases` that contains every single value.
std::vector<LayoutCase> each_value_once(const std::vector<LayoutCase>& cases);

/// Returns true if TRIREME_TEST_MATRIX is set.
bool is_matrix_run();

/// Returns K - 1 and N of TRIREME_TEST_MATRIX=K/N. Throws Error(usage) for any other form.
std::pair<std::size_t, std::size_t> matrix_part();

/// Returns the cases of this run: `by_default`, or with TRIREME_TEST_MATRIX=K/N part K of N of
/// `in_matrix`. Throws Error(usage) for any other form.
std::vector<LayoutCase> cases_of_this_run(const std::vector<LayoutCase>& by_default,
                                          const std::vector<LayoutCase>& in_matrix);

/// Returns the same layouts with adapters.
std::vector<LayoutCase> with_adapters(std::vector<LayoutCase> cases);

/// Returns the layouts of the cases with AdamW, with an optimizer of whole matrices. Its settings
/// cycle over the cases.
std::vector<LayoutCase> with_muon(std::vector<LayoutCase> cases);

/// Returns the configuration of the case: 3 updates in fp64 with the plain operations.
train::TrialPlan layout_plan(const LayoutCase& one);

/// Returns the same updates on one process, with one micro-batch for each update.
train::TrialPlan one_process_plan(const LayoutCase& one);

/// Cases with equal keys have equal one-process configurations.
std::string one_process_key(const LayoutCase& one);

/// Returns values for a whole parameter [its shape] in fp32 as in a trained model: activations and
/// scores have order 1, and norms are not all ones.
at::Tensor learned_values(const parallel::ParamRegistry& registry, parallel::ParamId id);

/// Sets all weights, for any layout and precision (up to rounding).
void set_weights(parallel::ParamRegistry& registry,
                 const std::function<at::Tensor(parallel::ParamId)>& values_of);

void set_learned_weights(parallel::ParamRegistry& registry);

}  // namespace trireme::testing
