#include "core/operation_record.hpp"

#include <gtest/gtest.h>

#include <chrono>
#include <thread>

namespace trireme {
namespace {

using std::chrono::milliseconds;

const OperationRecord::Total& total(const OperationRecord& record, StepWork work) {
  return record.totals()[static_cast<std::size_t>(work)];
}

TEST(OperationRecord, TimesOfNestedMarksCountOnceAndAddUpToTheWhole) {
  OperationRecord record;
  const auto begin = std::chrono::steady_clock::now();
  record.start();
  {
    const OperationMark outer(StepWork::head);
    std::this_thread::sleep_for(milliseconds(4));
    {
      const OperationMark inner(StepWork::comm);
      std::this_thread::sleep_for(milliseconds(8));
    }
    std::this_thread::sleep_for(milliseconds(4));
  }
  std::this_thread::sleep_for(milliseconds(2));
  record.stop();
  const double all_s =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  EXPECT_GE(total(record, StepWork::head).seconds, 0.008);
  EXPECT_GE(total(record, StepWork::comm).seconds, 0.008);
  EXPECT_GE(total(record, StepWork::other).seconds, 0.002);
  double sum_s = 0;
  for (const OperationRecord::Total& one : record.totals()) sum_s += one.seconds;
  EXPECT_LE(sum_s, all_s);
  EXPECT_GE(sum_s, 0.018);
  EXPECT_LT(total(record, StepWork::comm).seconds, all_s - 0.0099);
}

TEST(OperationRecord, AProductCountsForTheMarkThatSurroundsIt) {
  OperationRecord record;
  record.start();
  { const ProductMark alone(StepWork::matmul_forward, 6); }
  {
    const OperationMark outer(StepWork::matmul_dx);
    const ProductMark product(StepWork::matmul_forward, 10);
  }
  record.stop();
  EXPECT_EQ(total(record, StepWork::matmul_forward).flops, 6);
  EXPECT_EQ(total(record, StepWork::matmul_dx).flops, 10);
}

TEST(OperationRecord, MarksWithoutARecordAndOfOtherThreadsChangeNothing) {
  { const ProductMark before(StepWork::head, 1); }
  OperationRecord record;
  record.start();
  std::thread other([] { const ProductMark mark(StepWork::head, 2); });
  other.join();
  record.stop();
  { const ProductMark after(StepWork::head, 4); }
  EXPECT_EQ(total(record, StepWork::head).flops, 0);
}

}  // namespace
}  // namespace trireme
