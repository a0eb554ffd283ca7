#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/json.hpp"
#include "core/join.hpp"
#include "data/shards/set_content.hpp"
#include "data_prep/documents/document_rules.hpp"
#include "data_prep/pack/pack.hpp"

namespace trireme::data_prep {
namespace {

/// If more than one of kManyCut conversations or preference pairs is cut, the report is a warning.
constexpr std::uint64_t kManyCut = 100;

class Losses {
 public:
  explicit Losses(const data::Manifest& manifest)
      : manifest_(manifest),
        counts_(manifest.counts),
        config_(parse_json(manifest.config_json, "config")),
        at_length_(formatted("--seq-len {}", manifest.seq_len)) {}

  std::vector<Loss> find(const std::vector<std::string>& ignore_fields) {
    if (counts_.bad_lines != 0) {
      const bool all = manifest_.bad.size() == counts_.bad_lines;
      add(log::Level::warn,
          formatted("{}{} skipped{}{} in manifest.json; --max-bad 0 refuses them)", bad_lines(),
                    counts_.bad_lines == 1 ? " was" : " were", first_bad(),
                    all ? " (all" : formatted(" (the first {}", manifest_.bad.size())));
    }
    add_dropped();
    add_cut();
    add_ignored(ignore_fields);
    if (counts_.replaced_chars != 0) {
      add(log::Level::info,
          formatted("replaced bad text by {} U+FFFD (--on-bad-text replace; skip drops such lines)",
                    counts_.replaced_chars));
    }
    return std::move(losses_);
  }

  /// Returns "3 invalid records; the first (FILE:BYTE): ..." and the dropped documents.
  std::string found_only() {
    std::string text = counts_.bad_lines == 0 ? "" : bad_lines() + first_bad();
    add_dropped();
    for (const Loss& loss : losses_) text += cat(text.empty() ? "" : "; ", loss.text);
    return text;
  }

 private:
  void add(log::Level level, std::string text) { losses_.push_back({level, std::move(text)}); }

  [[nodiscard]] const data::SetContent& content() const { return manifest_.contents(); }

  /// Returns the count as a part of all documents read: "7 of 600 pairs".
  [[nodiscard]] std::string share(std::uint64_t count) const {
    return formatted("{} of {} {}s", count, counts_.documents + counts_.dropped,
                     content().document);
  }

  [[nodiscard]] std::string bad_lines() const {
    return formatted("{}{}", counts_.bad_lines,
                     counts_.bad_lines == 1 ? " invalid record" : " invalid records");
  }

  [[nodiscard]] std::string first_bad() const { return first_invalid(manifest_); }

  void add_dropped() {
    const auto dropped = [&](std::uint64_t count, const std::string& why) {
      if (count != 0) add(log::Level::warn, formatted("dropped {}: {}", share(count), why));
    };
    const std::uint64_t other = counts_.dropped - counts_.dropped_long - counts_.dropped_equal;
    if (!content().is_masked())
      return dropped(other, formatted("field '{}' (--field) is empty", config_.value("field", "")));
    if (content().has_prompts()) {
      return dropped(counts_.dropped_long,
                     formatted("the prompt is longer than {} tokens; a longer "
                               "--seq-len keeps them",
                               manifest_.seq_len));
    }
    const char* where = content().has_pairs() ? "a side has no answer target" : "no target";
    const bool drops =
        content().has_pairs() && manifest_.pair_cut_rule() == data::PairCutRule::drop;
    dropped(counts_.dropped_long,
            drops ? formatted("a side is longer than {} (--cut-pairs drop)", at_length_)
                  : formatted("{} within {}; a longer --seq-len keeps them", where, at_length_));
    dropped(counts_.dropped_equal, "chosen and rejected are equal");
    dropped(other,
            formatted(
                "no target at {} with --mask {}, or the field weight or train disables its answers",
                at_length_, config_.value("mask", "")));
  }

  void add_cut() {
    if (counts_.truncated == 0) return;
    std::string what = "they lost their end";
    if (content().has_pairs()) {
      what = formatted(
          "in {} of them the prompt lost its beginning, in {} a side lost its end (--cut-pairs {})",
          counts_.cut_prompts, counts_.cut_answers, config_.value("cut_pairs", ""));
    }
    const std::uint64_t all = counts_.documents + counts_.dropped;
    const bool many = counts_.truncated * kManyCut > all;
    add(many ? log::Level::warn : log::Level::info,
        formatted("cut {} to {}: {}; a longer --seq-len keeps more", share(counts_.truncated),
                  at_length_, what));
  }

  void add_ignored(const std::vector<std::string>& ignore_fields) {
    constexpr std::size_t kMostShown = 8;
    std::vector<std::string> known;
    std::vector<std::string> others;
    for (const auto& [name, records] : manifest_.ignored_fields) {
      const bool is_known = is_named(ignore_fields, name);
      (is_known ? known : others)
          .push_back(formatted("{} in {} record{}", name, records, records == 1 ? "" : "s"));
    }
    if (!known.empty())
      add(log::Level::info,
          formatted("ignored fields of --ignore-fields: {}", joined(known, ", ")));
    if (others.empty()) return;
    const std::size_t more = others.size() - std::min(kMostShown, others.size());
    others.resize(others.size() - more);
    add(log::Level::warn,
        formatted(
            "these fields are not empty but were not read: {}{}; if they are not needed, name them in --ignore-fields",
            joined(others, ", "),
            more == 0 ? "" : formatted(" and {} more (manifest.json lists them)", more)));
  }

  const data::Manifest& manifest_;
  const data::ShardCounts& counts_;
  Json config_;
  std::string at_length_;
  std::vector<Loss> losses_;
};

}  // namespace

std::vector<Loss> find_losses(const data::Manifest& manifest,
                              const std::vector<std::string>& ignore_fields) {
  return Losses(manifest).find(ignore_fields);
}

std::string first_invalid(const data::Manifest& manifest) {
  if (manifest.bad.empty()) return "";
  const std::string& first = manifest.bad.front();
  const auto source = std::ranges::find_if(
      manifest.sources, [&](const auto& one) { return first.starts_with(cat(one.name, ":")); });
  std::string position = source == manifest.sources.end() ? "byte" : source->position;
  std::ranges::transform(position, position.begin(), [](char c) {
    return c >= 'a' && c <= 'z' ? static_cast<char>(c - 'a' + 'A') : c;
  });
  return formatted("; the first (FILE:{}): {}", position, first);
}

std::string explain_empty_set(const std::string& inputs, const data::Manifest& manifest) {
  const std::string found = Losses(manifest).found_only();
  return formatted("no document in {}: {}", inputs, found.empty() ? "no record was found" : found);
}

}  // namespace trireme::data_prep
