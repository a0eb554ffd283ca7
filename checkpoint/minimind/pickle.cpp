#include "checkpoint/minimind/pickle.hpp"

#include <array>
#include <bit>
#include <cstring>
#include <deque>
#include <optional>

#include "core/error.hpp"

namespace trireme::checkpoint {
namespace {

/// A Python object. One deque owns all objects until the end, because a pickle may contain cycles.
struct PyItem {
  enum class Kind { mark, none, number, other, text, tuple, list, dict, callable, storage, tensor };

  Kind kind = Kind::none;
  std::int64_t number = 0;
  std::string text;            // text, callable ("module.name"), storage (key)
  std::vector<PyItem*> items;  // tuple, list; dict: key, value, key, value
  DType dtype = DType::f32;    // storage
  PickledTensor tensor;
};

/// A storage class of torch and the dtype of its elements.
struct StorageType {
  std::string_view name;
  DType dtype;
};

constexpr std::array<StorageType, 9> kStorageTypes{{{"torch.FloatStorage", DType::f32},
                                                    {"torch.HalfStorage", DType::f16},
                                                    {"torch.BFloat16Storage", DType::bf16},
                                                    {"torch.DoubleStorage", DType::f64},
                                                    {"torch.LongStorage", DType::i64},
                                                    {"torch.IntStorage", DType::i32},
                                                    {"torch.ShortStorage", DType::i16},
                                                    {"torch.CharStorage", DType::i8},
                                                    {"torch.ByteStorage", DType::u8}}};
constexpr std::string_view kRebuild = "torch._utils._rebuild_tensor_v2";
constexpr std::string_view kOrderedDict = "collections.OrderedDict";

/// Returns the dtype of a storage class of torch; nullopt for any other callable.
std::optional<DType> storage_dtype(std::string_view callable) {
  for (const StorageType& type : kStorageTypes) {
    if (type.name == callable) return type.dtype;
  }
  return std::nullopt;
}

/// Returns a name for error messages.
const char* kind_name(PyItem::Kind kind) {
  constexpr std::array kNames{"a mark", "None",   "a number", "a number",  "a text",  "a tuple",
                              "a list", "a dict", "a class",  "a storage", "a tensor"};
  return kNames[static_cast<std::size_t>(kind)];
}

using Kind = PyItem::Kind;

class Machine {
 public:
  Machine(std::string_view pickle, const std::string& where) : rest_(pickle), where_(where) {}

  const PyItem& run() {
    while (true) {
      const auto code = static_cast<unsigned char>(bytes(1)[0]);
      if (code == '.') return *pop();
      step(code);
    }
  }

  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::data,
         "{}: {}; only files of named tensors are supported, and nothing in them is executed",
         where_, what);
  }

 private:
  std::string_view bytes(std::size_t count) {
    if (count > rest_.size()) refuse("the pickle ends early");
    const std::string_view part = rest_.substr(0, count);
    rest_.remove_prefix(count);
    return part;
  }

  template <class T>
  T number() {
    T value{};
    std::memcpy(&value, bytes(sizeof value).data(), sizeof value);
    return value;
  }

  std::string line() {
    const std::size_t end = rest_.find('\n');
    if (end == std::string_view::npos) refuse("the pickle ends early");
    const std::string text(bytes(end));
    (void)bytes(1);
    return text;
  }

  PyItem& push(Kind kind) {
    items_.emplace_back();
    items_.back().kind = kind;
    stack_.push_back(&items_.back());
    return items_.back();
  }

  void push_number(std::int64_t value) { push(Kind::number).number = value; }

  void push_text(std::string_view text) { push(Kind::text).text = text; }

  PyItem* pop() {
    if (stack_.empty()) refuse("the pickle is damaged (empty stack)");
    PyItem* item = stack_.back();
    stack_.pop_back();
    return item;
  }

  PyItem& top(Kind kind) {
    if (stack_.empty() || stack_.back()->kind != kind) refuse("the pickle is damaged");
    return *stack_.back();
  }

  /// Pops and returns the items above the last mark. Also pops the mark.
  std::vector<PyItem*> pop_to_mark() {
    std::size_t at = stack_.size();
    while (at > 0 && stack_[at - 1]->kind != Kind::mark) --at;
    if (at == 0) refuse("the pickle is damaged (no mark)");
    std::vector<PyItem*> items(stack_.begin() + static_cast<std::ptrdiff_t>(at), stack_.end());
    stack_.resize(at - 1);
    return items;
  }

  static void append(const std::vector<PyItem*>& items, PyItem& container) {
    container.items.insert(container.items.end(), items.begin(), items.end());
  }

  void push_tuple(std::size_t count) {
    std::vector<PyItem*> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push(Kind::tuple).items = std::move(items);
  }

  void remember(std::uint32_t index) {
    if (stack_.empty()) refuse("the pickle is damaged (empty stack)");
    memo_[index] = stack_.back();
  }

  void recall(std::uint32_t index) {
    const auto found = memo_.find(index);
    if (found == memo_.end()) refuse("the pickle is damaged (no such memo)");
    stack_.push_back(found->second);
  }

  void step(unsigned char code);
  void step_container(unsigned char code);
  void long_integer();
  void callable();
  void persistent_storage();
  void reduce();
  void build();
  PickledTensor rebuilt(const std::vector<PyItem*>& arguments);
  std::vector<std::int64_t> sizes(const PyItem& tuple);

  std::string_view rest_;
  const std::string& where_;
  std::deque<PyItem> items_;
  std::vector<PyItem*> stack_;
  std::map<std::uint32_t, PyItem*> memo_;
};

void Machine::step(unsigned char code) {
  switch (code) {
    case 0x80:  // PROTO
      if (const auto version = number<std::uint8_t>(); version < 2 || version > 5)
        refuse(formatted("pickle protocol {}", static_cast<int>(version)));
      return;
    case 0x95:  // FRAME
      return (void)bytes(8);
    case 'J':  // BININT
      return push_number(number<std::int32_t>());
    case 'K':  // BININT1
      return push_number(number<std::uint8_t>());
    case 'M':  // BININT2
      return push_number(number<std::uint16_t>());
    case 0x8a:  // LONG1
      return long_integer();
    case 'G':  // BINFLOAT
      (void)bytes(8);
      [[fallthrough]];
    case 0x88:  // NEWTRUE
    case 0x89:  // NEWFALSE
      return (void)push(Kind::other);
    case 'N':
      return (void)push(Kind::none);
    case 'X':  // BINUNICODE
      return push_text(bytes(number<std::uint32_t>()));
    case 0x8c:  // SHORT_BINUNICODE
      return push_text(bytes(number<std::uint8_t>()));
    case 'q':  // BINPUT
      return remember(number<std::uint8_t>());
    case 'r':  // LONG_BINPUT
      return remember(number<std::uint32_t>());
    case 0x94:  // MEMOIZE
      return remember(static_cast<std::uint32_t>(memo_.size()));
    case 'h':  // BINGET
      return recall(number<std::uint8_t>());
    case 'j':  // LONG_BINGET
      return recall(number<std::uint32_t>());
    case 'c':  // GLOBAL
      return callable();
    case 'Q':  // BINPERSID
      return persistent_storage();
    case 'R':
      return reduce();
    case 'b':
      return build();
    default:
      step_container(code);
  }
}

void Machine::step_container(unsigned char code) {
  switch (code) {
    case '(':
      return (void)push(Kind::mark);
    case ')':
      return push_tuple(0);
    case 0x85:  // TUPLE1, TUPLE2, TUPLE3
    case 0x86:
    case 0x87:
      return push_tuple(code - 0x84U);
    case 't': {
      std::vector<PyItem*> items = pop_to_mark();
      push(Kind::tuple).items = std::move(items);
      return;
    }
    case ']':
      return (void)push(Kind::list);
    case '}':
      return (void)push(Kind::dict);
    case 'a': {
      PyItem* item = pop();
      return top(Kind::list).items.push_back(item);
    }
    case 'e': {
      const std::vector<PyItem*> items = pop_to_mark();
      return append(items, top(Kind::list));
    }
    case 's': {
      PyItem* value = pop();
      PyItem* key = pop();
      return append({key, value}, top(Kind::dict));
    }
    case 'u': {
      const std::vector<PyItem*> items = pop_to_mark();
      if (items.size() % 2 != 0) refuse("the pickle is damaged (a key without a value)");
      return append(items, top(Kind::dict));
    }
    default:
      refuse(formatted("pickle instruction {} is not supported", static_cast<int>(code)));
  }
}

void Machine::long_integer() {
  const std::string_view digits = bytes(number<std::uint8_t>());
  if (digits.size() > 8) refuse("an integer of more than 64 bits");
  std::uint64_t value = !digits.empty() && (digits.back() & 0x80) != 0 ? ~std::uint64_t{0} : 0;
  std::memcpy(&value, digits.data(), digits.size());
  push_number(std::bit_cast<std::int64_t>(value));
}

void Machine::callable() {
  const std::string module = line();
  const std::string name = formatted("{}.{}", module, line());
  if (name != kRebuild && name != kOrderedDict && !storage_dtype(name))
    refuse(formatted("it contains {}, which is neither a tensor nor a dict", name.substr(0, 200)));
  push(Kind::callable).text = name;
}

/// Reads ("storage", class, key, location, number of elements).
void Machine::persistent_storage() {
  const PyItem& id = *pop();
  const bool good = id.kind == Kind::tuple && id.items.size() == 5 &&
                    id.items[0]->text == "storage" && id.items[1]->kind == Kind::callable &&
                    id.items[2]->kind == Kind::text && id.items[4]->kind == Kind::number;
  const auto dtype = good ? storage_dtype(id.items[1]->text) : std::nullopt;
  if (!dtype) refuse("the pickle is damaged (a storage)");
  PyItem& storage = push(Kind::storage);
  storage.text = id.items[2]->text;
  storage.dtype = *dtype;
  storage.number = id.items[4]->number;
}

std::vector<std::int64_t> Machine::sizes(const PyItem& tuple) {
  std::vector<std::int64_t> values;
  if (tuple.kind != Kind::tuple) refuse("the pickle is damaged (a tensor's shape)");
  for (const PyItem* item : tuple.items) {
    if (item->kind != Kind::number || item->number < 0)
      refuse("the pickle is damaged (a tensor's shape)");
    values.push_back(item->number);
  }
  return values;
}

/// Reads (storage, offset, shape, strides, requires_grad, hooks).
PickledTensor Machine::rebuilt(const std::vector<PyItem*>& arguments) {
  if (arguments.size() < 6 || arguments[0]->kind != Kind::storage ||
      arguments[1]->kind != Kind::number)
    refuse("the pickle is damaged (a tensor)");
  const PyItem& storage = *arguments[0];
  PickledTensor tensor{storage.text, storage.number, storage.dtype, arguments[1]->number,
                       sizes(*arguments[2])};
  const std::vector<std::int64_t> strides = sizes(*arguments[3]);
  if (strides.size() != tensor.shape.size()) refuse("the pickle is damaged (a tensor's strides)");
  std::int64_t count = 1;  // product of the later dims
  for (std::size_t i = strides.size(); i-- > 0;) {
    const std::int64_t size = tensor.shape[i];
    if (size != 1 && strides[i] != count)
      refuse("a tensor is a view that is not contiguous (save it after .contiguous())");
    if (size != 0 && count > tensor.storage_count / size)
      refuse("a tensor is larger than its storage");
    count *= size;
  }
  if (tensor.offset < 0 || tensor.offset > tensor.storage_count - count)
    refuse("a tensor lies outside its storage");
  return tensor;
}

void Machine::reduce() {
  const PyItem& arguments = *pop();
  const PyItem& function = *pop();
  if (function.kind != Kind::callable || arguments.kind != Kind::tuple)
    refuse("the pickle is damaged (a call)");
  if (function.text == kRebuild) {
    PickledTensor tensor = rebuilt(arguments.items);
    push(Kind::tensor).tensor = std::move(tensor);
  } else if (function.text == kOrderedDict && arguments.items.empty()) {
    push(Kind::dict);
  } else {
    refuse(formatted("it calls {} in a way that is not supported", function.text));
  }
}

/// Ignores the "_metadata" of a state dict, which does not describe tensors.
void Machine::build() {
  if (pop()->kind != Kind::dict || stack_.empty() || stack_.back()->kind != Kind::dict)
    refuse("it sets the state of an object that is not a dict");
}

}  // namespace

std::map<std::string, PickledTensor> read_pickled_tensors(std::string_view pickle,
                                                          const std::string& where) {
  Machine machine(pickle, where);
  const PyItem& root = machine.run();
  if (root.kind != Kind::dict)
    machine.refuse(formatted("it is {}, not a dict", kind_name(root.kind)));
  std::map<std::string, PickledTensor> tensors;
  for (std::size_t i = 0; i + 1 < root.items.size(); i += 2) {
    const PyItem& key = *root.items[i];
    const PyItem& value = *root.items[i + 1];
    if (key.kind != Kind::text)
      machine.refuse(formatted("a key of its dict is {}", kind_name(key.kind)));
    if (value.kind != Kind::tensor) {
      machine.refuse(
          formatted("'{}' is {}, not a tensor", key.text.substr(0, 200), kind_name(value.kind)));
    }
    if (!tensors.emplace(key.text, value.tensor).second)
      machine.refuse(formatted("'{}' is listed twice", key.text.substr(0, 200)));
  }
  return tensors;
}

}  // namespace trireme::checkpoint
