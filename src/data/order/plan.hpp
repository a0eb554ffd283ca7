#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::data {

/// A source of a blend: a token set, or several sets that are shuffled as one.
struct PlanSource {
  double weight = 1;
  std::vector<std::string> folders;

  bool operator==(const PlanSource&) const = default;
};

/// The sources of the samples from one step on.
struct PlanPhase {
  std::int64_t first_step = 1;
  std::int64_t seq_len = 0;  // 0: train.seq_len
  std::vector<PlanSource> sources;

  bool operator==(const PlanPhase&) const = default;
};

/// Parses the grammar of `data.path`:
///   sets/web                                        one set
///   sets/web + sets/books                           both, shuffled as one set
///   0.7 sets/web + 0.3 sets/books                   a blend; weights of any sum, one for each
///   0.7 sets/web + 0.3 sets/books; from 1001: 1 sets/code   phases by first step
///   ... ; from 2001 at 4096: 1 sets/long            another sequence length from that step on
/// A line end is equivalent to ';'. Blanks surround +. A path needs double quotes if it contains
/// blanks, a ; or a double quote, or if it reads as a number or a word of this grammar. Between
/// quotes \" is a quote, \\ a backslash, and all other characters are literal. The value may also
/// be the path of a directory or of a file. A directory is one token set, even if its name contains
/// special characters. A file contains a text of this grammar. Only in a file, a '#' at the
/// beginning of a word starts a comment that ends at the end of the line.
///
/// Phases start at ascending steps, the first at step 1. A directory belongs to one source only.
/// Throws Error(usage) that quotes the invalid part.
std::vector<PlanPhase> parse_plan(std::string_view text, std::string_view name);

inline constexpr std::array<std::string_view, 1> kTextKind{"pretrain"};

/// Like parse_plan, but `value` may also be the path of a directory or of a file. Throws
/// Error(usage) if the value names texts that are not packed (a file with JSON records). The
/// message contains the command that packs these texts. Throws Error(data) for a file that is not
/// text. `kinds`: the accepted kinds of sets, at least one. `seq_len`: the training length for that
/// command; 0: unknown.
std::vector<PlanPhase> read_plan(const std::string& value, std::string_view name,
                                 std::span<const std::string_view> kinds = kTextKind,
                                 std::int64_t seq_len = 0);

/// Rewrites `value` with absolute paths, so that it has the same meaning in any directory. Paths
/// inside a plan file stay relative to the working directory of a run. If parse_plan refuses the
/// value, returns the value unchanged.
std::string absolute_plan(const std::string& value);

/// Checks that `path` names one token set. Throws Error(usage) if `path` is not an existing file or
/// directory and reads as a plan (for example a blend or a quoted path). `name` is the setting of
/// the path.
void refuse_blend(const std::string& path, std::string_view name);

/// Throws Error(usage) if `path` is a .jsonl file (.gz, .zst) or a directory of such files instead
/// of a token set. The message contains the command that packs the files. `name` is the setting of
/// the path; `kinds` and `seq_len` are those of read_plan.
void refuse_texts(const std::string& path, std::string_view name,
                  std::span<const std::string_view> kinds, std::int64_t seq_len = 0);

}  // namespace trireme::data
