#include "data_prep/bench/synth.hpp"

#include <array>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <string_view>

#include "core/error.hpp"
#include "core/files/file.hpp"
#include "core/files/json.hpp"
#include "core/philox.hpp"

namespace trireme::data_prep {
namespace {

/// Generates the random choices of one document.
class Draw {
 public:
  Draw(std::uint64_t seed, std::uint64_t index) : key_(philox_key(seed, "synth")), index_(index) {}

  /// Returns a uniform number in [0, bound); `bound` is far below 2^32.
  std::uint32_t below(std::size_t bound) {
    if (used_ == 4) {
      chunk_ = philox4x32(key_, index_, counter_++);
      used_ = 0;
    }
    return static_cast<std::uint32_t>(chunk_[used_++] % bound);
  }

  template <class Items>
  const auto& pick(const Items& items) {
    return items[below(items.size())];
  }

 private:
  std::uint64_t key_;
  std::uint64_t index_;
  std::uint64_t counter_ = 0;
  std::size_t used_ = 4;
  PhiloxWords chunk_{};
};

/// The facts of one animal in both languages: its home, its food and its sound.
struct Animal {
  std::string_view name, home, food, sound;
  std::string_view zh_name, zh_home, zh_food, zh_sound;
};

constexpr std::array<Animal, 8> kAnimals{{
    {"fox", "forest", "berries", "yip", "狐狸", "森林", "浆果", "嗷嗷"},
    {"duck", "pond", "bread", "quack", "鸭子", "池塘", "面包", "嘎嘎"},
    {"cat", "house", "fish", "meow", "小猫", "房子", "小鱼", "喵喵"},
    {"cow", "meadow", "grass", "moo", "奶牛", "草地", "青草", "哞哞"},
    {"owl", "old tree", "mice", "hoot", "猫头鹰", "老树", "老鼠", "咕咕"},
    {"frog", "swamp", "flies", "croak", "青蛙", "沼泽", "苍蝇", "呱呱"},
    {"dog", "yard", "bones", "woof", "小狗", "院子", "骨头", "汪汪"},
    {"sheep", "hill", "clover", "baa", "绵羊", "山坡", "三叶草", "咩咩"},
}};

struct Pair {
  std::string_view en, zh;
};

constexpr std::array<Pair, 8> kNames{{{"Lily", "莉莉"},
                                      {"Tom", "汤姆"},
                                      {"Anna", "安娜"},
                                      {"Ben", "小本"},
                                      {"Mia", "米娅"},
                                      {"Max", "麦克"},
                                      {"Rose", "玫瑰"},
                                      {"Sam", "山姆"}}};
constexpr std::array<Pair, 6> kWeathers{{{"sunny", "晴朗"},
                                         {"rainy", "下雨"},
                                         {"windy", "刮风"},
                                         {"snowy", "下雪"},
                                         {"foggy", "有雾"},
                                         {"warm", "温暖"}}};
constexpr std::array<Pair, 6> kMoods{{{"happy", "高兴"},
                                      {"tired", "疲倦"},
                                      {"hungry", "饥饿"},
                                      {"curious", "好奇"},
                                      {"brave", "勇敢"},
                                      {"sleepy", "困倦"}}};
constexpr std::array<Pair, 6> kGifts{{{"red ball", "红球"},
                                      {"blue kite", "蓝色风筝"},
                                      {"small bell", "小铃铛"},
                                      {"warm scarf", "暖围巾"},
                                      {"shiny stone", "亮石头"},
                                      {"paper boat", "纸船"}}};

std::string story(Draw& draw, bool chinese) {
  const Animal& animal = draw.pick(kAnimals);
  const Pair& name = draw.pick(kNames);
  const Pair& weather = draw.pick(kWeathers);
  const Pair& mood = draw.pick(kMoods);
  const Pair& gift = draw.pick(kGifts);
  if (chinese) {
    return formatted(
        "从前有一只{}，名叫{}，住在{}里。有一天，天气{}，{}觉得很{}。{}想吃{}，就大声叫：“{}！”一个朋友听见了，送来了{}和一个{}。{}把{}带回{}，从此过得很快乐。",
        animal.zh_name, name.zh, animal.zh_home, weather.zh, name.zh, mood.zh, name.zh,
        animal.zh_food, animal.zh_sound, animal.zh_food, gift.zh, name.zh, gift.zh, animal.zh_home);
  }
  return formatted(
      "Once upon a time there was a {} named {}. {} lived in the {}. One {} day {} was very {}. {} wanted to eat {} and cried: \"{}!\" A friend heard it and brought {} and a {}. {} took the {} home to the {} and lived happily ever after.",
      animal.name, name.en, name.en, animal.home, weather.en, name.en, mood.en, name.en,
      animal.food, animal.sound, animal.food, gift.en, name.en, gift.en, animal.home);
}

std::string sums(Draw& draw) {
  std::string text;
  const std::uint32_t lines = 4 + draw.below(5);
  for (std::uint32_t i = 0; i < lines; ++i) {
    const std::uint32_t a = draw.below(10);
    const std::uint32_t b = draw.below(10);
    if (i != 0) text += '\n';
    switch (draw.below(3)) {
      case 0:
        text += formatted("{} + {} = {}", a, b, a + b);
        break;
      case 1:
        text += formatted("{} - {} = {}", a + b, b, a);
        break;
      default:
        text += formatted("{} * {} = {}", a, b, a * b);
        break;
    }
  }
  return text;
}

std::string question(Draw& draw, bool chinese) {
  const Animal& animal = draw.pick(kAnimals);
  switch (draw.below(4)) {
    case 0:
      return chinese
                 ? formatted("问：{}住在哪里？\n答：{}住在{}里。", animal.zh_name, animal.zh_name,
                             animal.zh_home)
                 : formatted("Question: Where does the {} live?\nAnswer: The {} lives in the {}.",
                             animal.name, animal.name, animal.home);
    case 1:
      return chinese ? formatted("问：{}爱吃什么？\n答：{}爱吃{}。", animal.zh_name, animal.zh_name,
                                 animal.zh_food)
                     : formatted("Question: What does the {} eat?\nAnswer: The {} eats {}.",
                                 animal.name, animal.name, animal.food);
    case 2:
      return chinese ? formatted("问：{}怎么叫？\n答：{}叫“{}”。", animal.zh_name, animal.zh_name,
                                 animal.zh_sound)
                     : formatted("Question: What does the {} say?\nAnswer: The {} says \"{}\".",
                                 animal.name, animal.name, animal.sound);
    default: {
      const std::uint32_t a = draw.below(10);
      const std::uint32_t b = draw.below(10);
      return chinese ? formatted("问：{}加{}等于几？\n答：{}加{}等于{}。", a, b, a, b, a + b)
                     : formatted("Question: What is {} plus {}?\nAnswer: {} plus {} is {}.", a, b,
                                 a, b, a + b);
    }
  }
}

std::string questions(Draw& draw, bool chinese) {
  std::string text = question(draw, chinese);
  for (std::uint32_t more = draw.below(3); more > 0; --more)
    text.append("\n").append(question(draw, chinese));
  return text;
}

}  // namespace

std::string synth_document(std::uint64_t seed, std::uint64_t index) {
  Draw draw(seed, index);
  const bool chinese = draw.below(3) == 0;
  const std::uint32_t form = draw.below(10);
  if (form < 5) return story(draw, chinese);
  if (form < 7) return sums(draw);
  return questions(draw, chinese);
}

void write_synth(const std::string& path, std::int64_t count, std::int64_t seed, bool force) {
  std::string content;
  for (std::int64_t i = 0; i < count; ++i) {
    Json line = Json::object();
    line["text"] = synth_document(static_cast<std::uint64_t>(seed), static_cast<std::uint64_t>(i));
    content += line.dump();
    content += '\n';
  }
  std::error_code code;  // a file that cannot be read is refused later
  if (!force && std::filesystem::exists(path, code)) {
    if (std::filesystem::file_size(path, code) == content.size() && read_file(path) == content)
      return;
    fail(ErrorKind::usage, "--output {} exists and has other content; --force replaces it", path);
  }
  write_file_atomic(path, content);
}

}  // namespace trireme::data_prep
