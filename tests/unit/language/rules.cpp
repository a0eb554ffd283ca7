#include "unit/language/rules.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>

namespace trireme::language {
namespace {

constexpr std::size_t kMaxColumns = 100;
constexpr std::size_t kMaxWord = 60;  // a longer word cannot be wrapped
constexpr std::size_t kMaxWords = 30;

/// The words of the table of terms that have no other meaning in this project.
constexpr std::array kPrivateWords{
    "leg",    "legs",   "journal", "journals", "verdict",  "verdicts",   "wish",
    "wishes", "keeper", "keepers", "heed",     "heeds",    "settle",     "settles",
    "tape",   "tapes",  "cargo",   "tally",    "tallies",  "seam",       "seams",
    "pace",   "folder", "folders", "upkeep",   "likewise", "alike",      "whose",
    "shall",  "told",   "rooms",   "dealt",    "deals",    "micro-step", "micro-steps"};

/// Returns the phrases of the table of terms, each as its words.
const std::vector<std::vector<std::string_view>>& private_phrases() {
  static const std::vector<std::vector<std::string_view>> phrases{
      {"main", "weights"},     {"main", "gradients"},   {"stage", "links"}, {"our", "kernels"},
      {"bad", "line"},         {"bad", "lines"},        {"goes", "on"},     {"comes", "back"},
      {"what", "is", "there"}, {"of", "those", "that"}, {"else", "absent"}, {"becomes", "of"},
      {"micro", "step"},       {"micro", "steps"}};
  return phrases;
}

struct Word {
  std::string word;  // lower case; "" for code
  std::size_t line = 0;
  bool ends_clause = false;  // a comma, a semicolon or a full stop follows
};

std::string_view stripped(std::string_view token, std::string_view front, std::string_view back) {
  token.remove_prefix(std::min(token.find_first_not_of(front), token.size()));
  return token.substr(0, token.find_last_not_of(back) + 1);
}

/// Returns `token` in lower case without punctuation, or "" if it is code.
std::string plain_word(std::string_view token) {
  std::string_view word = stripped(token, "([{*", ".,;:!?)]}*");
  const bool is_quoted = word.size() > 1 && word.front() == word.back() &&
                         (word.front() == '"' || word.front() == '\'');
  if (is_quoted || word.starts_with("-")) return "";
  word = stripped(word, "\"'", "\"'");
  if (word.ends_with("'s")) word.remove_suffix(2);
  std::string lower;
  for (const char c : word) {
    if (std::isalpha(static_cast<unsigned char>(c)) == 0 && c != '-' && c != '\'') return "";
    lower += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  }
  return lower;
}

std::vector<Word> words_of(std::string_view text) {
  std::vector<Word> words;
  std::size_t line = 0;
  while (!text.empty()) {
    const char c = text.front();
    if (c == '\n') ++line;
    if (std::isspace(static_cast<unsigned char>(c)) != 0) {
      text.remove_prefix(1);
      continue;
    }
    const std::size_t code = c == '`' ? text.find('`', 1) : std::string_view::npos;
    const std::size_t begin = code == std::string_view::npos ? 0 : code;
    const std::size_t end = std::min(text.find_first_of(" \t\n", begin), text.size());
    const std::string_view token = text.substr(0, end);
    const char last = token.back();
    words.push_back({begin > 0 ? "" : plain_word(token), line,
                     last == ',' || last == ';' || last == '.' || last == ':'});
    line += static_cast<std::size_t>(std::ranges::count(token, '\n'));
    text.remove_prefix(end);
  }
  return words;
}

/// Returns true for "In X, Y does Z": after the comma, a subject begins.
bool is_in_sentence(std::string_view text, const std::vector<Word>& words) {
  static const std::set<std::string> kNoSubject{
      "and", "as", "at", "but", "by",   "for",  "from", "if",      "in",   "not",  "of",
      "on",  "or", "so", "to",  "also", "with", "then", "without", "else", "which"};
  std::size_t comma = 1;
  while (comma < words.size() && !words[comma].ends_clause) ++comma;
  if (comma + 1 >= words.size() || kNoSubject.count(words[comma + 1].word) != 0) return false;
  bool in_code = false;
  for (const char c : text) {
    if (c == '`') in_code = !in_code;
    if (!in_code && std::string_view(",;.:([").find(c) != std::string_view::npos) return c == ',';
  }
  return false;
}

/// Returns where the description of an option or a command begins in a line of help; npos if the
/// line has none.
std::size_t description_begin(std::string_view line, std::string_view before) {
  const std::size_t indent = line.find_first_not_of(' ');
  if (indent == 6 && before.starts_with("  --")) return indent;  // a key of --help-all
  if (indent != 2) return std::string_view::npos;
  const std::size_t gap = line.find("  ", indent);
  return gap == std::string_view::npos ? gap : line.find_first_not_of(' ', gap);
}

std::size_t longest_word(std::string_view line) {
  std::size_t longest = 0;
  while (!line.empty()) {
    const std::size_t end = std::min(line.find(' '), line.size());
    longest = std::max(longest, end);
    line.remove_prefix(std::min(end + 1, line.size()));
  }
  return longest;
}

std::string quoted_begin(std::string_view text) {
  return "\"" + std::string(text.substr(0, std::min(text.find('\n'), std::size_t{70}))) + "\"";
}

}  // namespace

std::string bare_opening(std::string_view text) {
  const std::vector<Word> words = words_of(text);
  if (words.empty()) return "";
  const std::string& first = words.front().word;
  const std::string second = words.size() > 1 ? words[1].word : "";
  if (first == "the" && second == "same") return "the same";
  if (first == "of" || first == "what" || first == "whether" || first == "how") return first;
  if (first == "as" && second != "in") return first;
  if (first == "in" && !is_in_sentence(text, words)) return first;
  return "";
}

std::vector<PrivateWord> private_words(std::string_view text) {
  const std::vector<Word> words = words_of(text);
  const auto is_listed = [](std::string_view word) {
    return std::ranges::find(kPrivateWords, word) != kPrivateWords.end();
  };
  std::vector<PrivateWord> found;
  for (std::size_t i = 0; i < words.size(); ++i) {
    const std::string_view word = words[i].word;
    const std::size_t hyphen = word.find('-');
    const bool has_hyphen = hyphen != std::string_view::npos;
    if (is_listed(word) ||
        (has_hyphen && (is_listed(word.substr(0, hyphen)) || is_listed(word.substr(hyphen + 1)))))
      found.push_back({std::string(word), words[i].line});
    for (const auto& phrase : private_phrases()) {
      std::string joined;
      bool matches = i + phrase.size() <= words.size();
      for (std::size_t j = 0; j < phrase.size() && matches; ++j) {
        matches =
            words[i + j].word == phrase[j] && (j + 1 == phrase.size() || !words[i + j].ends_clause);
        joined += (j == 0 ? "" : " ") + std::string(phrase[j]);
      }
      if (matches) found.push_back({joined, words[i].line});
    }
  }
  return found;
}

std::vector<Finding> check_file(const std::string& path, std::string_view content) {
  std::vector<Finding> findings;
  for (const Text& text : texts_of(path, content)) {
    const std::string opening = text.kind == TextKind::comment ? bare_opening(text.text) : "";
    if (!opening.empty()) {
      findings.push_back({path, text.line,
                          "the comment " + quoted_begin(text.text) + " opens with \"" + opening +
                              "\": write a whole sentence that names the subject"});
    }
    for (const PrivateWord& word : private_words(text.text)) {
      findings.push_back({path, text.line + word.line,
                          "\"" + word.word + "\": use the term of tests/unit/language/README.md"});
    }
  }
  return findings;
}

std::vector<std::string> check_help(std::string_view page) {
  std::vector<std::string> findings;
  bool in_examples = false;
  std::string_view before;
  for (bool is_first = true; !page.empty(); is_first = false) {
    const std::string_view line = page.substr(0, page.find('\n'));
    page.remove_prefix(std::min(line.size() + 1, page.size()));
    if (line.empty() || line.front() != ' ') in_examples = line == "examples:";
    const std::size_t dash = is_first ? line.find(" - ") : std::string_view::npos;
    const std::size_t begin =
        dash == std::string_view::npos ? description_begin(line, before) : dash + 3;
    before = line;
    const std::string shown(line);
    if (line.size() > kMaxColumns && longest_word(line) <= kMaxWord)
      findings.push_back("over 100 columns: " + shown);
    if (in_examples) continue;
    if (begin != std::string_view::npos) {
      const std::string opening = bare_opening(line.substr(begin));
      if (!opening.empty())
        findings.push_back("the description opens with \"" + opening + "\": " + shown);
    }
    for (const PrivateWord& word : private_words(line))
      findings.push_back("\"" + word.word + "\": " + shown);
  }
  return findings;
}

std::size_t long_sentences(std::string_view path, std::string_view content) {
  std::size_t count = 0;
  for (const Text& text : texts_of(path, content)) {
    if (text.kind != TextKind::prose) continue;
    for (const std::string& sentence : sentences_of(text.text))
      count += words_of(sentence).size() > kMaxWords ? 1 : 0;
  }
  return count;
}

}  // namespace trireme::language
