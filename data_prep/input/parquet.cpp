#include <arrow/api.h>
#include <arrow/io/file.h>
#include <parquet/arrow/reader.h>
#include <parquet/file_reader.h>

#include <algorithm>
#include <numeric>
#include <string>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/input/arrow_json.hpp"
#include "data_prep/input/input_format.hpp"

/// Parquet files, through Apache Arrow. A position is a row, from 0. InputFile::points has the first
/// row of each row group that has rows, and the number of rows; `packed` counts decompressed bytes.
/// Source: https://parquet.apache.org/docs/file-format/metadata/
namespace trireme::data_prep {
namespace {

constexpr std::int64_t kBatchBytes = 1 << 20;
constexpr std::int64_t kMaxBatchRows = 1 << 16;

[[noreturn]] void fail_reading(const std::string& where, const arrow::Status& status) {
  if (status.IsOutOfMemory()) fail(ErrorKind::resource, "{}: {}", where, status.message());
  fail(ErrorKind::data,
       "{}: the Parquet file is damaged, or has a form that cannot be read: {}. Write or download "
       "the file again",
       where, status.message());
}

/// Calls `action`, which returns an arrow::Result, and returns its value. The library reports some
/// kinds of damage by an exception.
template <class Action>
auto checked(const std::string& where, const Action& action) {
  arrow::Status status;
  try {
    auto result = action();
    if (result.ok()) return *std::move(result);
    status = result.status();
  } catch (const parquet::ParquetException& error) {
    status = arrow::Status::Invalid(error.what());
  }
  fail_reading(where, status);
}

std::unique_ptr<parquet::arrow::FileReader> open_parquet(const InputFile& file,
                                                         std::int64_t batch_rows) {
  return checked(file.path.string(), [&]() -> arrow::Result<std::unique_ptr<parquet::arrow::FileReader>> {
    parquet::ReaderProperties properties;
    properties.enable_buffered_stream();  // reads a column of a row group in parts
    properties.set_page_checksum_verification(true);
    parquet::ArrowReaderProperties arrow_properties;
    arrow_properties.set_batch_size(batch_rows);
    arrow_properties.set_pre_buffer(false);  // would read the whole file ahead
    parquet::arrow::FileReaderBuilder builder;
    ARROW_ASSIGN_OR_RAISE(auto source, arrow::io::ReadableFile::Open(file.path.string()));
    ARROW_RETURN_NOT_OK(builder.Open(std::move(source), properties));
    builder.properties(arrow_properties);
    std::unique_ptr<parquet::arrow::FileReader> reader;
    ARROW_RETURN_NOT_OK(builder.Build(&reader));
    return reader;
  });
}

/// Returns the points of InputFile. Throws Error(data) for negative sizes.
std::vector<AccessPoint> row_groups(const InputFile& file, const parquet::FileMetaData& metadata) {
  std::vector<AccessPoint> points;
  AccessPoint end;
  for (int i = 0; i < metadata.num_row_groups(); ++i) {
    const auto group = metadata.RowGroup(i);
    if (group->num_rows() < 0 || group->total_byte_size() < 0)
      fail(ErrorKind::data, "{}: damaged Parquet file: row group {} has a negative size",
           file.path.string(), i);
    if (group->num_rows() == 0) continue;
    points.push_back(end);
    end.offset += static_cast<std::uint64_t>(group->num_rows());
    end.packed +=
        static_cast<std::uint64_t>(std::max(group->num_rows(), group->total_byte_size()));
  }
  points.push_back(end);
  return points;
}

/// One row group of a measured file.
struct RowGroup {
  std::uint64_t begin = 0;  // rows
  std::uint64_t end = 0;
  std::uint64_t bytes = 0;
  std::uint64_t row_bytes = 1;  // mean
};

std::size_t group_index(const InputFile& file, std::uint64_t row) {
  const auto next = std::ranges::upper_bound(file.points, row, {}, &AccessPoint::offset);
  return static_cast<std::size_t>(next - file.points.begin()) - 1;
}

RowGroup group_at(const InputFile& file, std::size_t index) {
  const AccessPoint& first = file.points[index];
  const AccessPoint& next = file.points[index + 1];
  RowGroup group{first.offset, next.offset, next.packed - first.packed};
  group.row_bytes = group.bytes / (group.end - group.begin);
  return group;
}

/// Returns the decompressed bytes before a row; rows of one group count as equally long.
std::uint64_t bytes_before(const InputFile& file, std::uint64_t row) {
  const std::size_t index = group_index(file, row);
  const AccessPoint& first = file.points[index];
  if (row == first.offset) return first.packed;
  return first.packed + (row - first.offset) * group_at(file, index).row_bytes;
}

/// Returns the end of the whole row groups from `begin` on that fit in `bytes`.
std::uint64_t whole_groups_end(const InputFile& file, std::uint64_t begin, std::uint64_t bytes) {
  const std::uint64_t limit = bytes_before(file, begin) + bytes;
  const auto next = std::ranges::upper_bound(file.points, limit, {}, &AccessPoint::packed);
  return next == file.points.begin() ? begin : std::max(begin, std::prev(next)->offset);
}

std::uint64_t rows_end(const InputFile& file, std::uint64_t begin, std::uint64_t bytes) {
  const std::uint64_t whole = whole_groups_end(file, begin, bytes);
  if (whole > begin) return whole;
  const RowGroup group = group_at(file, group_index(file, begin));
  return std::min(group.end, begin + std::max<std::uint64_t>(1, bytes / group.row_bytes));
}

/// A shard has whole row groups, because a rank that begins inside a group must decompress the rows
/// before. Only a group of more than two units is cut.
std::uint64_t shard_rows_end(const InputFile& file, std::uint64_t begin, std::uint64_t room,
                             std::uint64_t unit) {
  const RowGroup group = group_at(file, group_index(file, begin));
  if (group.bytes / 2 > unit) {
    const std::uint64_t rows = std::max<std::uint64_t>(1, unit / group.row_bytes);
    return group.end - begin > rows + rows / 2 ? begin + rows : group.end;
  }
  const std::uint64_t whole = whole_groups_end(file, begin, room);
  if (whole > begin) return whole;
  return room == unit ? group.end : begin;
}

/// Reads rows forward as JSON objects.
class RowSource final : public RecordSource {
 public:
  explicit RowSource(const InputFile& file)
      : file_(file),
        reader_(open_parquet(
            file, std::clamp<std::int64_t>(kBatchBytes / mean_row_bytes(file), 1, kMaxBatchRows))) {
    const auto metadata = reader_->parquet_reader()->metadata();
    if (row_groups(file, *metadata).back().offset != file.size)
      fail(ErrorKind::data, "{} changed while it was read: it has another number of rows",
           file.path.string());
    for (int i = 0; i < metadata->num_row_groups(); ++i)
      if (metadata->RowGroup(i)->num_rows() > 0) groups_.push_back(i);
  }

  RecordBatch read(const InputRange& range) override {
    if (range.begin != next_ || stream_ == nullptr) start_at(range.begin);
    std::string text;
    std::vector<std::size_t> ends;
    for (; next_ < range.end; ++next_, ++at_) {
      while (batch_ == nullptr || at_ == batch_->num_rows()) load();
      append_row(*batch_, at_, text);
      ends.push_back(text.size());
    }
    RecordBatch result;
    result.hash = xxh3_64(text);
    result.buffer.reserve(text.size() + kRecordPadding);
    result.buffer.assign(text.begin(), text.end());
    result.buffer.resize(text.size() + kRecordPadding);
    std::size_t begin = 0;
    for (std::size_t i = 0; i < ends.size(); ++i) {
      const std::size_t size = ends[i] - begin;
      result.records.push_back(
          {{result.buffer.data() + begin, size}, range.begin + i, size > kMaxRecordBytes});
      begin = ends[i];
    }
    return result;
  }

  [[nodiscard]] std::uint64_t num_starts() const override { return num_starts_; }

 private:
  static std::int64_t mean_row_bytes(const InputFile& file) {
    const std::uint64_t rows = std::max<std::uint64_t>(1, file.size);
    const std::uint64_t bytes = file.points.empty() ? 0 : file.points.back().packed;
    return std::max<std::int64_t>(1, static_cast<std::int64_t>(bytes / rows));
  }

  [[nodiscard]] std::string location() const { return record_location(file_, next_); }

  /// Begins with the row group of `row` and drops the rows before it.
  void start_at(std::uint64_t row) {
    const std::size_t first = group_index(file_, row);
    const std::vector<int> groups(groups_.begin() + static_cast<std::ptrdiff_t>(first),
                                  groups_.end());
    batch_ = nullptr;
    next_ = file_.points[first].offset;
    stream_ = checked(location(), [&] { return reader_->GetRecordBatchReader(groups); });
    ++num_starts_;
    for (; next_ < row; next_ += static_cast<std::uint64_t>(at_)) {
      load();
      at_ = std::min(batch_->num_rows(), static_cast<std::int64_t>(row - next_));
    }
  }

  /// Reads the next batch, which begins with row next_.
  void load() {
    batch_ = checked(location(), [&] { return stream_->Next(); });
    at_ = 0;
    if (batch_ == nullptr)
      fail_reading(location(), arrow::Status::Invalid("the data ends before the last row"));
  }

  const InputFile& file_;
  std::unique_ptr<parquet::arrow::FileReader> reader_;
  std::vector<int> groups_;  // indices of the row groups in InputFile::points
  std::shared_ptr<arrow::RecordBatchReader> stream_;
  std::shared_ptr<arrow::RecordBatch> batch_;
  std::int64_t at_ = 0;      // row of batch_ that is row next_ of the file
  std::uint64_t next_ = 0;
  std::uint64_t num_starts_ = 0;
};

void measure_rows(InputFile& file) {
  const auto reader = open_parquet(file, 1);
  file.points = row_groups(file, *reader->parquet_reader()->metadata());
  file.size = file.points.back().offset;
}

}  // namespace

InputFormat parquet_format() {
  return {.name = "parquet",
          .suffix = ".parquet",
          .position = "row",
          .recognises = is_parquet,
          .measure = measure_rows,
          .range_end = rows_end,
          .shard_end = shard_rows_end,
          .range_bytes = [](const InputFile& file, const InputRange& range) {
            return bytes_before(file, range.end) - bytes_before(file, range.begin);
          },
          .start_cost = [](const InputFile& file, std::uint64_t begin) {
            return bytes_before(file, begin) - file.points[group_index(file, begin)].packed;
          },
          .in_order = true,
          .open = [](const InputFile& file) -> std::unique_ptr<RecordSource> {
            return std::make_unique<RowSource>(file);
          }};
}

}  // namespace trireme::data_prep
