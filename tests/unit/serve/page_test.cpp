#include <gtest/gtest.h>

#include <regex>

#include "core/error.hpp"
#include "core/number.hpp"
#include "serve/openai/api_error.hpp"
#include "serve/openai/chat_request.hpp"
#include "serve/page_files.hpp"

namespace trireme::serve {
namespace {

bool server_takes(const std::string& field, double value, bool is_whole) {
  const std::string number =
      is_whole ? std::to_string(static_cast<std::int64_t>(value)) : number_text(value);
  try {
    (void)read_chat_request(cat(R"({"messages": [{"role": "user", "content": "hi"}], ")", field,
                                R"(": )", number, "}"));
    return true;
  } catch (const ApiError&) {
    return false;
  }
}

TEST(Page, OffersTheNumbersThatTheServerTakes) {
  std::string text;
  for (const PageFile& file : page_files()) {
    if (file.path == "/page/settings.js") text = file.content;
  }
  const std::regex row(R"re(\{ name: "(\w+)", min: ([-\d.]+), max: (\S+), step: ([\d.]+) \})re");
  int rows = 0;
  for (std::sregex_iterator each(text.begin(), text.end(), row), end; each != end; ++each, ++rows) {
    const std::string name = each->str(1);
    const double least = std::stod(each->str(2));
    const double most =
        each->str(3) == "Number.MAX_SAFE_INTEGER" ? 9007199254740991.0 : std::stod(each->str(3));
    const double step = std::stod(each->str(4));
    const bool is_whole = step == 1;

    EXPECT_TRUE(server_takes(name, least, is_whole)) << name << " " << least;
    EXPECT_TRUE(server_takes(name, most, is_whole)) << name << " " << most;
    if (is_whole) continue;  // the page offers only useful values of fractional settings
    EXPECT_FALSE(server_takes(name, least - step, false)) << name << " " << least - step;
    EXPECT_FALSE(server_takes(name, most + step, false)) << name << " " << most + step;
  }
  EXPECT_EQ(rows, 9);
}

}  // namespace
}  // namespace trireme::serve
