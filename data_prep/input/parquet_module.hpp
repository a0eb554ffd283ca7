#pragma once
#include <cstdint>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

/// The interface of the module libtrireme_parquet.so, which contains all code that uses Apache
/// Arrow. The program loads the module with its own symbol scope when it meets the first Parquet
/// file, because the libraries of Arrow export symbols of simdjson and OpenSSL in other versions.
namespace trireme::data_prep {

/// The sizes of a row group in the metadata.
struct RowGroupSize {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;  // decompressed
};

/// An error of the library.
class ParquetProblem : public std::runtime_error {
 public:
  ParquetProblem(const std::string& message, bool out_of_memory)
      : std::runtime_error(message), is_out_of_memory(out_of_memory) {}

  bool is_out_of_memory;
};

/// An open Parquet file. Functions throw ParquetProblem.
class ParquetFile {
 public:
  virtual ~ParquetFile() = default;
  ParquetFile() = default;
  ParquetFile(const ParquetFile&) = delete;
  ParquetFile& operator=(const ParquetFile&) = delete;

  [[nodiscard]] virtual std::vector<RowGroupSize> row_groups() const = 0;
  /// Begins to read these row groups.
  virtual void start(const std::vector<int>& groups) = 0;
  /// Reads the next batch and returns its number of rows; 0 at the end.
  virtual std::int64_t next_batch() = 0;
  /// Appends a row of the batch as a JSON object.
  virtual void append_row(std::int64_t row, std::string& out) const = 0;
};

/// The function that the module exports under the name kOpenParquet: opens a file that is read in
/// batches of at most `batch_rows` rows.
using OpenParquet = void(const std::string& path, std::int64_t batch_rows,
                         std::unique_ptr<ParquetFile>& file);
inline constexpr const char* kOpenParquet = "trireme_open_parquet";
inline constexpr const char* kParquetModule = "libtrireme_parquet.so";  // a file of lib/trireme

}  // namespace trireme::data_prep
