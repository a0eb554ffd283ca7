#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "comm/factory.hpp"
#include "core/error.hpp"
#include "mpi/launch_main.hpp"
#include "unit/comm/values.hpp"

/// Tests the parts that only the mpi backend has: the library path, timeouts and size errors with
/// real processes, huge messages.
namespace trireme::testing {
namespace {

std::unique_ptr<comm::Communicator> world_with(double timeout_s,
                                               comm::MpiReduce reduce = comm::MpiReduce::ordered) {
  comm::CommOptions options;
  options.timeout_s = timeout_s;
  options.mpi_reduce = reduce;
  return comm::make_world("mpi", *g_launch, options);
}

TEST(MpiLibraryPath, ReducesAsTheOrderedPath) {
  const auto library = world_with(60, comm::MpiReduce::library);
  const auto ordered = world_with(60);
  const auto n = static_cast<std::uint64_t>(library->size());
  const auto me = static_cast<std::uint64_t>(library->rank());
  for (const DType dtype : kAllTypes) {
    for (const comm::ReduceOp op :
         {comm::ReduceOp::sum, comm::ReduceOp::max, comm::ReduceOp::min}) {
      for (const std::uint64_t count : {0, 1, 777}) {
        const Bytes input = whole_values(library->rank(), n * count, dtype);
        Bytes whole = input;
        Bytes expected(input.size());
        comm::Reduction request{input.data(), expected.data(), n * count, dtype, op};
        ordered->all_reduce(request)->wait();
        request.input = request.output = whole.data();
        library->all_reduce(request)->wait();
        ASSERT_EQ(whole, expected) << dtype_name(dtype);

        Bytes part(count * size_of(dtype));
        request = {input.data(), part.data(), count, dtype, op};
        library->reduce_scatter(request)->wait();
        EXPECT_TRUE(std::equal(part.begin(), part.end(),
                               expected.begin() + static_cast<std::ptrdiff_t>(me * part.size())));
        Bytes in_place = input;
        std::byte* own = in_place.data() + me * part.size();
        request.input = in_place.data();
        request.output = own;
        library->reduce_scatter(request)->wait();
        EXPECT_TRUE(std::equal(part.begin(), part.end(), own));
      }
    }
  }
}

TEST(MpiCommunicator, MissingRankTimesOut) {
  const auto outer = world_with(60);
  if (outer->size() == 1) GTEST_SKIP() << "needs two ranks";
  {
    const auto world = world_with(0.3);
    float x = 1;
    if (world->rank() == 1) {
      try {
        world->all_reduce(f32_sum(&x, &x, 1, "loss"))->wait();
        ADD_FAILURE() << "no timeout";
      } catch (const Error& e) {
        EXPECT_EQ(e.kind(), ErrorKind::comm);
        EXPECT_NE(std::string(e.what()).find("all_reduce 'loss' of group world (rank 1"),
                  std::string::npos)
            << e.what();
      }
    }
    outer->barrier();
  }
}

TEST(MpiCommunicator, DifferentSizesAreNamed) {
  const auto outer = world_with(60);
  if (outer->size() != 2) GTEST_SKIP() << "needs two ranks exactly";
  {
    const auto world = world_with(5);
    std::vector<float> data(10);
    const std::uint64_t count = world->rank() == 0 ? 10 : 9;
    try {
      world->all_reduce(f32_sum(data.data(), data.data(), count, "loss"))->wait();
      ADD_FAILURE() << "no error";
    } catch (const Error& e) {
      EXPECT_NE(std::string(e.what()).find("all_reduce 'loss'"), std::string::npos) << e.what();
    }
    outer->barrier();
  }
}

/// Sends 2^31 + 3 elements of one byte, which exceeds the range of MPI's int counts. Run with
/// --gtest_filter=*Huge* (label large).
TEST(DISABLED_Huge, MessagesPastTwoToThe31Elements) {
  constexpr std::uint64_t kCount = (std::uint64_t{1} << 31) + 3;
  for (const comm::MpiReduce reduce : {comm::MpiReduce::ordered, comm::MpiReduce::library}) {
    const auto world = world_with(500, reduce);
    std::vector<std::uint8_t> data(kCount);
    const auto fill = [&](std::uint64_t i) {
      return static_cast<std::uint8_t>(i % 101 + i / (kCount / 7));
    };
    for (std::uint64_t i = 0; i < kCount; ++i) data[i] = fill(i);
    world
        ->all_reduce({.input = data.data(),
                      .output = data.data(),
                      .count = kCount,
                      .dtype = DType::u8,
                      .op = comm::ReduceOp::sum})
        ->wait();
    for (std::uint64_t i = 0; i < kCount; ++i) {
      ASSERT_EQ(data[i], static_cast<std::uint8_t>(fill(i) * world->size())) << i;
    }
    if (world->rank() != 0) std::fill(data.begin(), data.end(), std::uint8_t{0});
    world->broadcast({.data = data.data(), .count = kCount, .dtype = DType::u8, .root = 0})->wait();
    EXPECT_EQ(data[kCount - 1], static_cast<std::uint8_t>(fill(kCount - 1) * world->size()));
    if (reduce == comm::MpiReduce::library) continue;
    if (world->size() < 2) continue;
    if (world->rank() == 0)
      world->exchange({.sends = std::array{comm::Message{1, data.data(), kCount}}})->wait();
    if (world->rank() == 1) {
      std::vector<std::uint8_t> in(kCount);
      world->exchange({.receives = std::array{comm::Message{0, in.data(), kCount}}})->wait();
      EXPECT_EQ(in, data);
    }
  }
}

}  // namespace
}  // namespace trireme::testing

int main(int argc, char** argv) {
  return trireme::testing::run_launched_tests(argc, argv);
}
