#pragma once
#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

/// One thing that a blend draws from: a token set, or several that are shuffled as one.
struct PlanSource {
  double weight = 1;
  std::vector<std::string> folders;

  bool operator==(const PlanSource&) const = default;
};

/// What is trained on from one step on.
struct PlanPhase {
  std::int64_t first_step = 1;
  std::int64_t seq_len = 0;  // 0: train.seq_len
  std::vector<PlanSource> sources;

  bool operator==(const PlanPhase&) const = default;
};

/// What `data.path` says:
///   sets/web                                        one set
///   sets/web + sets/books                           both, shuffled as one set
///   0.7 sets/web + 0.3 sets/books                   a blend; weights of any sum, one for each
///   0.7 sets/web + 0.3 sets/books; from 1001: 1 sets/code   phases by first step
///   ... ; from 2001 at 4096: 1 sets/long            another sequence length from there on
/// A line end means the same as ';', and + stands between blanks. A path that has blanks, a ; or a
/// double quote, or that reads as a number or a word of this grammar, stands between double quotes;
/// in them \" is a quote, \\ a backslash, and all else stands for itself. The text itself may also be
/// the name of a folder (then it is that one set, whatever is in the name) or of a file that holds
/// the text. In a file alone, '#' where a word would begin starts a comment up to the line's end.
///
/// Phases start at rising steps, the first at step 1. A folder is in one source only. Throws
/// Error(usage) quoting the place that is wrong.
std::vector<PlanPhase> parse_plan(std::string_view text, std::string_view name);

inline constexpr std::array<std::string_view, 1> kTextKind{"pretrain"};

/// The same for a value that may name a folder or a file. Throws Error(usage) with the command that
/// packs them if it names texts (JSON records, whatever the file's name), Error(data) for a file
/// that is no text. `kinds`: the kinds of sets that the caller accepts, at least one. `seq_len`: the
/// length that the caller trains at, for that command; 0: not known.
std::vector<PlanPhase> read_plan(const std::string& value, std::string_view name,
                                 std::span<const std::string_view> kinds = kTextKind,
                                 std::int64_t seq_len = 0);

/// `value` such that it means the same in any folder: the sets that it names, or the file that it
/// is, by absolute paths. What a file names stays relative to where a run is started. A value that
/// parse_plan refuses comes back as it is.
std::string absolute_plan(const std::string& value);

/// Throws Error(usage) if `path` is a blend or stands in quotes (and is not the name of a folder),
/// where one token set is wanted. `name` is the key that has the path.
void refuse_blend(const std::string& path, std::string_view name);

/// Throws Error(usage) with the command that packs it if `path` is a .jsonl file (.gz, .zst) or a
/// folder of such files rather than a token set. `name` is the key that has the path,
/// `kinds` and `seq_len` as for read_plan.
void refuse_texts(const std::string& path, std::string_view name,
                  std::span<const std::string_view> kinds, std::int64_t seq_len = 0);

}  // namespace trireme
