#include "bin/trireme/chat/chat_session.hpp"

#include <nlohmann/json.hpp>

#include "core/edit_distance.hpp"
#include "core/escape.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/process/run_main.hpp"
#include "core/terminal/interrupts.hpp"
#include "core/terminal/terminal.hpp"
#include "serve/tools/answer_parser.hpp"

namespace trireme {
namespace {

constexpr std::string_view kQuotes = "\"\"\"";

std::string_view trimmed(std::string_view text) {
  constexpr std::string_view kSpace = " \t\r\n";
  const std::size_t begin = text.find_first_not_of(kSpace);
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(kSpace) - begin + 1);
}

/// Returns the first word and the rest of the text.
std::pair<std::string_view, std::string_view> split_word(std::string_view text) {
  const std::size_t end = std::min(text.find_first_of(" \t"), text.size());
  return {text.substr(0, end), trimmed(text.substr(end))};
}

Json json_of(const text::ChatMessage& message) {
  Json json{{"role", text::role_name(message.role)}, {"content", message.content}};
  if (message.reasoning) json["reasoning_content"] = *message.reasoning;
  return json;
}

}  // namespace

struct ChatSession::Command {
  const char* name;
  const char* values;
  const char* help;
  void (*run)(ChatSession& talk, std::string_view rest);
};

const std::vector<ChatSession::Command>& ChatSession::table() {
  static const std::vector<Command> rows{
      {"/help", "", "list the commands", [](ChatSession& talk, auto) { talk.help(); }},
      {"/system", "[TEXT]", "start a new conversation with the system prompt TEXT",
       [](ChatSession& talk, auto rest) { talk.begin(std::string(rest)); }},
      {"/clear", "", "start a new conversation with the same system prompt",
       [](ChatSession& talk, auto) { talk.begin(std::string(talk.system())); }},
      {"/regen", "", "generate another answer to the last message",
       [](ChatSession& talk, auto) { talk.regenerate(); }},
      {"/save", "FILE", "append the conversation to FILE as one JSON line that pack can read",
       [](ChatSession& talk, auto rest) { talk.save(rest); }},
      {"/set", "[NAME VALUE]", "change a setting; without NAME: show all settings",
       [](ChatSession& talk, auto rest) { talk.set(rest); }},
      {"/thoughts", "", "show the thoughts before the last answer",
       [](ChatSession& talk, auto) { talk.show_thoughts(); }},
      {"/exit", "", "end the program, like Ctrl-D", nullptr}};
  return rows;
}

std::vector<std::string> ChatSession::commands() {
  std::vector<std::string> names;
  for (const Command& command : table()) names.emplace_back(command.name);
  return names;
}

ChatSession::ChatSession(const generate::LoadedModel& model, generate::GenerationEngine& engine,
                         ChatSettings settings, std::string system, bool on_terminal)
    : engine_(engine),
      writer_(generate::chat_writer_of(model)),
      end_tokens_(writer_.end_tokens(model.end_tokens, model.transformer->config().vocab_size)),
      end_texts_(writer_.end_texts(model.transformer->config().vocab_size)),
      settings_(std::move(settings)),
      on_terminal_(on_terminal) {
  begin(std::move(system));
}

bool ChatSession::take(std::string_view line) {
  if (is_open_) {
    const bool ends = trimmed(line).ends_with(kQuotes);
    if (ends) line = line.substr(0, line.rfind(kQuotes));
    open_text_ += line;
    if (!ends) {
      open_text_ += '\n';
      return true;
    }
    end_open();
    return true;
  }
  const std::string_view text = trimmed(line);
  if (text.empty()) return true;
  if (text.starts_with(kQuotes)) {
    is_open_ = true;
    return text.size() == kQuotes.size() || take(text.substr(kQuotes.size()));
  }
  if (text.starts_with("//")) {
    ask(std::string(text.substr(1)));
    return true;
  }
  if (text.starts_with('/')) return run_command(text);
  ask(std::string(text));
  return true;
}

void ChatSession::end_open() {
  is_open_ = false;
  ask(std::exchange(open_text_, {}));
}

void ChatSession::drop_open() {
  is_open_ = false;
  open_text_.clear();
}

bool ChatSession::run_command(std::string_view line) {
  const auto [name, rest] = split_word(line);
  if (name == "/exit" || name == "/quit") return false;
  for (const Command& command : table()) {
    if (name != command.name) continue;
    command.run(*this, rest);
    return true;
  }
  fail(ErrorKind::usage,
       "unknown command {}{} (/help lists the commands; // begins a message with /)", name,
       did_you_mean(name, commands()));
}

void ChatSession::ask(std::string text) {
  conversation_.messages.push_back({text::Role::user, std::move(text), {}, {}});
  attempt_ = 0;
  try {
    answer();
  } catch (...) {
    conversation_.messages.pop_back();
    throw;
  }
}

generate::Request ChatSession::request(const text::RenderedChat& chat) const {
  generate::Request request;
  request.prompt = writer_.encode(chat);
  request.max_tokens = settings_.max_tokens;
  request.sampling = settings_.sampling;
  request.answer = attempt_;
  request.end_tokens = end_tokens_;
  request.stop = end_texts_;
  if (const auto problem = engine_.find_problem(request)) {
    if (problem->field == "prompt")
      fail(ErrorKind::usage, "the conversation = {}; /clear begins a new one", problem->message);
    fail(ErrorKind::usage, "{} = {}", problem->field, problem->message);
  }
  return request;
}

void ChatSession::answer() {
  const text::RenderedChat chat = writer_.render(conversation_, settings_.thinking);
  serve::AnswerParser parser({.begins_in_thought = chat.opens_thought(), .tools = {}});
  AnswerPrinter printer({on_terminal_, may_use_colors(), settings_.show_thoughts});
  text::ChatMessage message{text::Role::assistant, {}, {}, {}};
  std::int64_t tokens = 0;
  const auto show = [&](const serve::AnswerDelta& piece) {
    if (!piece.thought.empty()) message.reasoning = message.reasoning.value_or("") + piece.thought;
    message.content += piece.content;
    printer.thought(piece.thought, tokens);
    printer.content(piece.content);
  };
  // Printing may throw, but the callbacks of the engine must not throw.
  std::vector<generate::Delta> arrived;
  const auto id = engine_.submit(
      request(chat), [&](generate::Delta delta) { arrived.push_back(std::move(delta)); });
  std::optional<generate::FinishReason> finish;
  CatchInterrupts::take();
  while (engine_.step()) {
    for (const generate::Delta& delta : std::exchange(arrived, {})) {
      if (delta.error) throw Error(*delta.error);
      tokens += static_cast<std::int64_t>(delta.tokens.size());
      finish = delta.finish;
      show(parser.push(delta.text));
    }
    if (CatchInterrupts::take()) engine_.cancel(*id);
  }
  show(parser.finish());
  printer.end(tokens, finish == generate::FinishReason::cancelled ? "stopped: "
                      : finish == generate::FinishReason::length  ? "cut at max_tokens: "
                                                                  : "");
  conversation_.messages.push_back(std::move(message));
}

// ---- commands

void ChatSession::say(std::string_view text) const {
  if (on_terminal_) print(text);
}

void ChatSession::help() const {
  std::string text;
  for (const Command& command : table()) {
    std::string left = cat(command.name, " ", command.values);
    left.resize(std::max<std::size_t>(left.size() + 1, 20), ' ');
    text += cat(left, command.help, "\n");
  }
  text +=
      "\"\"\" begins and ends a message of several lines; // begins a message with /.\n"
      "Ctrl-C stops an answer, Ctrl-D ends the program.\n";
  say(text);
}

std::string_view ChatSession::system() const {
  const std::vector<text::ChatMessage>& messages = conversation_.messages;
  if (messages.empty() || messages.front().role != text::Role::system) return {};
  return messages.front().content;
}

void ChatSession::begin(std::string system) {
  conversation_.messages.clear();
  if (!system.empty())
    conversation_.messages.push_back({text::Role::system, std::move(system), {}, {}});
}

bool ChatSession::has_answer() const {
  const std::vector<text::ChatMessage>& messages = conversation_.messages;
  return !messages.empty() && messages.back().role == text::Role::assistant;
}

void ChatSession::regenerate() {
  std::vector<text::ChatMessage>& messages = conversation_.messages;
  if (!has_answer()) fail(ErrorKind::usage, "/regen: there is no answer yet");
  const text::ChatMessage before = std::move(messages.back());
  messages.pop_back();
  ++attempt_;
  try {
    answer();
  } catch (...) {
    messages.push_back(before);
    throw;
  }
}

void ChatSession::save(const std::filesystem::path& file) const {
  if (file.empty()) fail(ErrorKind::usage, "/save needs a file");
  if (!has_answer()) fail(ErrorKind::usage, "/save: there is no answer yet");
  Json messages = Json::array();
  for (const text::ChatMessage& message : conversation_.messages)
    messages.push_back(json_of(message));
  const std::string line = Json{{"messages", std::move(messages)}}.dump() + "\n";
  append_to_file(file, line);
  say(formatted("appended {} messages to {}\n", conversation_.messages.size(), file.string()));
}

void ChatSession::set(std::string_view words) {
  const auto [name, value] = split_word(words);
  if (!name.empty() && value.empty()) fail(ErrorKind::usage, "/set {} needs a value", name);
  if (!name.empty())
    settings_.set(name, value);
  else
    say(settings_.text());
}

void ChatSession::show_thoughts() const {
  const std::vector<text::ChatMessage>& messages = conversation_.messages;
  const bool has = !messages.empty() && messages.back().reasoning.has_value();
  say(has ? cat(escape_controls(*messages.back().reasoning), "\n") : "no thoughts\n");
}

}  // namespace trireme
