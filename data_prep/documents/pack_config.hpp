#pragma once
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data_prep/documents/jsonl_record.hpp"
#include "data_prep/progress.hpp"
#include "text/chat/augment.hpp"

namespace trireme {

/// What `pack` is asked for where a line is a conversation or a pair. All of it decides bytes.
struct ChatConfig {
  std::string format;                       // --template, see text/chat/chat_template.hpp
  std::string mask = "answer";              // or "minimind"
  std::string special_in_content = "text";  // or "allow", "error"
  std::vector<std::string> fields;          // --fields, see ChatReader; empty: the usual names
  std::int64_t copies = 1;                  // documents a record, each with draws of its own
  ChatAugment augment;
};

/// What `pack` is asked for. All but the last group decides the bytes of the set.
struct PackConfig {
  std::string kind = "pretrain";  // or "sft", "dpo"
  std::vector<std::string> inputs;
  std::string output;
  std::int64_t seq_len = 512;
  std::string field = "text";
  bool bos = true;  // the tokenizer's begin token before each document, if it has one
  bool eos = true;  // its end token after
  std::string special_in_text = "allow";  // added tokens inside a text, or "text": as characters
  ChatConfig chat;                        // for kinds sft and dpo
  OnBadText on_bad_text = OnBadText::error;
  std::int64_t unit_bytes = std::int64_t{256} << 20;  // of input a shard is made from

  std::optional<std::int64_t> max_bad;  // none: any number
  std::int64_t threads = 0;             // 0: the processors at hand
  std::string schedule = "dynamic";     // who makes which unit: "dynamic" or "static"
  ProgressMode progress = ProgressMode::automatic;
};

}  // namespace trireme
