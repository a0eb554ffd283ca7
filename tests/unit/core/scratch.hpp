#pragma once
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <string>

#include "core/error.hpp"

namespace trireme {

/// A new directory for each test, which is removed at the end.
class Scratch : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::path(::testing::TempDir()) /
              formatted("trireme_{}_{}", ::getpid(), counter_++);
    std::filesystem::create_directories(folder_);
  }

  void TearDown() override { std::filesystem::remove_all(folder_); }

  [[nodiscard]] std::filesystem::path at(const std::string& name) const { return folder_ / name; }

  [[nodiscard]] std::size_t num_files() const {
    const auto begin = std::filesystem::directory_iterator(folder_);
    return static_cast<std::size_t>(std::distance(begin, std::filesystem::directory_iterator()));
  }

 private:
  static inline int counter_ = 0;
  std::filesystem::path folder_;
};

/// Returns the kind and message of the Error that `body` throws. Fails the test if it throws none.
template <class Body>
Error error_of(Body&& body) {
  try {
    body();
  } catch (const Error& error) {
    return error;
  }
  ADD_FAILURE() << "no Error was thrown";
  return Error(ErrorKind::internal, "no Error was thrown");
}

inline bool contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace trireme
