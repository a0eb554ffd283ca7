// Renders and encodes chats for chat_oracle.py; not a user program.
// TEMPLATE is a name, or "file:PATH" of a Jinja template.
//   chat_driver TOKENIZER TEMPLATE sft|dpo text|allow|error KEPT IN.jsonl OUT.jsonl
// KEPT is the number of tokens of a chat that get masks; 0: all. A line may have
// "generation_prompt" and
// "thinking". Output lines: {"problem"} or {"chats": [{"text", "ids", "answer", "minimind"}]}, with
// the
// masks as 0 or 1 for each kept token.
//   chat_driver jinja TEMPLATE     prints the Jinja text of exports
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "text/chat/chat_encoder.hpp"
#include "text/chat/chat_reader.hpp"
#include "text/chat/chat_targets.hpp"
#include "text/chat/chat_template.hpp"
#include "text/chat/jinja_chat.hpp"

namespace {

using namespace trireme;

std::vector<int> mask_of(const std::vector<text::TokenSpan>& spans, std::size_t size) {
  std::vector<int> mask(size);
  for (const text::TokenSpan& span : spans) {
    for (std::uint32_t i = span.begin; i < span.end; ++i) mask.at(i) = 1;
  }
  return mask;
}

text::ChatTemplatePtr template_of(const std::string& name) {
  constexpr std::string_view kFile = "file:";
  if (!name.starts_with(kFile)) return text::shared_chat_template(name);
  return text::jinja_chat_template(read_file(name.substr(kFile.size())), "the template");
}

class Driver {
 public:
  Driver(const std::vector<std::string>& args)
      : shared_(template_of(args[1])),
        template_(*shared_),
        encoder_(text::Tokenizer::load(args[0]), text::parse_special_in_content(args[3])),
        reader_(args[2] == "dpo" ? text::ChatForm::pair : text::ChatForm::conversation),
        kept_(std::stoul(args[4])) {
    const text::Tokenizer& tokenizer = encoder_.tokenizer();
    if (const auto id = tokenizer.bos_id()) options_.begin_token = tokenizer.token_content(*id);
    if (const auto id = tokenizer.eos_id()) options_.end_token = tokenizer.token_content(*id);
  }

  Json answer(std::string line) {
    const Json asked = Json::parse(line);
    options_.generation_prompt = asked.value("generation_prompt", false);
    options_.thinking.reset();
    if (asked.contains("thinking")) options_.thinking = asked["thinking"].get<bool>();
    const std::size_t size = line.size();
    line.append(64, '\0');
    std::vector<text::Conversation> conversations;
    if (const auto problem = reader_.read(line.data(), size, conversations))
      return Json{{"problem", problem->reason}};
    Json chats = Json::array();
    for (const text::Conversation& conversation : conversations) {
      text::RenderedChat rendered;
      try {
        rendered = template_.render(conversation, options_);
      } catch (const Error& error) {
        return Json{{"problem", error.what()}};
      }
      text::EncodedChat encoded;
      if (const auto forged = encoder_.encode(rendered, encoded))
        return Json{{"problem", "holds " + *forged}};
      const std::size_t kept =
          kept_ == 0 ? encoded.ids.size() : std::min(kept_, encoded.ids.size());
      const auto mask = [&](text::ChatMask which) {
        return mask_of(text::chat_targets(rendered, encoded, which, template_.search, kept), kept);
      };
      chats.push_back({{"text", rendered.text},
                       {"ids", encoded.ids},
                       {"answer", mask(text::ChatMask::answer)},
                       {"minimind", mask(text::ChatMask::minimind)}});
    }
    return Json{{"chats", chats}};
  }

 private:
  text::ChatTemplatePtr shared_;
  const text::ChatTemplate& template_;
  text::ChatEncoder encoder_;
  text::ChatReader reader_;
  std::size_t kept_;
  text::RenderOptions options_;
};

}  // namespace

int main(int argc, char** argv) {
  try {
    const std::vector<std::string> args(argv + 1, argv + argc);
    if (args.size() == 2 && args[0] == "jinja") {
      std::cout << trireme::text::chat_template(args[1]).jinja();
      return 0;
    }
    if (args.size() != 7) trireme::fail(trireme::ErrorKind::usage, "usage: see chat_driver.cpp");
    Driver driver(args);
    std::ifstream in(args[5]);
    std::ofstream out(args[6]);
    for (std::string line; std::getline(in, line);) out << driver.answer(line) << '\n';
    return 0;
  } catch (const trireme::Error& error) {
    std::cerr << error.what() << '\n';
    return trireme::exit_code(error.kind());
  }
}
