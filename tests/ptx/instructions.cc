// What each instruction of PTX does to the lanes of a warp.
//
// Approximations have the errors that NVIDIA documents, up or down by the bits of the argument, as in the thread
// layer's FastExp.
#include <bit>
#include <cmath>
#include <limits>
#include <type_traits>

#include "tests/ptx/memory_operations.h"
#include "tests/ptx/warp.h"

namespace hadal::ptx {
namespace {

using Table = std::map<std::string, Operation>;

template <typename F>
void ForLanes(uint32_t lanes, const F& f) {
  if (lanes == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
  } else {
    for (; lanes != 0; lanes &= lanes - 1) f(std::countr_zero(lanes));
  }
}

template <typename To, typename From, auto f>
void Unary(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t* a = warp.lanes(i.operands[1]);
  ForLanes(lanes, [&](int lane) { to[lane] = Word<To>(f(Value<From>(a[lane]))); });
}

template <typename T, auto f>
void Binary(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t *a = warp.lanes(i.operands[1]), *b = warp.lanes(i.operands[2]);
  ForLanes(lanes, [&](int lane) {
    const auto result = f(Value<T>(a[lane]), Value<T>(b[lane]));
    to[lane] = Word<std::remove_const_t<decltype(result)>>(result);
  });
}

template <typename T, auto f>
void Ternary(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t *a = warp.lanes(i.operands[1]), *b = warp.lanes(i.operands[2]), *c = warp.lanes(i.operands[3]);
  ForLanes(lanes, [&](int lane) { to[lane] = Word<T>(f(Value<T>(a[lane]), Value<T>(b[lane]), Value<T>(c[lane]))); });
}

template <typename T, auto f>
void Compare(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t *a = warp.lanes(i.operands[1]), *b = warp.lanes(i.operands[2]);
  uint64_t mask = to[0] & ~uint64_t{lanes};
  ForLanes(lanes, [&](int lane) { mask |= uint64_t{f(Value<T>(a[lane]), Value<T>(b[lane]))} << lane; });
  to[0] = mask;
}

// On predicates: of three masks, of which the operation may use fewer.
template <auto f>
void Logic(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t result = f(warp.lanes(i.operands[1])[0], warp.lanes(i.operands[2])[0]);
  to[0] = (to[0] & ~uint64_t{lanes}) | (result & lanes);
}

template <typename T>
void Select(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t *a = warp.lanes(i.operands[1]), *b = warp.lanes(i.operands[2]);
  const uint64_t mask = warp.lanes(i.operands[3])[0];
  ForLanes(lanes, [&](int lane) { to[lane] = (mask >> lane & 1) != 0 ? a[lane] : b[lane]; });
}

// Up, down or not, by the bits of an argument.
int Direction(float x) { return static_cast<int>(std::bit_cast<uint32_t>(x) * 2654435761u >> 30) % 3 - 1; }

float Exp2(float x) {
  const float power = std::exp2(x) * (x == 0.0f ? 1.0f : 1.0f + static_cast<float>(Direction(x)) * 0x1p-22f);
  return power < std::numeric_limits<float>::min() ? 0.0f : power;
}

// Rounded towards minus infinity. The double sum is exact but for a part that the float's rounding seldom sees.
float MulAddDown(float a, float b, float c) {
  const double exact = std::fma(double{a}, double{b}, double{c});
  const auto nearest = static_cast<float>(exact);
  return double{nearest} > exact ? std::nextafter(nearest, -INFINITY) : nearest;
}

uint32_t BFloat16Bits(float x) {
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  if (std::isnan(x)) return 0x7FFF;
  return (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
}

// Of integers. A kernel that divides by 0 is wrong, although a GPU does not trap.
template <typename T>
T Quotient(T a, T b) {
  if (b == 0) throw Fault("division by 0");
  return a / b;
}

template <typename T, bool left>
void Shift(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t *a = warp.lanes(i.operands[1]), *by = warp.lanes(i.operands[2]);
  constexpr uint32_t kBits = 8 * sizeof(T);
  ForLanes(lanes, [&](int lane) {
    const auto count = static_cast<uint32_t>(by[lane]);
    const T value = Value<T>(a[lane]), most = value >> (kBits - 1) >> (std::is_signed_v<T> ? 0 : 1);
    if constexpr (left) {
      to[lane] = Word<T>(count < kBits ? static_cast<T>(value << count) : T{0});
    } else {
      to[lane] = Word<T>(count < kBits ? static_cast<T>(value >> count) : most);
    }
  });
}

template <typename T>
void AddComparisons(Table& table, const std::string& type) {
  const auto add = [&](const std::string& name, Step step) { table["setp." + name + "." + type] = {.step = step}; };
  add("eq", Compare<T, [](T a, T b) { return a == b; }>);
  add("lt", Compare<T, [](T a, T b) { return a < b; }>);
  add("le", Compare<T, [](T a, T b) { return a <= b; }>);
  add("gt", Compare<T, [](T a, T b) { return b < a; }>);
  add("ge", Compare<T, [](T a, T b) { return a >= b; }>);
  if constexpr (std::is_floating_point_v<T>) {
    add("ne", Compare<T, [](T a, T b) { return a < b || b < a; }>);
    add("equ", Compare<T, [](T a, T b) { return !(a < b || b < a); }>);
    add("neu", Compare<T, [](T a, T b) { return a != b; }>);
    add("ltu", Compare<T, [](T a, T b) { return !(a >= b); }>);
    add("leu", Compare<T, [](T a, T b) { return !(b < a); }>);
    add("gtu", Compare<T, [](T a, T b) { return !(a <= b); }>);
    add("geu", Compare<T, [](T a, T b) { return !(a < b); }>);
    add("nan", Compare<T, [](T a, T b) { return std::isnan(a) || std::isnan(b); }>);
    add("num", Compare<T, [](T a, T b) { return !std::isnan(a) && !std::isnan(b); }>);
  } else {
    add("ne", Compare<T, [](T a, T b) { return a != b; }>);
  }
}

// What all number types have.
template <typename T>
void AddNumbers(Table& table, const std::string& type) {
  using Same = std::type_identity<T>;
  using U = typename std::conditional_t<std::is_integral_v<T>, std::make_unsigned<T>, Same>::type;  // wraps around
  const auto add = [&](const std::string& name, Step step) { table[name + "." + type] = {.step = step}; };
  add("mov", Unary<T, T, [](T a) { return a; }>);
  add("add", Binary<T, [](T a, T b) { return static_cast<T>(U(a) + U(b)); }>);
  add("sub", Binary<T, [](T a, T b) { return static_cast<T>(U(a) - U(b)); }>);
  add("neg", Unary<T, T, [](T a) { return std::is_integral_v<T> ? static_cast<T>(U{0} - U(a)) : -a; }>);
  add("selp", Select<T>);
  AddComparisons<T>(table, type);
  AddMemory<T>(table, type);
}

template <typename T>
void AddIntegers(Table& table, const std::string& type) {
  AddNumbers<T>(table, type);
  using U = std::make_unsigned_t<T>;
  const auto add = [&](const std::string& name, Step step) { table[name + "." + type] = {.step = step}; };
  add("min", Binary<T, [](T a, T b) { return a < b ? a : b; }>);
  add("max", Binary<T, [](T a, T b) { return a < b ? b : a; }>);
  add("mul.lo", Binary<T, [](T a, T b) { return static_cast<T>(uint64_t{U(a)} * U(b)); }>);
  add("mad.lo", Ternary<T, [](T a, T b, T c) { return static_cast<T>(uint64_t{U(a)} * U(b) + U(c)); }>);
  add("div", Binary<T, Quotient<T>>);
  add("rem", Binary<T, [](T a, T b) { return static_cast<T>(a - Quotient(a, b) * b); }>);
  add("shr", Shift<T, false>);
}

template <typename T>  // unsigned
void AddBits(Table& table, const std::string& type) {
  const auto add = [&](const std::string& name, Step step) { table[name + "." + type] = {.step = step}; };
  add("mov", Unary<T, T, [](T a) { return a; }>);
  add("and", Binary<T, [](T a, T b) { return static_cast<T>(a & b); }>);
  add("or", Binary<T, [](T a, T b) { return static_cast<T>(a | b); }>);
  add("xor", Binary<T, [](T a, T b) { return static_cast<T>(a ^ b); }>);
  add("not", Unary<T, T, [](T a) { return static_cast<T>(~a); }>);
  add("shl", Shift<T, true>);
  add("selp", Select<T>);
  AddComparisons<T>(table, type);
  AddMemory<T>(table, type);
}

template <typename T>
void AddFloats(Table& table, const std::string& type) {
  AddNumbers<T>(table, type);
  const auto add = [&](const std::string& name, Step step) { table[name + "." + type] = {.step = step}; };
  add("mul", Binary<T, [](T a, T b) { return a * b; }>);
  for (const char* name : {"add", "sub", "mul"})
    table[std::string(name) + ".rn." + type] = table[std::string(name) + "." + type];
  add("div.rn", Binary<T, [](T a, T b) { return a / b; }>);
  add("min", Binary<T, [](T a, T b) { return std::fmin(a, b); }>);
  add("max", Binary<T, [](T a, T b) { return std::fmax(a, b); }>);
  add("abs", Unary<T, T, [](T a) { return std::abs(a); }>);
  add("fma.rn", Ternary<T, [](T a, T b, T c) { return std::fma(a, b, c); }>);
  add("rcp.rn", Unary<T, T, [](T a) { return 1 / a; }>);
  add("sqrt.rn", Unary<T, T, [](T a) { return std::sqrt(a); }>);
}

template <typename To, typename From>
constexpr Step Converted() {
  return Unary<To, From, [](From a) { return static_cast<To>(a); }>;
}

template <typename To>
void AddConversionsTo(Table& table, const std::string& to) {
  const std::string rounded = std::is_same_v<To, float> ? "cvt.rn." : "cvt.";
  table[rounded + to + ".s16"] = {.step = Converted<To, int16_t>()};
  table[rounded + to + ".u16"] = {.step = Converted<To, uint16_t>()};
  table[rounded + to + ".s32"] = {.step = Converted<To, int32_t>()};
  table[rounded + to + ".u32"] = {.step = Converted<To, uint32_t>()};
  table[rounded + to + ".s64"] = {.step = Converted<To, int64_t>()};
  table[rounded + to + ".u64"] = {.step = Converted<To, uint64_t>()};
}

void BitField(Warp& warp, const Instruction& i, uint32_t lanes) {
  uint64_t* to = warp.lanes(i.operands[0]);
  const uint64_t *field = warp.lanes(i.operands[1]), *rest = warp.lanes(i.operands[2]);
  const uint64_t start = warp.lanes(i.operands[3])[0], bits = warp.lanes(i.operands[4])[0];
  const uint64_t mask = ((uint64_t{1} << bits) - 1) << start;
  ForLanes(lanes, [&](int lane) { to[lane] = Word<uint32_t>((rest[lane] & ~mask) | (field[lane] << start & mask)); });
}

// mov.b32 and mov.b64: between registers, of two halves into one register, or of one into its halves.
template <typename Whole, typename Half>
void Move(Warp& warp, const Instruction& i, uint32_t lanes) {
  constexpr int kBits = 8 * sizeof(Half);
  uint64_t *a = warp.lanes(i.operands[0]), *b = warp.lanes(i.operands[1]), *c = warp.lanes(i.operands[2]);
  const size_t brace = i.text.find('{');
  ForLanes(lanes, [&](int lane) {
    if (brace == std::string::npos) {
      a[lane] = Word<Whole>(Value<Whole>(b[lane]));
    } else if (brace > i.text.find(',')) {
      a[lane] = uint64_t{Value<Half>(b[lane])} | uint64_t{Value<Half>(c[lane])} << kBits;
    } else {
      const uint64_t whole = c[lane];
      a[lane] = Value<Half>(whole);
      b[lane] = Value<Half>(whole >> kBits);
    }
  });
}

void AddOthers(Table& table) {
  table["mul.wide.s32"] = {.step = Binary<int32_t, [](int32_t a, int32_t b) { return int64_t{a} * b; }>};
  table["mul.wide.u32"] = {.step = Binary<uint32_t, [](uint32_t a, uint32_t b) { return uint64_t{a} * b; }>};
  table["fma.rm.f32"] = {.step = Ternary<float, MulAddDown>};
  table["ex2.approx.ftz.f32"] = {.step = Unary<float, float, Exp2>};
  table["cvt.f64.f32"] = {.step = Converted<double, float>()};
  table["cvt.rn.f32.f64"] = {.step = Converted<float, double>()};
  table["cvt.sat.f32.f32"] = {.step = Unary<float, float, [](float x) { return std::fmin(std::fmax(x, 0.0f), 1.0f); }>};
  table["cvt.rn.bf16x2.f32"] = {
      .step = Binary<float, [](float upper, float lower) { return BFloat16Bits(upper) << 16 | BFloat16Bits(lower); }>};
  // Truncates; only in planted faults.
  table["cvt.rz.bf16x2.f32"] = {.step = Binary<float, [](float upper, float lower) {
                                  return (std::bit_cast<uint32_t>(upper) & 0xFFFF0000) |
                                         (std::bit_cast<uint32_t>(lower) >> 16);
                                }>};
  table["cvta.to.global.u64"] = {.step = Unary<uint64_t, uint64_t, [](uint64_t a) { return a; }>};
  table["bfi.b32"] = {.step = BitField};
  table["mov.b32"] = {.step = Move<uint32_t, uint16_t>};
  table["mov.b64"] = {.step = Move<uint64_t, uint32_t>};
  table["and.pred"] = {.step = Logic<[](uint64_t a, uint64_t b) { return a & b; }>};
  table["or.pred"] = {.step = Logic<[](uint64_t a, uint64_t b) { return a | b; }>};
  table["xor.pred"] = {.step = Logic<[](uint64_t a, uint64_t b) { return a ^ b; }>};
  table["not.pred"] = {.step = Logic<[](uint64_t a, uint64_t) { return ~a; }>};
  table["mov.pred"] = {.step = Logic<[](uint64_t a, uint64_t) { return a; }>};
  table["bra"] = table["bra.uni"] = {.kind = Kind::kBranch};
  table["ret"] = {.kind = Kind::kExit};
  table["bar.sync"] = {.kind = Kind::kBarrier};
}

}  // namespace

const Table& Operations() {
  static const Table table = [] {
    Table t;
    AddIntegers<int16_t>(t, "s16");
    AddIntegers<uint16_t>(t, "u16");
    AddIntegers<int32_t>(t, "s32");
    AddIntegers<uint32_t>(t, "u32");
    AddIntegers<int64_t>(t, "s64");
    AddIntegers<uint64_t>(t, "u64");
    AddBits<uint16_t>(t, "b16");
    AddBits<uint32_t>(t, "b32");
    AddBits<uint64_t>(t, "b64");
    AddFloats<float>(t, "f32");
    AddFloats<double>(t, "f64");
    AddConversionsTo<int16_t>(t, "s16");
    AddConversionsTo<uint16_t>(t, "u16");
    AddConversionsTo<int32_t>(t, "s32");
    AddConversionsTo<uint32_t>(t, "u32");
    AddConversionsTo<int64_t>(t, "s64");
    AddConversionsTo<uint64_t>(t, "u64");
    AddConversionsTo<float>(t, "f32");
    AddOthers(t);
    AddMemory<int8_t>(t, "s8");
    AddMemory<uint8_t>(t, "u8");
    AddWarpOperations(t);
    return t;
  }();
  return table;
}

}  // namespace hadal::ptx
