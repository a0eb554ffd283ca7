#pragma once
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.hpp"

/// The only user of libhdf5 (C API). Files use format bounds V110..V110: all metadata is
/// checksummed, and a file of a killed writer cannot be opened. Files contain no times and are not
/// locked (writers use private names). One process-wide lock protects libhdf5. Verify the hash of a
/// file before reading it, because libhdf5 can crash on damaged files. All functions throw
/// Error(data) for unexpected content and Error(resource) if the disk refuses.
namespace trireme {

/// Configures libhdf5: H5dont_atexit, no plugins, no file locks. main() calls it before any other
/// use of HDF5 in the process.
void hdf5_init();

struct Hdf5Dataset {
  DType dtype = DType::u8;
  std::vector<std::uint64_t> shape;
  std::optional<std::uint64_t>
      offset;  // byte address in the file; present if contiguous and allocated

  [[nodiscard]] std::uint64_t count() const noexcept;
};

class Hdf5File {
 public:
  /// Creates a file; `path` must not exist.
  static Hdf5File create(const std::filesystem::path& path);
  static Hdf5File open(const std::filesystem::path& path);
  Hdf5File(Hdf5File&& other) noexcept;
  Hdf5File& operator=(Hdf5File&& other) noexcept;
  Hdf5File(const Hdf5File&) = delete;
  Hdf5File& operator=(const Hdf5File&) = delete;
  ~Hdf5File();

  /// Creates a contiguous dataset, allocated now and not filled, and the missing groups of an
  /// absolute path like "/doc/offset". Returns the byte offset of the data, for pwrite after
  /// close(); it is meaningless for an empty dataset.
  std::uint64_t create_dataset(const std::string& name, DType dtype,
                               std::span<const std::uint64_t> shape);
  /// Creates a dataset with its content; bytes.size() must be count * size_of(dtype).
  void write(const std::string& name, DType dtype, std::span<const std::uint64_t> shape,
             std::span<const std::byte> bytes);

  [[nodiscard]] bool has(const std::string& name) const;
  /// Describes a dataset. Only native numeric types, contiguous or chunked, without external
  /// storage are supported; anything else is Error(data).
  [[nodiscard]] Hdf5Dataset dataset(const std::string& name) const;
  /// Reads the whole dataset; its dtype must be `dtype`.
  void read(const std::string& name, DType dtype, std::span<std::byte> bytes) const;

  /// Attributes of the root group.
  void set_attribute(const std::string& name, const std::string& value);
  void set_attribute(const std::string& name, std::uint64_t value);
  [[nodiscard]] std::string attribute_text(const std::string& name) const;
  [[nodiscard]] std::uint64_t attribute_number(const std::string& name) const;

  /// Closes the file and checks for errors. The data is then in the page cache, not yet on disk
  /// (fsync the path). Call it at most once.
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
