#include "core/process/debugger.hpp"

#include <gtest/gtest.h>
#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

namespace trireme {
namespace {

TEST(Debugger, AProcessWaitsUntilItIsHeld) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    wait_for_debugger("the child");
    ::_exit(7);
  }
  ::usleep(500'000);
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, WNOHANG), 0) << "no debugger is attached yet";
  ASSERT_EQ(::ptrace(PTRACE_SEIZE, child, nullptr, nullptr), 0);
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 7);
}

}  // namespace
}  // namespace trireme
