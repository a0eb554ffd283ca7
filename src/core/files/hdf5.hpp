#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.hpp"

/// The one place that sees libhdf5 (C API). Files use format bounds V110..V110: all metadata is
/// checksummed and a file whose writer died refuses to open. No times, no file locks (we write only
/// private names). One process-wide lock. Read only what was hash-verified before: libhdf5 can
/// crash on damaged files. All throw Error(data) for content that is not as expected,
/// Error(resource) when the disk refuses.
namespace trireme {

/// Must run before any other use of HDF5 in the process (main calls it first): H5dont_atexit, no
/// plugins, no locks.
void hdf5_init();

struct Hdf5Dataset {
  DType dtype = DType::u8;
  std::vector<std::uint64_t> shape;
  std::optional<std::uint64_t>
      offset;  // byte address in the file; present when contiguous and allocated

  [[nodiscard]] std::uint64_t count() const noexcept;
};

class Hdf5File {
 public:
  /// A new file; `path` must not exist.
  static Hdf5File create(const std::filesystem::path& path);
  static Hdf5File open(const std::filesystem::path& path);
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) noexcept;
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  ~Hdf5File();

  /// Makes missing groups of an absolute path like "/doc/offset"; contiguous, allocated now, not
  /// filled. Returns the byte offset of its data, for pwrite after close() ("skeleton and pwrite");
  /// meaningless when it is empty.
  std::uint64_t create_dataset(const std::string& name, DType dtype,
                               std::span<const std::uint64_t> shape);
  /// create_dataset and its content in one call; bytes.size() must be count * size_of(dtype).
  void write(const std::string& name, DType dtype, std::span<const std::uint64_t> shape,
             std::span<const std::byte> bytes);

  [[nodiscard]] bool has(const std::string& name) const;
  /// Native numeric types, contiguous or chunked, no external storage;
  /// anything else is Error(data).
  [[nodiscard]] Hdf5Dataset dataset(const std::string& name) const;
  /// The whole dataset; its dtype must be `dtype`.
  void read(const std::string& name, DType dtype, std::span<std::byte> bytes) const;

  /// Attributes of the root group.
  void set_attribute(const std::string& name, const std::string& value);
  void set_attribute(const std::string& name, std::uint64_t value);
  [[nodiscard]] std::string attribute_text(const std::string& name) const;
  [[nodiscard]] std::uint64_t attribute_number(const std::string& name) const;

  /// Closes and checks; the data is in the page cache, not yet on disk (fsync the path).
  /// Safe to call once.
  void close();

 private:
  explicit Hdf5File(std::int64_t id, std::filesystem::path path)
      : id_(id), path_(std::move(path)) {}

  std::int64_t id_ = -1;
  std::filesystem::path path_;
};

template <class T>
void write_vector(Hdf5File& file, const std::string& name, DType dtype,
                  const std::vector<T>& values) {
  const std::uint64_t shape[] = {values.size()};
  file.write(name, dtype, shape, std::as_bytes(std::span(values)));
}

}  // namespace trireme
