#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "checkpoint/minimind/pickle.hpp"
#include "checkpoint/minimind/zip_file.hpp"

namespace trireme::checkpoint {

/// A state dict written by torch.save (torch 1.6 and later; "model.pth"): names and tensors.
/// Nothing in the file is executed. All positions are checked before a tensor is read. Throws
/// Error(data) naming the file and the damaged or refused item.
class TorchFile {
 public:
  static TorchFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, PickledTensor>& tensors() const noexcept {
    return tensors_;
  }

  /// Copies the elements of the tensor in row-major order; bytes.size() must equal its size.
  void read(const std::string& name, std::span<std::byte> bytes) const;

 private:
  explicit TorchFile(ZipFile zip) : zip_(std::move(zip)) {}

  ZipFile zip_;
  std::string archive_;  // prefix of all record names
  std::map<std::string, PickledTensor> tensors_;
};

}  // namespace trireme::checkpoint
