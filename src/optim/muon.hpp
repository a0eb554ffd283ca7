#pragma once
#include <optional>
#include <string>
#include <vector>

#include "optim/adamw.hpp"
#include "optim/matrix_exchange.hpp"
#include "optim/orthogonalize.hpp"

namespace trireme::optim {

/// Value of a learning rate that stands for optim.lr.
inline constexpr double kRateOfRun = -1;
/// Value of optim.momentum_final that stands for optim.momentum_end.
inline constexpr double kNoMomentumDecay = -1;

struct MuonConfig {
  AdamWConfig adamw;  // for embeddings, head and vectors
  std::string orthogonalize = "polar_express";
  double matrix_lr = 0.02;
  double embed_lr = kRateOfRun;
  double head_lr = kRateOfRun;
  double value_lr = kRateOfRun;
  double scalar_lr = kRateOfRun;
  double momentum_start = 0.85;
  std::int64_t momentum_warmup = 300;
  double momentum_end = 0.95;
  double momentum_final = kNoMomentumDecay;
  bool cautious = false;
  bool row_equalize = false;
  bool renormalize = false;
  std::string decay_schedule = "constant";
  std::string groups;

  /// The run that the optimizer is part of. These values are not keys of the optimizer.
  struct Run {
    double peak_lr = 0;            // optim.lr
    bool wsd = false;              // optim.schedule = wsd
    std::int64_t steps = 0;        // train.steps; 0: unknown, so that nothing decays
    std::int64_t decay_begin = 0;  // last step before the decay of wsd
  } run;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    AdamWConfig::fields(self.adamw, visit);
    visit("orthogonalize", self.orthogonalize,
          "orthogonalization of matrices: polar_express, newton_schulz, gram or exact");
    visit("matrix_lr", self.matrix_lr,
          "peak learning rate of matrices, times sqrt(max(1, rows / columns)); -1: optim.lr");
    visit("embed_lr", self.embed_lr, "peak learning rate of embeddings; -1: optim.lr");
    visit("head_lr", self.head_lr, "peak learning rate of an untied head; -1: optim.lr");
    visit("value_lr", self.value_lr, "peak learning rate of value embeddings; -1: optim.lr");
    visit("scalar_lr", self.scalar_lr,
          "peak learning rate of norms and other vectors; -1: optim.lr");
    visit("momentum_start", self.momentum_start, "momentum of the first update, in [0, 1)");
    visit("momentum_warmup", self.momentum_warmup,
          "number of updates in which the momentum goes linearly to momentum_end");
    visit("momentum_end", self.momentum_end, "momentum after its warmup, in [0, 1)");
    visit(
        "momentum_final", self.momentum_final,
        "momentum at the end of the run, in [0, 1): it goes there linearly during the decay of the schedule wsd; -1: momentum_end");
    visit("cautious", self.cautious,
          "weight decay only for elements of matrices that the update also moves towards 0");
    visit("row_equalize", self.row_equalize,
          "scale the rows of each matrix to their mean norm before it is orthogonalized");
    visit("renormalize", self.renormalize,
          "scale each orthogonalized matrix to the norm sqrt(min(rows, columns))");
    visit("decay_schedule", self.decay_schedule,
          "weight decay of matrices over the run: constant, linear (to 0) or cosine (to 0)");
    visit(
        "groups", self.groups,
        "own values of parameter groups as a list of GROUP.SETTING=NUMBER, such as embed.beta2=0.995,smear.lr=0.2. Groups: embed, head, value, scalar, residual_scalar, embedding_scalar, skip_scalar, backout, smear. Settings: lr, beta1, beta2, weight_decay");
  }
};

struct NorMuonConfig : MuonConfig {
  NorMuonConfig() { cautious = true; }

  double matrix_beta2 = 0.9;

  template <class Self, class Visit>
  static void fields(Self& self, Visit&& visit) {
    MuonConfig::fields(self, visit);
    visit("matrix_beta2", self.matrix_beta2,
          "decay of the mean squares of rows or columns of matrices, in [0, 1)");
  }
};

/// Return the momentum and the weight decay of matrices in update `update` (from 1).
double momentum_of(const MuonConfig& config, std::int64_t update);
double weight_decay_of(const MuonConfig& config, std::int64_t update);

void check(const MuonConfig& config, Problems& problems);
void check(const NorMuonConfig& config, Problems& problems);

/// Orthogonalized momentum for matrices, AdamW for embeddings, head and vectors.
///
/// The first slot holds the momentum of matrices and the first moment of other parameters. The
/// second slot holds the second moment of other parameters, and for NorMuon the mean squares of
/// matrices, in the first column or row. Each matrix of a stack (experts; gate and up) is
/// orthogonalized alone.
class MatrixOptimizer : public Optimizer {
 public:
  void step(std::int64_t update, double lr) override;
  [[nodiscard]] std::vector<OptimizerSlot> slots() override;
  [[nodiscard]] std::vector<comm::Communicator*> groups() const override;

 protected:
  /// `matrix_beta2` is set for NorMuon. Collective over the world.
  MatrixOptimizer(const MuonConfig& config, std::optional<double> matrix_beta2,
                  std::string slot_prefix, parallel::ParamRegistry& registry,
                  std::span<const ParamRange> params);

 private:
  /// Matrices of one shape that are orthogonalized together, by their numbers in the exchange.
  using Batch = std::vector<std::size_t>;

  struct Exchange {
    MatrixExchange matrices;
    std::vector<Batch> batches;
  };

  void add_exchange(const StageGrids& grids, bool of_experts);
  [[nodiscard]] at::Tensor orthogonal(const at::Tensor& matrices) const;

  /// Values of one update.
  struct UpdateValues {
    double lr = 0;
    double momentum = 0;
    double weight_decay = 0;
  };

  void update(const Exchange& exchange, const UpdateValues& values);
  void apply(const MatrixRun& run, const at::Tensor& direction, const UpdateValues& values) const;

  MuonConfig config_;
  std::optional<double> matrix_beta2_;
  std::string slot_prefix_;
  parallel::ParamRegistry& registry_;
  Orthogonalize method_;
  std::vector<ParamRange> matrices_;
  AdamW others_;
  at::Tensor momentum_;  // the first slot of others_
  at::Tensor squares_;   // the second slot of others_
  std::vector<Exchange> exchanges_;
};

/// Source: Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024.
class Muon : public MatrixOptimizer {
 public:
  using Config = MuonConfig;
  static constexpr MatrixUse kMatrixUse = MatrixUse::whole;

  Muon(const Config& config, parallel::ParamRegistry& registry, std::span<const ParamRange> params)
      : MatrixOptimizer(config, std::nullopt, "muon", registry, params) {}

  static std::size_t num_slots(const Config& /*config*/) { return 2; }
};

/// Muon that also divides the rows (columns of a wide matrix) by the root of a running mean of
/// their squares. The norm of the matrix stays. Source: Li et al., "NorMuon: making Muon more
/// efficient and scalable", 2025; the dimension follows modded-nanogpt.
class NorMuon : public MatrixOptimizer {
 public:
  using Config = NorMuonConfig;
  static constexpr MatrixUse kMatrixUse = MatrixUse::with_lines;

  NorMuon(const Config& config, parallel::ParamRegistry& registry,
          std::span<const ParamRange> params)
      : MatrixOptimizer(config, config.matrix_beta2, "normuon", registry, params) {}

  static std::size_t num_slots(const Config& /*config*/) { return 2; }
};

}  // namespace trireme::optim
