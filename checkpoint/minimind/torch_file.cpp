#include "checkpoint/minimind/torch_file.hpp"

#include <algorithm>
#include <vector>

#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

constexpr std::uint64_t kMostPickleBytes = std::uint64_t{1} << 26;

std::string record_text(const ZipFile& zip, const std::string& name) {
  const std::uint64_t bytes = zip.records().at(name).bytes;
  if (bytes > kMostPickleBytes)
    fail(ErrorKind::data, "{}: record '{}' has {} bytes, at most {} are allowed",
         zip.path().string(), name, bytes, kMostPickleBytes);
  std::string text(bytes, '\0');
  zip.read(name, std::as_writable_bytes(std::span(text)));
  return text;
}

}  // namespace

TorchFile TorchFile::open(const std::filesystem::path& path) {
  constexpr std::string_view kPickle = "/data.pkl";
  TorchFile file(ZipFile::open(path));
  for (const auto& [name, record] : file.zip_.records()) {
    if (name.ends_with(kPickle)) file.archive_ = name.substr(0, name.size() - kPickle.size());
  }
  const auto& records = file.zip_.records();
  if (!records.contains(cat(file.archive_, kPickle)))
    fail(ErrorKind::data, "{} is not a torch.save file: it has no data.pkl", path.string());
  const std::string order = cat(file.archive_, "/byteorder");
  if (records.contains(order) && record_text(file.zip_, order) != "little")
    fail(ErrorKind::data, "{}: its numbers are not little-endian", path.string());
  file.tensors_ =
      read_pickled_tensors(record_text(file.zip_, cat(file.archive_, kPickle)), path.string());
  for (const auto& [name, tensor] : file.tensors_) {
    const auto storage = records.find(formatted("{}/data/{}", file.archive_, tensor.storage));
    const auto count = static_cast<std::uint64_t>(tensor.storage_count);
    if (storage == records.end() || storage->second.bytes / size_of(tensor.dtype) < count)
      fail(ErrorKind::data, "{}: the elements of '{}' are missing", path.string(), name);
  }
  return file;
}

void TorchFile::read(const std::string& name, std::span<std::byte> bytes) const {
  const PickledTensor& tensor = tensors_.at(name);
  const std::string record = formatted("{}/data/{}", archive_, tensor.storage);
  const std::size_t begin = static_cast<std::size_t>(tensor.offset) * size_of(tensor.dtype);
  std::vector<std::byte> storage(zip_.records().at(record).bytes);
  zip_.read(record, storage);
  TRIREME_ASSERT(begin + bytes.size() <= storage.size());
  std::copy_n(storage.begin() + static_cast<std::ptrdiff_t>(begin), bytes.size(), bytes.begin());
}

}  // namespace trireme::checkpoint
