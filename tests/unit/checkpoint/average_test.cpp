#include "checkpoint/maintenance/average.hpp"

#include "checkpoint/exchange/convert.hpp"
#include "unit/checkpoint/support.hpp"

namespace trireme::test {
namespace {

using checkpoint::AverageCommand;
using checkpoint::Checkpoint;

std::vector<Logical> model_of(unsigned seed) {
  std::vector<Logical> logicals{{"param/rows", DType::f32, {11, 6}, {}},
                                {"param/exact", DType::f64, {7}, {}},
                                {"param/short", DType::bf16, {3, 4}, {}},
                                {"optim/exp_avg/rows", DType::f32, {11, 6}, {}},
                                {"optim/ema/rows", DType::f32, {11, 6}, {}}};
  std::mt19937 random(seed);
  std::normal_distribution<double> normal;
  for (Logical& logical : logicals) {
    std::vector<double> values(
        static_cast<std::size_t>(parallel::Slice::whole(logical.shape).count()));
    for (double& value : values) value = normal(random);
    logical.bytes.resize(values.size() * size_of(logical.dtype));
    checkpoint::convert_floats(DType::f64, std::as_bytes(std::span(values)), logical.dtype,
                               logical.bytes);
  }
  return logicals;
}

std::vector<double> numbers(DType dtype, std::span<const std::byte> bytes) {
  std::vector<double> values(bytes.size() / size_of(dtype));
  checkpoint::convert_floats(dtype, bytes, DType::f64, std::as_writable_bytes(std::span(values)));
  return values;
}

/// Three models in three layouts.
struct ThreeModels {
  TempDirectory folder;
  std::vector<std::vector<Logical>> models{model_of(1), model_of(2), model_of(3)};

  ThreeModels() {
    for (int i = 0; i < 3; ++i)
      save_layout(folder / std::to_string(i), 5, models[static_cast<std::size_t>(i)], i + 1,
                  static_cast<unsigned>(i));
  }

  [[nodiscard]] AverageCommand command(const std::string& output,
                                       const std::string& weights = "") const {
    return {.models = {step(0), step(1), step(2)},
            .output = (folder / output).string(),
            .weights = weights};
  }

  [[nodiscard]] std::string step(int i) const {
    return (folder / std::to_string(i) / "step-000000005").string();
  }

  [[nodiscard]] Checkpoint written(const std::string& output) const {
    return Checkpoint::open(folder / output / "checkpoints/step-000000000");
  }

  /// Expects the weighted mean of tensor `index` of the models, rounded once.
  void expect_mean(const Checkpoint& mean, std::size_t index, const std::string& name,
                   const std::vector<double>& weights) const {
    const DType dtype = models[0][index].dtype;
    std::vector<double> sum = numbers(dtype, models[0][index].bytes);
    for (double& value : sum) value *= weights[0];
    for (std::size_t i = 1; i < 3; ++i) {
      const std::vector<double> other = numbers(dtype, models[i][index].bytes);
      for (std::size_t k = 0; k < sum.size(); ++k) sum[k] += weights[i] * other[k];
    }
    std::vector<std::byte> wanted(models[0][index].bytes.size());
    checkpoint::convert_floats(DType::f64, std::as_bytes(std::span(sum)), dtype, wanted);
    EXPECT_EQ(mean.read_logical(name), wanted) << name;
  }
};

TEST(Average, IsTheMeanInFp64ForAnyLayouts) {
  const ThreeModels three;

  checkpoint::checkpoint_average(three.command("equal"));
  checkpoint::checkpoint_average(three.command("weighted", "0.5,0.75,-0.25"));

  const Checkpoint equal = three.written("equal");
  const Checkpoint weighted = three.written("weighted");
  const double third = 1.0 / 3;
  for (std::size_t i = 0; i < 3; ++i) {
    three.expect_mean(equal, i, three.models[0][i].name, {third, third, third});
    three.expect_mean(weighted, i, three.models[0][i].name, {0.5, 0.75, -0.25});
  }
  EXPECT_EQ(equal.manifest().tensors.size(), 3U) << "no optimizer state";
  EXPECT_FALSE(equal.has_file("config.toml"));
  EXPECT_TRUE(equal.has_file("tokenizer.json"));
}

TEST(Average, TakesTheEmaOfTheWeights) {
  const ThreeModels three;
  AverageCommand command = three.command("ema", "1,0,0");
  command.ema = true;

  checkpoint::checkpoint_average(command);

  EXPECT_EQ(three.written("ema").read_logical("param/rows"), three.models[0][4].bytes);
  EXPECT_EQ(three.written("ema").read_logical("param/exact"), three.models[0][1].bytes)
      << "a frozen weight has no EMA";
}

TEST(Average, RefusesInvalidWeightsAndDifferentShapesByName) {
  const ThreeModels three;
  const auto refused = [](const AverageCommand& command) {
    return message_of(ErrorKind::usage, [&] { checkpoint::checkpoint_average(command); });
  };
  std::vector<Logical> other = model_of(4);
  other[0].shape = {6, 11};
  save_layout(three.folder / "other", 5, other, 1, 0);
  std::vector<Logical> fewer = model_of(5);
  fewer.erase(fewer.begin() + 1);
  save_layout(three.folder / "fewer", 5, fewer, 1, 0);
  const auto with = [&](const std::string& name) {
    return AverageCommand{
        .models = {three.step(0), (three.folder / name / "step-000000005").string()},
        .output = (three.folder / "no").string(),
        .weights = ""};
  };
  AverageCommand single = with("other");
  single.models.pop_back();

  EXPECT_NE(refused(three.command("no", "0.5,0.5")).find("2 numbers for 3"), std::string::npos);
  EXPECT_NE(refused(three.command("no", "0.5,0.5,0.5")).find("sum 1.5"), std::string::npos);
  EXPECT_NE(refused(three.command("no", "0.5,x,0.5")).find("'x' is not a number"),
            std::string::npos);
  EXPECT_NE(refused(with("other")).find("param/rows has the shape [6, 11]"), std::string::npos);
  EXPECT_NE(refused(with("fewer")).find("has no param/exact"), std::string::npos);
  EXPECT_NE(refused(single).find("two checkpoints or more"), std::string::npos);
  AverageCommand used = three.command("equal");
  used.output = (three.folder / "0").string();
  EXPECT_NE(refused(used).find("is not empty"), std::string::npos);
  EXPECT_FALSE(fs::exists(three.folder / "no")) << "a refused command writes nothing";
}

TEST(Average, AdaptersAreRefusedWithTheCommandThatMergesThem) {
  const TempDirectory folder;
  comm::SelfCommunicator alone;
  const checkpoint::StateDict state{{}, {{"lora.rank", "4"}}, {}};
  const std::string place =
      checkpoint::save_checkpoint(folder / "run", 3, state, alone, {"run", true}).string();
  AverageCommand options;
  options.output = (folder / "mean").string();
  for (const bool ema : {false, true}) {
    options.ema = ema;
    options.models = ema ? std::vector{place} : std::vector{place, place};
    try {
      checkpoint::checkpoint_average(options);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::usage);
      EXPECT_TRUE(std::string_view(error.what())
                      .ends_with(ema ? "(`trireme export --ema`, then `trireme import --hf`), and "
                                       "leave out --ema"
                                     : "(`trireme export`, then `trireme import --hf`)"))
          << error.what();
    }
  }
}

}  // namespace
}  // namespace trireme::test
