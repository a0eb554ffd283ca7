#pragma once
#include <gtest/gtest.h>

#include <cstdint>
#include <string>

#include "data/order/stream.hpp"
#include "unit/data/small_set.hpp"

namespace trireme::testing {

constexpr std::int64_t kBatch = 12;

/// Data sets a, b and c. The number of a token shows its data set and position.
class Stream : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    folder_ = new TestDirectory("stream");
    write_numbered_set(folder_->path() / "a", 1, 6000, 50, 3, {16});
    write_numbered_set(folder_->path() / "b", 10001, 2500, 30, 1, {16});
    write_numbered_set(folder_->path() / "c", 20001, 1500, 90, 2, {});
  }

  static void TearDownTestSuite() { delete folder_; }

  static std::string at(const std::string& name) { return (folder_->path() / name).string(); }

  /// $a, $b and $c stand for the paths of the data sets.
  static data::StreamConfig config(std::string plan) {
    for (const std::string name : {"a", "b", "c"}) {
      for (std::size_t i = plan.find("$" + name); i != std::string::npos; i = plan.find("$" + name))
        plan.replace(i, 2, at(name));
    }
    data::StreamConfig config;
    config.phases = data::parse_plan(plan, "data.path");
    config.global_batch = kBatch;
    config.seed = 5;
    return config;
  }

  static data::SampleStream open(const std::string& plan) {
    return data::SampleStream::open(config(plan));
  }

  inline static TestDirectory* folder_ = nullptr;
};

}  // namespace trireme::testing
