#include "train/run/sample_texts.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/tokenizer/model_template.hpp"
#include "comm/agree.hpp"
#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json_lines.hpp"
#include "device/precision.hpp"
#include "device/torch_errors.hpp"
#include "generate/answer_all.hpp"
#include "generate/load/prompts.hpp"
#include "ops/operations.hpp"
#include "text/chat/chat_writer.hpp"
#include "text/encode_text.hpp"

namespace trireme::train {
namespace {

constexpr std::size_t kMaxFileBytes = std::size_t{64} << 20;
constexpr std::int64_t kMaxBatch = 8;

/// Returns the prompts of a .jsonl file, or the lines of another file.
std::vector<generate::Prompt> read_sample_prompts(const std::string& file) {
  if (file.ends_with(".jsonl")) return generate::read_prompts(std::filesystem::path(file));
  std::vector<generate::Prompt> prompts;
  for_each_line(read_text(file, kMaxFileBytes), file,
                [&](std::string_view line, const std::string& where) {
                  prompts.push_back({std::string(line), where});
                });
  if (prompts.empty())
    fail(ErrorKind::data, "{} contains no prompt. Write one text per line.", file);
  return prompts;
}

/// Returns the writer of the chat format of the training data.
text::ChatWriter chat_writer(const RunData& data, const text::Tokenizer& tokenizer,
                             const std::string& where) {
  const std::string& name = data.chat_template();
  if (name.empty())
    fail(
        ErrorKind::data,
        "{}: the training data has no chat format. Give {{\"prompt\"}} instead of {{\"messages\"}}.",
        where);
  return {checkpoint::is_custom_template(name)
              ? text::jinja_chat_template(checkpoint::jinja_of(data.tokenizer_files()), where)
              : text::shared_chat_template(name),
          tokenizer};
}

}  // namespace

SampleTexts::SampleTexts(const RunRequest& run, const RunData& data) {
  const std::string& file = run.config.metrics.samples;
  if (file.empty() || run.config.train.eval_every == 0) return;
  if (run.task.trains_reward_head())
    fail(ErrorKind::usage,
         "metrics.samples is {}. It must be empty, because {} trains no language model.", file,
         run.name);
  const model::ModelConfig& model = run.config.model;
  tokenizer_ = std::make_unique<text::Tokenizer>(
      text::Tokenizer::from_files(data.tokenizer_files(), run.config.data.path));
  for (const generate::Prompt& given : read_sample_prompts(file)) {
    Prompt prompt;
    if (const auto eos = tokenizer_->eos_id()) prompt.end_tokens.push_back(*eos);
    if (const auto* ids = std::get_if<std::vector<std::uint32_t>>(&given.content)) {
      prompt.ids = *ids;
    } else if (const auto* chat = std::get_if<text::Conversation>(&given.content)) {
      const text::ChatWriter writer = chat_writer(data, *tokenizer_, given.where);
      prompt.ids = writer.encode(writer.render(*chat));
      prompt.end_tokens = writer.end_tokens(prompt.end_tokens, model.vocab_size);
      prompt.stop = writer.end_texts(model.vocab_size);
    } else {
      prompt.ids = text::encode_text(*tokenizer_, std::get<std::string>(given.content));
    }
    generate::Request request;
    request.prompt = prompt.ids;
    request.max_tokens = run.config.metrics.sample_tokens;
    if (const auto problem = generate::find_problem(request, model.vocab_size, model.max_seq_len))
      fail(ErrorKind::data, "{}: {} = {}", given.where, problem->field, problem->message);
    prompt.text = tokenizer_->decode(prompt.ids);
    prompts_.push_back(std::move(prompt));
  }
}

std::vector<std::string> SampleTexts::own_texts(const RunRequest& run, RunModel& model) {
  const comm::Communicator& world = run.ranks.world;
  std::vector<generate::Request> requests;
  std::size_t longest = 0;
  for (auto i = static_cast<std::size_t>(world.rank()); i < prompts_.size();
       i += static_cast<std::size_t>(world.size())) {
    generate::Request request;
    request.prompt = prompts_[i].ids;
    request.max_tokens = run.config.metrics.sample_tokens;
    request.sampling.temperature = 0;
    request.end_tokens = prompts_[i].end_tokens;
    request.stop = prompts_[i].stop;
    longest = std::max(longest, request.prompt.size());
    requests.push_back(std::move(request));
  }
  if (requests.empty()) return {};
  generate::EngineConfig config;
  config.max_batch = std::min<std::int64_t>(std::ssize(requests), kMaxBatch);
  config.max_context =
      std::min(static_cast<std::int64_t>(longest) + run.config.metrics.sample_tokens,
               run.config.model.max_seq_len);
  config.context_option = "metrics.sample_tokens";
  generate::GenerationEngine engine(whole_ ? whole_->transformer() : model.transformer, *tokenizer_,
                                    config);
  std::vector<std::string> texts;
  for (const generate::Answer& answer : answer_all(engine, std::move(requests))) {
    if (answer.error) throw Error(*answer.error);
    texts.push_back(answer.text);
  }
  return texts;
}

std::vector<SampleText> SampleTexts::generate(const RunRequest& run, RunModel& model) {
  const RunConfig& config = run.config;
  comm::Communicator& world = run.ranks.world;
  if (parallel::divides_model(config.parallel)) {
    if (!whole_)
      whole_ = std::make_unique<WholeModel>(WholeModel::Setup{
          config.model, ops::path_of(config.train.fused_ops), config.lora,
          device::precision_dtypes(config.train.precision).compute, model.registry.device()});
    whole_->copy_weights(model.registry);
  }
  const std::vector<std::string> own = comm::all_or_none(
      world, [&] { return device::with_torch_errors([&] { return own_texts(run, model); }); });
  const std::vector<std::string> all = comm::gather_texts(world, json_text(own));
  std::vector<SampleText> texts;
  if (all.empty()) return texts;
  for (std::size_t i = 0; i < prompts_.size(); ++i) {
    const std::size_t rank = i % all.size();
    const Json of_rank = parse_json(all[rank], "samples");
    texts.push_back({prompts_[i].text, of_rank.at(i / all.size()).get<std::string>()});
  }
  return texts;
}

}  // namespace trireme::train
