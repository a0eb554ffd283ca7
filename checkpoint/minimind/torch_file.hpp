#pragma once
#include <cstddef>
#include <filesystem>
#include <map>
#include <span>
#include <string>

#include "checkpoint/minimind/pickle.hpp"
#include "checkpoint/minimind/zip_file.hpp"

namespace trireme {

/// A state dict that torch.save has written (torch 1.6 and later; "model.pth"): names and tensors.
/// Nothing in it is executed. All places are checked before a tensor is read. Throws Error(data)
/// naming the file and what is damaged or refused.
class TorchFile {
 public:
  static TorchFile open(const std::filesystem::path& path);

  [[nodiscard]] const std::map<std::string, PickledTensor>& tensors() const noexcept {
    return tensors_;
  }

  /// The tensor's elements, row-major; bytes.size() must be its size.
  void read(const std::string& name, std::span<std::byte> bytes) const;

 private:
  explicit TorchFile(ZipFile zip) : zip_(std::move(zip)) {}

  ZipFile zip_;
  std::string archive_;  // what the names of all records begin with
  std::map<std::string, PickledTensor> tensors_;
};

}  // namespace trireme
