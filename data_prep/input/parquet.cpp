#include <dlfcn.h>

#include <algorithm>
#include <mutex>
#include <string>
#include <string_view>

#include "core/error.hpp"
#include "core/hash/xxh3.hpp"
#include "data_prep/input/input_format.hpp"
#include "data_prep/input/parquet_module.hpp"

/// Parquet files. A position is a row, from 0. InputFile::points has the first row of each row
/// group that has rows, and the number of rows; `packed` counts decompressed bytes. Source:
/// https://parquet.apache.org/docs/file-format/metadata/
namespace trireme::data_prep {
namespace {

constexpr std::int64_t kBatchBytes = 1 << 20;
constexpr std::int64_t kMaxBatchRows = 1 << 16;

/// Loads the module beside the directory of the program, once.
OpenParquet* load_module(const InputFile& file) {
  static std::mutex mutex;
  static OpenParquet* open = nullptr;
  const std::lock_guard lock(mutex);
  if (open != nullptr) return open;
  std::error_code ignored;
  const std::filesystem::path program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  const std::filesystem::path module =
      program.parent_path().parent_path() / "lib" / "trireme" / kParquetModule;
  if (!std::filesystem::exists(module, ignored)) {
    fail(ErrorKind::data,
         "--input {} is a Parquet file, and this program was built without Apache Arrow. Build it "
         "with Arrow (docs/install.md, \"Parquet\"), or write the records as JSON lines",
         file.path.string());
  }
  void* loaded = ::dlopen(module.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (loaded == nullptr)
    fail(ErrorKind::resource, "{} cannot be loaded to read {}: {}. Install Trireme again",
         module.string(), file.path.string(), ::dlerror());
  open = reinterpret_cast<OpenParquet*>(::dlsym(loaded, kOpenParquet));
  TRIREME_ASSERT(open != nullptr);
  return open;
}

[[noreturn]] void fail_reading(const std::string& where, const ParquetProblem& problem) {
  if (problem.is_out_of_memory) fail(ErrorKind::resource, "{}: {}", where, problem.what());
  std::string_view reason = problem.what();
  while (reason.ends_with('.')) reason.remove_suffix(1);  // Arrow ends some messages with a stop
  fail(
      ErrorKind::data,
      "{}: the Parquet file is damaged, or has a form that cannot be read: {}. Write or download the "
      "file again",
      where, reason);
}

/// Calls `action` and returns its value.
template <class Action>
auto checked(const std::string& where, const Action& action) {
  try {
    return action();
  } catch (const ParquetProblem& problem) {
    fail_reading(where, problem);
  }
}

std::unique_ptr<ParquetFile> open_parquet(const InputFile& file, std::int64_t batch_rows) {
  OpenParquet* open = load_module(file);
  std::unique_ptr<ParquetFile> opened;
  checked(file.path.string(), [&] { open(file.path.string(), batch_rows, opened); });
  return opened;
}

/// Returns the points of InputFile.
std::vector<AccessPoint> points_of(const std::vector<RowGroupSize>& groups) {
  std::vector<AccessPoint> points;
  AccessPoint end;
  for (const RowGroupSize& group : groups) {
    if (group.rows == 0) continue;
    points.push_back(end);
    end.offset += static_cast<std::uint64_t>(group.rows);
    end.packed += static_cast<std::uint64_t>(std::max(group.rows, group.bytes));
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

/// A shard has whole row groups, because a rank that begins inside a group must decompress the
/// rows before. Only a group of more than two units is cut.
std::uint64_t shard_rows_end(const InputFile& file, std::uint64_t begin, std::uint64_t room,
                             std::uint64_t unit) {
  const RowGroup group = group_at(file, group_index(file, begin));
  if (group.bytes / 2 > unit) {
    if (room < unit) return begin;
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
    const std::vector<RowGroupSize> groups = row_groups(file, *reader_);
    if (points_of(groups).back().offset != file.size)
      fail(ErrorKind::data, "{} changed while it was read: it has another number of rows",
           file.path.string());
    for (std::size_t i = 0; i < groups.size(); ++i)
      if (groups[i].rows > 0) groups_.push_back(static_cast<int>(i));
  }

  RecordBatch read(const InputRange& range) override {
    if (range.begin != next_ || !is_started_) start_at(range.begin);
    std::string text;
    std::vector<std::size_t> ends;
    for (; next_ < range.end; ++next_, ++at_) {
      if (at_ == batch_rows_) load();
      reader_->append_row(at_, text);
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

  static std::vector<RowGroupSize> row_groups(const InputFile& file, const ParquetFile& reader) {
    return checked(file.path.string(), [&] { return reader.row_groups(); });
  }

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
    at_ = batch_rows_ = 0;
    next_ = file_.points[first].offset;
    checked(location(), [&] { reader_->start(groups); });
    is_started_ = true;
    ++num_starts_;
    for (; next_ < row; next_ += static_cast<std::uint64_t>(at_)) {
      load();
      at_ = std::min(batch_rows_, static_cast<std::int64_t>(row - next_));
    }
  }

  /// Reads the next batch, which begins with row next_.
  void load() {
    at_ = 0;
    try {
      batch_rows_ = reader_->next_batch();
    } catch (const ParquetProblem& problem) {
      const std::uint64_t row = problem.is_out_of_memory ? next_ : first_damaged_row();
      fail_reading(record_location(file_, row), problem);
    }
    if (batch_rows_ == 0)
      fail_reading(location(), ParquetProblem("the data ends before the last row", false));
  }

  /// Returns the first row of the first row group from row next_ on that cannot be read, because a
  /// batch can have rows of several groups.
  std::uint64_t first_damaged_row() {
    for (std::size_t i = group_index(file_, next_); i < groups_.size(); ++i) {
      try {
        reader_->start({groups_[i]});
        while (reader_->next_batch() > 0) {
        }
      } catch (const ParquetProblem&) {
        return std::max(next_, file_.points[i].offset);
      }
    }
    return next_;
  }

  const InputFile& file_;
  std::unique_ptr<ParquetFile> reader_;
  std::vector<int> groups_;  // indices of the row groups in InputFile::points
  bool is_started_ = false;
  std::int64_t batch_rows_ = 0;
  std::int64_t at_ = 0;  // row of the batch that is row next_ of the file
  std::uint64_t next_ = 0;
  std::uint64_t num_starts_ = 0;
};

void measure_rows(InputFile& file) {
  const auto reader = open_parquet(file, 1);
  file.points = points_of(RowSource::row_groups(file, *reader));
  file.size = file.points.back().offset;
}

}  // namespace

/// A record is a row, as a JSON object with one member for each column; its position is its number,
/// from 0. Without Apache Arrow, measure() refuses the file.
InputFormat parquet_format() {
  return {.name = "parquet",
          .suffix = ".parquet",
          .position = "row",
          .recognises = [](std::string_view head) { return head.starts_with("PAR1"); },
          .measure = measure_rows,
          .range_end = rows_end,
          .shard_end = shard_rows_end,
          .range_bytes =
              [](const InputFile& file, const InputRange& range) {
                return bytes_before(file, range.end) - bytes_before(file, range.begin);
              },
          .start_cost =
              [](const InputFile& file, std::uint64_t begin) {
                return bytes_before(file, begin) - file.points[group_index(file, begin)].packed;
              },
          .in_order = true,
          .open = [](const InputFile& file) -> std::unique_ptr<RecordSource> {
            return std::make_unique<RowSource>(file);
          }};
}

}  // namespace trireme::data_prep
