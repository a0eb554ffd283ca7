#include "optim/weight_average.hpp"

#include <gtest/gtest.h>

#include "comm/thread/thread_world.hpp"

namespace trireme::optim {
namespace {

TEST(WeightAverage, FollowsTheTrainedWeightsAndIsExchangedWithThem) {
  comm::run_ranks(1, [](comm::Communicator& world) {
    const parallel::Mesh mesh(world, {});
    parallel::ParamRegistry registry;
    registry.declare({.name = "frozen", .shape = {2}, .frozen = true});
    registry.begin_unit("trained");
    registry.declare({.name = "trained", .shape = {3}});
    registry.allocate(mesh, {at::kBFloat16, at::kFloat}, at::kCPU);
    const std::size_t unit = registry.layout().trainable_units().front();
    const auto weights = [&] { return registry.master_part(unit)[1].item<float>(); };
    WeightAverage average(registry, 0.75);
    const auto ema = [&] { return registry.part_of(average.slot().flat, unit)[1].item<float>(); };

    registry.master_part(unit).fill_(8);
    average.reset();
    EXPECT_EQ(ema(), 8) << "the average begins with the weights";
    registry.master_part(unit).fill_(4);
    average.update();
    EXPECT_EQ(ema(), 7);
    registry.master_part(unit).fill_(3);
    average.update();
    EXPECT_EQ(ema(), 6);

    average.swap();
    EXPECT_EQ(weights(), 6);
    EXPECT_EQ(registry.weight(1)[1].item<float>(), 6) << "the model computes with the average";
    average.swap();
    EXPECT_EQ(weights(), 3);
    EXPECT_EQ(ema(), 6);
    EXPECT_EQ(registry.weight(1)[1].item<float>(), 3);
    EXPECT_EQ(average.slot().flat.scalar_type(), at::kFloat) << "the dtype of master weights";
  });
}

}  // namespace
}  // namespace trireme::optim
