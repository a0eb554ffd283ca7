#include "data_prep/input/parquet_module.hpp"

#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include "data_prep/input/arrow_json.hpp"

namespace trireme::data_prep {
namespace {

/// Calls `action`, which returns an arrow::Result, and returns its value. The library reports
/// some kinds of damage by an exception.
template <class Action>
auto checked(const Action& action) {
  arrow::Status status;
  try {
    auto result = action();
    if (result.ok()) return *std::move(result);
    status = result.status();
  } catch (const parquet::ParquetException& error) {
    status = arrow::Status::Invalid(error.what());
  }
  throw ParquetProblem(status.message(), status.IsOutOfMemory());
}

arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> open_reader(const std::string& path,
                                                                       std::int64_t batch_rows) {
  parquet::ReaderProperties properties;
  properties.enable_buffered_stream();  // reads a column of a row group in parts
  properties.set_page_checksum_verification(true);
  parquet::ArrowReaderProperties arrow_properties;
  arrow_properties.set_batch_size(batch_rows);
  arrow_properties.set_pre_buffer(false);  // would read the whole file ahead
  parquet::arrow::FileReaderBuilder builder;
  ARROW_ASSIGN_OR_RAISE(auto source, arrow::io::ReadableFile::Open(path));
  ARROW_RETURN_NOT_OK(builder.Open(std::move(source), properties));
  builder.properties(arrow_properties);
  std::unique_ptr<parquet::arrow::FileReader> reader;
  ARROW_RETURN_NOT_OK(builder.Build(&reader));
  return reader;
}

class ArrowParquetFile final : public ParquetFile {
 public:
  ArrowParquetFile(const std::string& path, std::int64_t batch_rows)
      : reader_(checked([&] { return open_reader(path, batch_rows); })) {}

  [[nodiscard]] std::vector<RowGroupSize> row_groups() const override {
    return checked([&]() -> arrow::Result<std::vector<RowGroupSize>> {
      const auto metadata = reader_->parquet_reader()->metadata();
      std::vector<RowGroupSize> sizes;
      for (int i = 0; i < metadata->num_row_groups(); ++i) {
        const auto group = metadata->RowGroup(i);
        if (group->num_rows() < 0 || group->total_byte_size() < 0)
          return arrow::Status::Invalid("row group ", i, " has a negative size");
        sizes.push_back({group->num_rows(), group->total_byte_size()});
      }
      return sizes;
    });
  }

  void start(const std::vector<int>& groups) override {
    stream_ = checked([&] { return reader_->GetRecordBatchReader(groups); });
  }

  std::int64_t next_batch() override {
    batch_ = checked([&] { return stream_->Next(); });
    return batch_ == nullptr ? 0 : batch_->num_rows();
  }

  void append_row(std::int64_t row, std::string& out) const override {
    data_prep::append_row(*batch_, row, out);
  }

 private:
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::shared_ptr<arrow::RecordBatchReader> stream_;
  std::shared_ptr<arrow::RecordBatch> batch_;
};

}  // namespace

extern "C" __attribute__((visibility("default"))) void trireme_open_parquet(
    const std::string& path, std::int64_t batch_rows, std::unique_ptr<ParquetFile>& file);

extern "C" void trireme_open_parquet(const std::string& path, std::int64_t batch_rows,
                                     std::unique_ptr<ParquetFile>& file) {
  file = std::make_unique<ArrowParquetFile>(path, batch_rows);
}

}  // namespace trireme::data_prep
