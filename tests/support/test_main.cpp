// The main function of a program with the tests of several files: `unit_core_tests
// unit/core/json_test` runs the tests of tests/unit/core/json_test.cpp.
#include <gtest/gtest.h>

#include <iostream>
#include <string>
#include <string_view>

namespace {

/// Returns GoogleTest's filter for the tests that tests/<path>.cpp defines; "" if there are none.
std::string filter_of_file(const std::string& path) {
  const std::string end = "/" + path + ".cpp";
  const testing::UnitTest& all = *testing::UnitTest::GetInstance();
  std::string filter;
  for (int i = 0; i < all.total_test_suite_count(); ++i) {
    const testing::TestSuite& suite = *all.GetTestSuite(i);
    for (int j = 0; j < suite.total_test_count(); ++j) {
      const testing::TestInfo& test = *suite.GetTestInfo(j);
      if (std::string_view(test.file()).ends_with(end))
        filter += std::string(suite.name()) + "." + test.name() + ":";
    }
  }
  return filter;
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  // A given filter takes precedence: a death test starts this program again with its own filter.
  if (argc > 1 && GTEST_FLAG_GET(filter) == "*") {
    const std::string filter = filter_of_file(argv[1]);
    if (filter.empty()) {
      std::cerr << "no test of this program is in tests/" << argv[1] << ".cpp\n";
      return 2;
    }
    GTEST_FLAG_SET(filter, filter);
  }
  return RUN_ALL_TESTS();
}
