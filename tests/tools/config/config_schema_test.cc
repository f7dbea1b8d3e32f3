#include "tools/config/config_schema.h"

#include <cmath>
#include <functional>

#include "configs/compare.pb.h"
#include "gmock/gmock.h"
#include "tools/config/config_origin.h"
#include "tools/config/config_value.h"
#include "tools/config/nearest_name.h"

namespace hadal {
namespace {

void ForEachField(const MessageDescriptor& message, const std::string& parent,
                  const std::function<void(const std::string&, const FieldDescriptor&)>& visit) {
  for (int i = 0; i < message.field_count(); ++i) {
    const FieldDescriptor& field = *message.field(i);
    const std::string path = FieldPath(parent, field.name());
    visit(path, field);
    if (IsMessage(field)) ForEachField(*field.message_type(), path, visit);
  }
}

const FieldDescriptor& Field(absl::string_view path) { return *FindField(path).value().back(); }

// Guards the schema itself: a field added without comment, range or default is caught here.
TEST(RunSchema, EveryFieldIsDocumentedAndBounded) {
  int fields = 0;
  ForEachField(*config::RunConfig::descriptor(), "", [&](const std::string& path, const FieldDescriptor& field) {
    SCOPED_TRACE(path);
    ++fields;
    EXPECT_GT(CommentText(field).size(), 5u);
    if (IsMessage(field)) return;
    const bool is_number = TypeText(field).find("integer") != std::string::npos || TypeText(field) == "number";
    if (is_number && path != "seed") {
      EXPECT_TRUE(RangeOf(field).has_value());
    }
    const bool is_path = path == "data.train" || path == "data.validation";
    if (TypeText(field) == "text" && !is_path && path != "checkpoint.memory_folder") {
      EXPECT_FALSE(ValuesOf(field).empty());
    }
    if (field.real_containing_oneof() == nullptr && !is_path) {
      EXPECT_NE(DefaultText(field), "none");
    }
  });
  EXPECT_GT(fields, 80);
}

TEST(GridSchema, EveryFieldIsDocumentedAndBounded) {
  int fields = 0;
  ForEachField(*config::Comparison::descriptor(), "", [&](const std::string& path, const FieldDescriptor& field) {
    SCOPED_TRACE(path);
    ++fields;
    EXPECT_GT(CommentText(field).size(), 5u);
    const bool is_number = TypeText(field) == "integer" || TypeText(field) == "number";
    EXPECT_EQ(RangeOf(field).has_value(), is_number);
  });
  EXPECT_EQ(fields, 14);
  EXPECT_EQ(FindField("axes.values.label", *config::Comparison::descriptor())->size(), 3u);
  EXPECT_EQ(UnknownFieldText(*config::AxisValue::descriptor(), "axes.values", "run_minutes"),
            "there is no field \"run_minutes\" in axes.values; did you mean \"run_minutes\"?");
}

// A group is read in the order of its fields' numbers; the resolved config in the order of the file.
TEST(RunSchema, NumbersFollowTheFile) {
  ForEachField(*config::RunConfig::descriptor(), "", [](const std::string& path, const FieldDescriptor& field) {
    EXPECT_EQ(field.number(), field.index() + 1) << path;
  });
}

TEST(Interval, EndsAreInOrOut) {
  const Interval closed{0, 1, true, true}, open{0, 1, false, false};
  EXPECT_TRUE(closed.Contains(0) && closed.Contains(1) && closed.Contains(0.5));
  EXPECT_FALSE(closed.Contains(-1e-300) || closed.Contains(1.0000001));
  EXPECT_FALSE(open.Contains(0) || open.Contains(1));
  EXPECT_FALSE(closed.Contains(std::nan("")));
  const Interval range = *RangeOf(Field("optimizer.clip_norm"));
  EXPECT_TRUE(range.Contains(0) && range.Contains(1e300));
  EXPECT_FALSE(range.Contains(INFINITY));
}

TEST(FieldTexts, SayTypeDefaultAndWhatIsAllowed) {
  EXPECT_EQ(TypeText(Field("pipeline.split")), "list of integers");
  EXPECT_EQ(DefaultText(Field("pipeline.split")), "empty");
  EXPECT_EQ(AllowedText(Field("model.sharing")), "one of \"none\", \"decoder\", \"all\"");
  EXPECT_EQ(DefaultText(Field("model.sharing")), "\"all\"");
  EXPECT_EQ(AllowedText(Field("checkpoint.save_at_end")), "true or false");
  EXPECT_EQ(DefaultText(Field("checkpoint.save_at_end")), "true");
  EXPECT_EQ(DefaultText(Field("data.train")), "none");
}

constexpr char kText[] =
    "seed: 7\n"                      // line 0
    "model {  # a comment: {\n"      // 1
    "  heads: -8foo\n"               // 2
    "  residual { method: 1f1b }\n"  // 3
    "  d_ff: }\n"                    // 4
    "pipeline < split: [1, x, 3] >\n";

TEST(FieldAt, IsTheFieldWhoseValueStandsThere) {
  struct Case {
    const char *what, *text;
    TextPosition at;
    std::vector<std::string> path;  // empty: no field's value stands there
    std::string value;
  };
  for (const Case& c : {Case{"a value", kText, {0, 6}, {"seed"}, "7"},
                        Case{"before the first field", kText, {0, 0}, {}, ""}, Case{"nothing", "", {0, 0}, {}, ""},
                        Case{"a value of several tokens", kText, {2, 9}, {"model", "heads"}, "-8foo"},
                        Case{"where the tokenizer objects", kText, {3, 23}, {"model", "residual", "method"}, "1f1b"},
                        Case{"a missing value", kText, {4, 8}, {"model", "d_ff"}, ""},
                        Case{"in a list", "pipeline < split: [1, x, 3] >", {0, 22}, {"pipeline", "split"}, "x"},
                        Case{"behind the last group", "model { heads: 8 } }", {0, 19}, {}, ""}}) {
    const FieldAtPosition field = FieldAt(c.text, c.at);
    EXPECT_EQ(field.path, c.path) << c.what;
    EXPECT_EQ(field.in_value, !c.path.empty()) << c.what;
    EXPECT_EQ(field.value_text, c.value) << c.what;
  }
  EXPECT_EQ(FieldAt(kText, {0, 6}).name, (TextPosition{0, 0}));
  EXPECT_EQ(FieldAt(kText, {3, 23}).value, (TextPosition{3, 21}));
}

TEST(EditDistance, CountsInsertionsDeletionsSubstitutionsAndSwaps) {
  EXPECT_EQ(EditDistance("", ""), 0);
  EXPECT_EQ(EditDistance("heads", "heads"), 0);
  EXPECT_EQ(EditDistance("", "abc"), 3);
  EXPECT_EQ(EditDistance("head", "heads"), 1);
  EXPECT_EQ(EditDistance("heads", "headz"), 1);
  EXPECT_EQ(EditDistance("haeds", "heads"), 1);
  EXPECT_EQ(EditDistance("kitten", "sitting"), 3);
  EXPECT_EQ(EditDistance("ab", "ba"), 1);
}

TEST(NearestName, FindsTheLikeliestCandidate) {
  EXPECT_EQ(NearestName("encoder_layer", {"decoder_layers", "encoder_layers", "heads"}), "encoder_layers");
  EXPECT_EQ(NearestName("DeepNorm", {"post_ln", "deepnorm"}), "deepnorm");
  EXPECT_EQ(NearestName("warmup", {"peak", "warmup_updates", "warmup_fraction"}), "warmup_updates");
  EXPECT_EQ(NearestName("wa", {"warmup_updates"}), "") << "two letters are too few";
  EXPECT_EQ(NearestName("banana", {"encoder_layers", "heads"}), "");
  EXPECT_EQ(NearestName("xy", {"ab"}), "") << "replacing every letter is no likeness";
  EXPECT_EQ(NearestName("heads", {}), "");
}

}  // namespace
}  // namespace hadal
