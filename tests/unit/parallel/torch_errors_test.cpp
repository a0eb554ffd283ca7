#include "device/torch_errors.hpp"

#include <ATen/ATen.h>
#include <gtest/gtest.h>

namespace trireme::parallel {
namespace {

template <class Body>
Error error_of(Body body) {
  try {
    device::with_torch_errors(body);
  } catch (const Error& error) {
    return error;
  }
  return {ErrorKind::usage, "nothing thrown"};
}

TEST(TorchErrors, MemoryThatIsNotThereIsAResource) {
  const Error error = error_of([] { return at::empty({std::int64_t{1} << 50}); });

  EXPECT_EQ(error.kind(), ErrorKind::resource);
  EXPECT_NE(std::string(error.what()).find("train.micro_batch"), std::string::npos);
}

TEST(TorchErrors, OtherErrorsOfLibTorchAreInternalErrorsInOneLine) {
  const Error error = error_of([] { return at::ones({2, 3}).matmul(at::ones({2, 3})); });

  EXPECT_EQ(error.kind(), ErrorKind::internal);
  EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
}

TEST(TorchErrors, ResultsAndOtherErrorsPass) {
  EXPECT_EQ(device::with_torch_errors([] { return 3; }), 3);
  EXPECT_EQ(error_of([] { fail(ErrorKind::data, "as it was"); }).kind(), ErrorKind::data);
  EXPECT_THROW(device::with_torch_errors([] { throw std::logic_error("other"); }),
               std::logic_error);
}

}  // namespace
}  // namespace trireme::parallel
