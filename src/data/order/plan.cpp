#include "data/order/plan.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <optional>
#include <set>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/join.hpp"
#include "core/number.hpp"
#include "data/shards/set_content.hpp"

namespace trireme::data {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kQuoting =
    R"(put the whole path between double quotes, with \" for a quote and \\ for a backslash in it)";
constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

struct Word {
  std::string text;
  bool quoted = false;

  [[nodiscard]] bool is(std::string_view symbol) const { return !quoted && text == symbol; }
};

std::string quoted(const std::string& text) {
  std::string word = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') word += '\\';
    word += c;
  }
  return word + '"';
}

class Parser {
 public:
  Parser(std::string_view text, std::string_view name, bool with_comments) : name_(name) {
    split(text, with_comments);
    at_ = 0;
  }

  std::vector<PlanPhase> parse() {
    std::vector<PlanPhase> phases;
    while (skip(";")) {
    }
    while (at_ < words_.size()) {
      phases.push_back(phase(phases.empty()));
      if (phases.size() > 1 && phases.back().first_step <= phases[phases.size() - 2].first_step)
        wrong(
            formatted("phases must start at ascending steps, not at {}", phases.back().first_step));
      if (at_ < words_.size() && !skip(";"))
        wrong(formatted("expected + or ; (if a path has blanks, {})", kQuoting));
      while (skip(";")) {
      }
    }
    if (phases.empty()) wrong("names no token set");
    check_folders(phases);
    return phases;
  }

 private:
  void split(std::string_view text, bool with_comments) {
    std::size_t i = 0;
    while (i < text.size()) {
      const char c = text[i];
      if (c == '#' && with_comments) {  // only at the start of a word
        while (i < text.size() && text[i] != '\n') ++i;
      } else if (c == '"') {
        i = quoted_word(text, i);
      } else if (c == ';' || c == '\n') {
        words_.push_back({";"});
        ++i;
      } else if (ends_word(c)) {
        ++i;
      } else {
        i = plain_word(text, i);
      }
    }
  }

  /// Adds the quoted word that begins at `begin`. Returns the position after the closing quote.
  std::size_t quoted_word(std::string_view text, std::size_t begin) {
    std::string word;
    std::size_t i = begin + 1;
    for (; i < text.size() && text[i] != '"'; ++i) {
      const bool escapes =
          text[i] == '\\' && i + 1 < text.size() && (text[i + 1] == '"' || text[i + 1] == '\\');
      if (escapes) ++i;
      word += text[i];
    }
    at_ = words_.size();
    if (i >= text.size()) wrong("has a quote that is not closed", text.substr(begin));
    const std::string_view behind = text.substr(i + 1);
    if (!behind.empty() && !ends_word(behind.front()) && behind.front() != ':') {
      wrong(formatted("has text directly after the quoted \"{}\", {}", word, kQuoting),
            text.substr(begin, word_end(text, i + 1) - begin));
    }
    words_.push_back({std::move(word), true});
    return i + 1;
  }

  std::size_t plain_word(std::string_view text, std::size_t begin) {
    std::size_t i = begin;
    while (i < text.size() && text[i] != '"' && !ends_word(text[i])) ++i;
    at_ = words_.size();
    if (i < text.size() && text[i] == '"' && text[i - 1] != ':') {
      wrong(formatted("has a quote inside a word, {}", kQuoting),
            text.substr(begin, word_end(text, i) - begin));
    }
    words_.push_back({std::string(text.substr(begin, i - begin))});
    return i;
  }

  static std::size_t word_end(std::string_view text, std::size_t begin) {
    while (begin < text.size() && !ends_word(text[begin])) ++begin;
    return begin;
  }

  static bool ends_word(char c) {
    return std::string_view(" \t\r\n;").find(c) != std::string_view::npos;
  }

  PlanPhase phase(bool first) {
    PlanPhase phase;
    bool head = false;
    if (skip("from")) {
      phase.first_step = integer("a step");
      head = true;
    } else if (!first) {
      wrong("a later phase must name its first step, like `from 1001: 1 sets/code`");
    }
    if (skip("at")) {
      phase.seq_len = integer("a sequence length");
      head = true;
    }
    if (head && !colon_) wrong("expected ':' before the sets of a phase");
    colon_ = false;
    if (first && phase.first_step != 1) wrong("the first phase must start at step 1");
    phase.sources = sources();
    return phase;
  }

  /// Parses terms `[weight] directory` that are joined by +. Directories without weights are one
  /// source.
  std::vector<PlanSource> sources() {
    std::vector<PlanSource> sources;
    std::size_t weighted = 0;
    do {
      std::optional<double> weight;
      if (at_ + 1 < words_.size() && !words_[at_].quoted && !symbol(words_[at_ + 1]))
        weight = parse_number(words_[at_].text);
      if (weight) {
        if (!(*weight > 0)) wrong("a weight must be greater than 0");
        ++at_;
        ++weighted;
      }
      if (at_ >= words_.size() || symbol(words_[at_]))
        wrong("expected the directory of a token set");
      sources.push_back({weight.value_or(1), {words_[at_++].text}});
    } while (skip("+"));
    if (weighted == 0) {
      PlanSource whole{1, {}};
      for (const PlanSource& source : sources) whole.folders.push_back(source.folders.front());
      return {whole};
    }
    if (weighted != sources.size()) wrong("give all sets of a blend a weight, or none");
    return sources;
  }

  /// Parses a whole number of 1 or more; records a ':' at its end.
  std::int64_t integer(std::string_view what) {
    std::string text = at_ < words_.size() ? words_[at_].text : std::string();
    if (!text.empty() && text.back() == ':') {
      text.pop_back();
      colon_ = true;
    }
    const auto value = parse_integer(text);
    if (!value || *value < 1) wrong(formatted("expected {}, a whole number of 1 or more", what));
    ++at_;
    if (!colon_ && skip(":")) colon_ = true;
    return *value;
  }

  void check_folders(const std::vector<PlanPhase>& phases) const {
    std::vector<std::vector<std::string>> known;
    std::set<std::string> folders;
    for (const PlanPhase& phase : phases) {
      std::set<std::string> here;
      for (const PlanSource& source : phase.sources) {
        bool old = false;
        for (const auto& other : known) old = old || other == source.folders;
        for (const std::string& directory : source.folders) {
          if (!here.insert(directory).second)
            fail(ErrorKind::usage, "{}: {} is named twice in one phase", name_, directory);
          if (!old && !folders.insert(directory).second) {
            fail(
                ErrorKind::usage,
                "{}: {} is shuffled with other sets in one phase and not in another, so samples would repeat: give every set a weight",
                name_, directory);
          }
        }
        if (!old) known.push_back(source.folders);
      }
    }
  }

  static bool symbol(const Word& word) { return word.is("+") || word.is(";") || word.is(":"); }

  bool skip(std::string_view text) {
    if (at_ >= words_.size() || !words_[at_].is(text)) return false;
    ++at_;
    return true;
  }

  /// Returns the word as it was typed.
  static std::string shown(const Word& word) { return word.quoted ? quoted(word.text) : word.text; }

  /// `here`: the invalid text, if it is not yet a word.
  [[noreturn]] void wrong(const std::string& what, std::string_view here = {}) const {
    std::string before;
    for (std::size_t i = at_ < 4 ? 0 : at_ - 4; i < at_ && i < words_.size(); ++i)
      before += shown(words_[i]) + " ";
    const std::string at = !here.empty()         ? std::string(here)
                           : at_ < words_.size() ? shown(words_[at_])
                                                 : "its end";
    fail(ErrorKind::usage, "{}: {}, after '{}' at '{}'", name_, what, before, at);
  }

  std::string_view name_;
  std::vector<Word> words_;
  std::size_t at_ = 0;
  bool colon_ = false;
};

/// Returns true if the value is the path of a set or a file. Otherwise the value is a plan.
bool names_place(const std::string& value) {
  std::error_code ignored;
  return value.find_first_of(" \t\n\"") == std::string::npos || fs::exists(value, ignored);
}

/// Returns a normalized absolute path. Keeps "..", because after a symbolic link ".." may lead to
/// another directory than the text shows.
std::string absolute_path(const std::string& path) {
  const fs::path whole = fs::absolute(path);
  if (std::find(whole.begin(), whole.end(), "..") != whole.end()) return whole.string();
  std::string text = whole.lexically_normal().string();
  if (text.size() > 1 && text.ends_with('/')) text.pop_back();
  return text;
}

/// Returns the path as one word of a plan, quoted if a part of it could be misread.
std::string plan_word(const std::string& path) {
  const bool is_plain =
      path.find_first_of(" \t\r\n;#\"") == std::string::npos && path.starts_with('/');
  return is_plain ? path : quoted(path);
}

std::string plan_text(const std::vector<PlanPhase>& phases) {
  std::string text;
  for (const PlanPhase& phase : phases) {
    if (phase.first_step > 1) text += formatted("; from {}", phase.first_step);
    if (phase.seq_len > 0) text += formatted("{}at {}", text.empty() ? "" : " ", phase.seq_len);
    if (!text.empty()) text += ": ";
    const char* separator = "";
    for (const PlanSource& source : phase.sources) {
      const bool weighted = phase.sources.size() > 1 || source.weight != 1;
      for (const std::string& directory : source.folders) {
        text +=
            cat(separator, weighted ? number_text(source.weight) + " " : "", plan_word(directory));
        separator = " + ";
      }
    }
  }
  return text;
}

std::string first_bytes(const fs::path& file) {
  std::array<char, 4096> bytes{};
  std::ifstream in(file, std::ios::binary);
  in.read(bytes.data(), bytes.size());
  return {bytes.data(), static_cast<std::size_t>(in.gcount())};
}

[[noreturn]] void fail_texts(const std::string& path, std::string_view name,
                             std::span<const std::string_view> kinds, std::int64_t seq_len) {
  const std::string_view first = kinds.front();
  const std::string other = kinds.size() == 1
                                ? ""
                                : formatted(" (conversations: --kind {} --template NAME)",
                                            joined(kinds.subspan(1), " or "));
  fail(
      ErrorKind::usage,
      "{} = {} is text, but a token set is required: run `trireme-data pack --kind {}{} --tokenizer DIR --input {} --seq-len {} --output SET`{} first, then give SET",
      name, path, first, first == set_contents().front().name ? "" : " --template NAME", path,
      seq_len == 0 ? "L" : std::to_string(seq_len), other);
}

/// Throws if the value names a file that contains records or binary data instead of a plan.
void check_may_be_plan(const std::string& file, std::string_view name,
                       std::span<const std::string_view> kinds, std::int64_t seq_len) {
  std::string begin = first_bytes(file);
  if (begin.starts_with(kByteOrderMark)) begin.erase(0, kByteOrderMark.size());
  const bool is_text = std::none_of(begin.begin(), begin.end(), [](unsigned char c) {
    return (c < 0x20 && c != '\t' && c != '\n' && c != '\r') || c == 0x7f;
  });
  if (!is_text) {
    fail(
        ErrorKind::data,
        "{} = {} is neither a token set (a directory that `trireme-data pack` wrote) nor a text that names sets",
        name, file);
  }
  const std::size_t first = begin.find_first_not_of(" \t\r\n");
  if (first != std::string::npos && (begin[first] == '{' || begin[first] == '['))
    fail_texts(file, name, kinds, seq_len);
}

/// Parses the phases of a plan file, which may have comments and a byte-order mark.
std::vector<PlanPhase> parse_plan_file(const std::string& file) {
  const std::string content = read_file(file, std::size_t{1} << 20);
  std::string_view text = content;
  if (text.starts_with(kByteOrderMark)) text.remove_prefix(kByteOrderMark.size());
  return Parser(text, file, /*with_comments=*/true).parse();
}

}  // namespace

std::vector<PlanPhase> parse_plan(std::string_view text, std::string_view name) {
  return Parser(text, name, /*with_comments=*/false).parse();
}

std::string absolute_plan(const std::string& value) {
  if (value.empty()) return value;
  // A path that does not exist needs quotes if the current directory has blanks.
  if (names_place(value) && names_place(absolute_path(value))) return absolute_path(value);
  try {
    std::vector<PlanPhase> phases = parse_plan(value, "");
    for (PlanPhase& phase : phases) {
      for (PlanSource& source : phase.sources)
        for (std::string& directory : source.folders) directory = absolute_path(directory);
    }
    return plan_text(phases);
  } catch (const Error&) {
    return value;
  }
}

void refuse_blend(const std::string& path, std::string_view name) {
  if (names_place(path)) return;
  try {
    (void)parse_plan(path, name);
  } catch (const Error&) {
    return;  // a directory with blanks in its name that does not exist
  }
  fail(
      ErrorKind::usage,
      "{} = {} reads as a blend, and no directory has that name. Only one token set is allowed: give its path without weights, + and quotes",
      name, path);
}

void refuse_texts(const std::string& path, std::string_view name,
                  std::span<const std::string_view> kinds, std::int64_t seq_len) {
  const auto is_text = [](const fs::path& file) {
    const std::string file_name = file.filename().string();
    return file_name.ends_with(".jsonl") || file_name.ends_with(".jsonl.gz") ||
           file_name.ends_with(".jsonl.zst");
  };
  std::error_code ignored;
  bool texts = fs::is_regular_file(path, ignored) && is_text(path);
  if (fs::is_directory(path, ignored) && !fs::exists(fs::path(path) / "manifest.json", ignored)) {
    for (fs::directory_iterator it(path, ignored), end; !ignored && it != end;
         it.increment(ignored))
      texts = texts || is_text(it->path());
  }
  if (texts) fail_texts(path, name, kinds, seq_len);
}

std::vector<PlanPhase> read_plan(const std::string& value, std::string_view name,
                                 std::span<const std::string_view> kinds, std::int64_t seq_len) {
  refuse_texts(value, name, kinds, seq_len);
  std::error_code ignored;
  const bool is_file = fs::is_regular_file(value, ignored);
  if (is_file) check_may_be_plan(value, name, kinds, seq_len);
  if (!is_file && names_place(value)) return {PlanPhase{1, 0, {PlanSource{1, {value}}}}};
  std::vector<PlanPhase> phases = is_file ? parse_plan_file(value) : parse_plan(value, name);
  for (const PlanPhase& phase : phases) {
    const std::int64_t length = phase.seq_len == 0 ? seq_len : phase.seq_len;
    for (const PlanSource& source : phase.sources)
      for (const std::string& directory : source.folders)
        refuse_texts(directory, name, kinds, length);
  }
  return phases;
}

}  // namespace trireme::data
