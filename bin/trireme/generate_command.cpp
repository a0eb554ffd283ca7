#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "bin/trireme/commands.hpp"
#include "bin/trireme/model_options.hpp"
#include "comm/agree.hpp"
#include "comm/liveness/heartbeat.hpp"
#include "core/files/json_lines.hpp"
#include "core/process/run_main.hpp"
#include "generate/answer_all.hpp"
#include "generate/load/load_model.hpp"
#include "generate/load/load_on_ranks.hpp"
#include "generate/load/prompts.hpp"
#include "generate/model_ranks.hpp"
#include "generate/sampling.hpp"
#include "text/encode_text.hpp"

namespace trireme {
namespace {

/// Prints the outputs of all prompts in the order of the prompts. The output of the first
/// unfinished prompt is printed as it arrives; later outputs wait.
class OrderedOutput {
 public:
  /// `heads`: text printed before the output of each prompt.
  explicit OrderedOutput(std::vector<std::string> heads)
      : waiting_(std::move(heads)), ended_(waiting_.size(), false) {
    flush();
  }

  void add(std::size_t index, const std::string& text, bool last) {
    waiting_[index] += text;
    ended_[index] = last;
    flush();
  }

 private:
  void flush() {
    for (; next_ < waiting_.size(); ++next_) {
      print(std::exchange(waiting_[next_], {}));
      if (!ended_[next_]) break;
    }
    std::fflush(stdout);
  }

  std::vector<std::string> waiting_;
  std::vector<bool> ended_;
  std::size_t next_ = 0;
};

struct GenerateSettings {
  GenerateSettings() {
    engine.max_batch = 8;
    engine.context_option = "--max-tokens";
  }

  generate::ModelOptions model;
  generate::ModelLayout layout;
  std::vector<std::string> prompt;
  std::string prompts_file;
  bool chat = false;
  bool json = false;
  std::vector<std::string> stop;
  std::int64_t max_tokens = 128;
  bool ignore_eos = false;
  generate::SamplingConfig sampling;
  generate::EngineConfig engine;
};

void check(const GenerateSettings& settings) {
  if (const auto problem = generate::find_problem(settings.sampling)) {
    std::string option = problem->field;
    std::replace(option.begin(), option.end(), '_', '-');
    fail(ErrorKind::usage, "--{} {}", option, problem->message);
  }
  if (settings.max_tokens < 1)
    fail(ErrorKind::usage, "--max-tokens {}, must be 1 or more", settings.max_tokens);
  generate::check_batch("--batch", settings.engine.max_batch);
  generate::check_cuda_graph(settings.engine.cuda_graph);
  if (std::count(settings.stop.begin(), settings.stop.end(), "") > 0)
    fail(ErrorKind::usage, "--stop is empty, must have a character");
}

std::vector<generate::Prompt> prompts_of(const GenerateSettings& settings) {
  if (settings.prompt.empty() == settings.prompts_file.empty())
    fail(ErrorKind::usage, "give either --prompt TEXT or --prompts FILE (- means standard input)");
  if (settings.prompts_file == "-") return generate::read_prompts(stdin);
  if (!settings.prompts_file.empty()) return generate::read_prompts(settings.prompts_file);
  if (settings.prompt.size() > 1) {
    fail(
        ErrorKind::usage,
        "--prompt takes one text, but {} are given: quote it, or write several to a file for --prompts",
        settings.prompt.size());
  }
  return {{settings.prompt.front() == "-" ? generate::read_prompt(stdin) : settings.prompt.front(),
           ""}};
}

/// Throws Error(usage) if --chat-template is given but no prompt is a chat.
void check_chat_template(const GenerateSettings& settings,
                         const std::vector<generate::Prompt>& prompts) {
  const auto is_chat = [&](const generate::Prompt& prompt) {
    return std::holds_alternative<text::Conversation>(prompt.content) ||
           (settings.chat && std::holds_alternative<std::string>(prompt.content));
  };
  const generate::ModelOptions& model = settings.model;
  const bool is_given = !model.chat_template.empty() || !model.chat_template_file.empty();
  if (!is_given || std::any_of(prompts.begin(), prompts.end(), is_chat)) return;
  fail(ErrorKind::usage, "{}: no prompt is a chat. Give --chat, or prompts with \"messages\"",
       model.chat_template.empty() ? cat("--chat-template-file ", model.chat_template_file)
                                   : cat("--chat-template ", model.chat_template));
}

generate::Request request_of(const GenerateSettings& settings, const generate::LoadedModel& model,
                             const generate::Prompt& prompt) {
  generate::Request request;
  request.end_tokens = model.end_tokens;
  request.stop = settings.stop;
  const auto ask = [&](const text::Conversation& chat) {
    const std::int64_t vocab_size = model.transformer->config().vocab_size;
    const text::ChatWriter writer = generate::chat_writer_of(model);
    request.prompt = writer.encode(writer.render(chat));
    request.end_tokens = writer.end_tokens(model.end_tokens, vocab_size);
    if (settings.ignore_eos) return;
    for (std::string& text : writer.end_texts(vocab_size)) request.stop.push_back(std::move(text));
  };
  if (const auto* ids = std::get_if<std::vector<std::uint32_t>>(&prompt.content)) {
    request.prompt = *ids;
  } else if (const auto* chat = std::get_if<text::Conversation>(&prompt.content)) {
    ask(*chat);
  } else if (const auto& text = std::get<std::string>(prompt.content); settings.chat) {
    text::Conversation question;
    question.messages.push_back({text::Role::user, text, {}, {}});
    ask(question);
  } else {
    request.prompt = text::encode_text(model.tokenizer, text);
  }
  request.max_tokens = settings.max_tokens;
  request.sampling = settings.sampling;
  request.ignore_eos = settings.ignore_eos;
  if (settings.json) request.top_logprobs = 0;
  return request;
}

/// Returns the requests of all prompts. An invalid prompt ends the command here, before any
/// generation.
std::vector<generate::Request> requests_of(const GenerateSettings& settings,
                                           const generate::LoadedModel& model,
                                           const std::vector<generate::Prompt>& prompts) {
  const model::ModelConfig& config = model.transformer->config();
  std::vector<generate::Request> requests;
  for (const generate::Prompt& prompt : prompts) {
    const auto error = comm::capture([&] {
      generate::Request request = request_of(settings, model, prompt);
      if (request.prompt.empty()) {
        fail(ErrorKind::usage,
             "the prompt is empty, and the tokenizer has no beginning-of-text token");
      }
      if (static_cast<std::int64_t>(request.prompt.size()) >= config.max_seq_len) {
        fail(ErrorKind::usage,
             "the prompt has {} tokens, the model takes less than {} (model.max_seq_len)",
             request.prompt.size(), config.max_seq_len);
      }
      if (const auto problem =
              generate::find_problem(request, config.vocab_size, config.max_seq_len))
        fail(ErrorKind::usage, "{} = {}", problem->field, problem->message);
      requests.push_back(std::move(request));
    });
    if (error && prompt.where.empty()) throw Error(*error);
    if (error) fail(ErrorKind::data, "{}: {}", prompt.where, error->what());
  }
  return requests;
}

std::string result_line(std::size_t index, std::size_t prompt_tokens,
                        const generate::Answer& answer) {
  Json ids = Json::array();
  Json logprobs = Json::array();
  for (const generate::TokenReport& token : answer.tokens) {
    ids.push_back(token.id);
    logprobs.push_back(*token.logprob);
  }
  Json line{{"index", index},
            {"text", answer.text},
            {"ids", std::move(ids)},
            {"logprobs", std::move(logprobs)},
            {"finish_reason", generate::finish_reason_name(answer.finish)},
            {"prompt_tokens", prompt_tokens},
            {"completion_tokens", answer.tokens.size()}};
  if (answer.error) line["error"] = answer.error->what();
  return json_line(line);
}

/// Answers all prompts and prints the outputs, on rank 0.
int answer(const GenerateSettings& settings, const std::vector<generate::Prompt>& prompts,
           const generate::LoadedModel& loaded, generate::ModelRanks* ranks) {
  const generate::LoadedModel* const model = &loaded;
  std::vector<generate::Request> requests = requests_of(settings, loaded, prompts);

  generate::EngineConfig config = settings.engine;
  config.max_batch = std::min(config.max_batch, static_cast<std::int64_t>(requests.size()));
  std::vector<std::size_t> prompt_tokens;
  for (const generate::Request& request : requests) prompt_tokens.push_back(request.prompt.size());
  const auto longest =
      static_cast<std::int64_t>(*std::max_element(prompt_tokens.begin(), prompt_tokens.end()));
  const std::int64_t most = model->transformer->config().max_seq_len;
  config.max_context = longest + std::min(settings.max_tokens, most - longest);
  generate::GenerationEngine engine(*model->transformer, model->tokenizer, config, ranks);

  std::vector<std::string> heads(prompts.size());
  for (std::size_t i = 0; i < prompts.size(); ++i) {
    if (!settings.json && !settings.prompts_file.empty())
      heads[i] = formatted("{}==> {} <==\n", i == 0 ? "" : "\n", prompts[i].where);
  }
  OrderedOutput output(std::move(heads));
  const std::vector<generate::Answer> answers = generate::answer_all(
      engine, std::move(requests),
      [&](std::size_t index, const generate::Delta& delta, const generate::Answer& so_far) {
        const bool last = delta.finish.has_value();
        const std::string end = !last           ? ""
                                : settings.json ? result_line(index, prompt_tokens[index], so_far)
                                                : "\n";
        output.add(index, settings.json ? end : delta.text + end, last);
      });
  for (const generate::Answer& one : answers) {
    if (one.error) throw Error(*one.error);
  }
  return kExitDone;
}

int run(const GenerateSettings& settings, comm::Launch& launch) {
  comm::Communicator& world = launch.world();
  const comm::Heartbeat heartbeat(world, launch.info(), std::make_shared<comm::Activity>());
  std::vector<generate::Prompt> prompts;
  comm::all_or_none(world, [&] {
    generate::check_layout(settings.layout, settings.model, world.size());
    if (world.rank() != 0) return;  // only rank 0 has the standard input
    check(settings);
    prompts = prompts_of(settings);
    check_chat_template(settings, prompts);
  });
  const generate::ModelPart part = generate::load_on_ranks(
      settings.model, settings.layout, {world, launch.info().local_rank, launch.info().local_size});
  const auto& model = part.model;
  if (world.rank() != 0) return generate::follow(*model->transformer, world, part.pipeline);
  generate::ModelRanks ranks(world, part.pipeline, part.stage_layers);
  return ranks.lead(
      [&] { return answer(settings, prompts, *model, world.size() > 1 ? &ranks : nullptr); });
}

}  // namespace

void add_generate_command(config::CommandLine& line, comm::Launch& launch) {
  const auto settings = std::make_shared<GenerateSettings>();
  config::Command& command =
      line.command("generate", "continue texts or answer chats with a trained model");
  add_model_options(command, settings->model);
  add_weights_option(command, settings->model);
  add_layout_options(command, settings->layout);
  add_cuda_graph_option(command, settings->engine.cuda_graph);
  add_chat_template_option(command, settings->model)
      .option("--prompt", &settings->prompt, "TEXT",
              "text to continue, may contain special tokens; -: standard input without its last "
              "newline")
      .option(
          "--prompts", &settings->prompts_file, "FILE",
          "JSON Lines of {\"prompt\"}, {\"ids\"} or {\"messages\", \"tools\"}; -: standard input")
      .flag("--chat", settings->chat,
            "treat each text as a user message and answer in the model's chat format")
      .flag("--json", settings->json,
            "print JSON Lines, for each prompt {\"index\", \"text\", \"ids\", \"logprobs\", "
            "\"finish_reason\", \"prompt_tokens\", \"completion_tokens\"}")
      .option("--max-tokens", &settings->max_tokens, "N", "maximum number of new tokens");
  add_draw_options(command, settings->sampling)
      .option("--min-p", &settings->sampling.min_p, "P",
              "sample only tokens with at least this fraction of the highest probability")
      .option("--repetition-penalty", &settings->sampling.repetition_penalty, "X",
              "penalty for tokens of the prompt and the output; above 1: less likely")
      .option("--presence-penalty", &settings->sampling.presence_penalty, "X",
              "value subtracted once from the logits of tokens in the output")
      .option("--frequency-penalty", &settings->sampling.frequency_penalty, "X",
              "value subtracted from the logits for each occurrence of the token in the output")
      .option("--stop", &settings->stop, "TEXT",
              "text that ends the output (excluded from it); may be repeated")
      .flag("--ignore-eos", settings->ignore_eos, "do not stop at the model's end tokens")
      .option("--seed", &settings->sampling.seed, "N", "random seed for sampling")
      .option("--batch", &settings->engine.max_batch, "N",
              "prompts generated at once; does not change the outputs")
      .option("--kv-cache-mib", &settings->engine.kv_cache_mib, "N",
              "size of the KV cache in MiB; 0: as much as the prompts need")
      .example(
          "trireme generate --checkpoint runs/first --prompt \"Once upon a time\" "
          "--temperature 0")
      .example("trireme generate --checkpoint runs/sft --chat --prompt \"Who are you?\"")
      .example("trireme generate --checkpoint hf/model --prompts prompts.jsonl --batch 16 --json")
      .example(
          "mpirun -n 2 trireme generate --checkpoint runs/sft --parallel.tp 2 --chat --prompt Hi")
      .example(
          "mpirun -n 4 trireme generate --checkpoint hf/model --parallel.tp 2 --parallel.pp 2 "
          "--prompt Hi")
      .ranks(config::Ranks::all)
      .run([settings, &launch] { return run(*settings, launch); });
}

}  // namespace trireme
