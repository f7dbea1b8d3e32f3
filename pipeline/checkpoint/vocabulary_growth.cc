#include "pipeline/checkpoint/vocabulary_growth.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "layers/initialization.h"
#include "runtime/crc32c.h"
#include "runtime/data/language_tags.h"
#include "runtime/data/packed_batch.h"
#include "runtime/files.h"
#include "runtime/run_directory.h"
#include "runtime/status_macros.h"
#include "runtime/stream.h"
#include "runtime/text.h"

namespace hadal {
namespace {

// The id in `now` of what `id` means in `before`; -1: it lacks that.
int32_t IdOfToken(const Vocabulary& before, int32_t id, const Vocabulary& now) {
  const std::string& token = before.Token(id);
  const bool has_id = id < now.size();
  if (has_id && now.Token(id) == token) return id;
  if (const int32_t found = now.Id(token); found >= kSpecialTokens) return found;
  const bool taken =
      has_id && IsReservedTag(token) && IsLanguageTag(now.Token(id)) && before.Id(now.Token(id)) == kUnknownToken;
  return taken ? id : -1;
}

bool IsOf(const std::string& file, const std::string& stem) { return absl::StartsWith(file, absl::StrCat(stem, ".")); }

absl::StatusOr<std::vector<int32_t>> RowsOfSide(CheckpointReader& checkpoint, const std::string& stem,
                                                std::span<const Attachment> vocabularies) {
  const AttachedFile* const file = VocabularyFile(checkpoint.manifest(), stem);
  const auto now = std::ranges::find_if(vocabularies, [&](const Attachment& attachment) {
    return IsOf(attachment.name, stem) || IsOf(attachment.name, kSharedVocabulary) || IsOf(attachment.name, kTokenizer);
  });
  if (file == nullptr || now == vocabularies.end()) return std::vector<int32_t>();
  if (file->crc32c == Crc32c(now->contents.data(), now->contents.size())) return std::vector<int32_t>();
  HADAL_ASSIGN_OR_RETURN(std::string contents, checkpoint.ReadAttachment(file->name));
  HADAL_ASSIGN_OR_RETURN(const Vocabulary before,
                         Vocabulary::Parse(std::move(contents), JoinPath(checkpoint.directory(), file->name)));
  HADAL_ASSIGN_OR_RETURN(const Vocabulary model, Vocabulary::Parse(now->contents, now->name));
  return IdsOfTokens(before, model);
}

// A table of the checkpoint, and where the model's rows come from.
struct OldTable {
  std::vector<float> values;  // [rows of the checkpoint, columns]
  std::vector<float> mean;    // [columns]
  std::vector<int32_t> from;  // [rows of the model] row of the checkpoint; -1: new
  int64_t columns = 1;
};

absl::StatusOr<OldTable> ReadTable(CheckpointReader& checkpoint, int32_t p, std::span<const int32_t> ids,
                                   int64_t model_rows) {
  const CheckpointParameter& parameter = checkpoint.manifest().parameters[p];
  const int64_t columns = parameter.columns;
  OldTable table{.values = std::vector<float>(static_cast<size_t>(parameter.elements())),
                 .mean = {},
                 .from = std::vector<int32_t>(static_cast<size_t>(model_rows), -1),
                 .columns = columns};
  std::vector<SliceState> slices;
  for (int64_t slice = 0; slice < parameter.slices(); ++slice) {
    slices.push_back({.parameter = p,
                      .slice = slice,
                      .weight = {table.values.data() + slice * kSliceElements, parameter.slice_elements(slice)}});
  }
  HADAL_RETURN_IF_ERROR(checkpoint.ReadSlices(slices));
  std::vector<double> sum(static_cast<size_t>(columns));
  for (int64_t row = 0; row < parameter.rows; ++row) {
    table.from[ids[row]] = static_cast<int32_t>(row);
    if (row < kSpecialTokens) continue;
    for (int64_t c = 0; c < columns; ++c) sum[c] += table.values[row * columns + c];
  }
  const auto count = static_cast<double>(std::max<int64_t>(parameter.rows - kSpecialTokens, 1));
  for (const double value : sum) table.mean.push_back(static_cast<float>(value / count));
  return table;
}

bool HasRowPerToken(ParameterRole role) {
  return role == ParameterRole::kEmbedding || role == ParameterRole::kLogitBias;
}

}  // namespace

const AttachedFile* VocabularyFile(const CheckpointManifest& manifest, const std::string& stem) {
  for (const std::string& name : {stem, std::string(kSharedVocabulary), std::string(kTokenizer)}) {
    const auto found =
        std::ranges::find_if(manifest.attachments, [&](const AttachedFile& file) { return IsOf(file.name, name); });
    if (found != manifest.attachments.end()) return &*found;
  }
  return nullptr;
}

absl::StatusOr<std::vector<int32_t>> IdsOfTokens(const Vocabulary& before, const Vocabulary& now) {
  constexpr int kMostNames = 5;
  std::vector<int32_t> ids;
  std::vector<bool> taken(static_cast<size_t>(now.size()));
  std::string missing;
  int count = 0;
  bool same = before.size() == now.size();
  for (int32_t id = 0; id < before.size(); ++id) {
    const int32_t to = IdOfToken(before, id, now);
    ids.push_back(to);
    same &= to == id;
    if (to >= 0 && !taken[to]) {
      taken[to] = true;
    } else if (++count <= kMostNames) {
      absl::StrAppend(&missing, count > 1 ? ", " : "", "\"", Printable(before.Token(id)), "\"");
    }
  }
  if (count > 0) {
    return InvalidArgumentError("the corpus's vocabulary lacks ", count, " of the ", before.size(),
                                " tokens of the checkpoint's: ", missing, count > kMostNames ? ", …" : "");
  }
  return same ? std::vector<int32_t>() : ids;
}

std::span<const int32_t> TokenRows::Of(const ModelPlan& plan, int32_t parameter) const {
  const ParameterRecord& record = plan.parameters[parameter];
  if (!HasRowPerToken(record.role)) return {};
  return plan.sublayers[record.sublayer].kind == SublayerKind::kSourceEmbedding ? source : target;
}

absl::StatusOr<TokenRows> FindTokenRows(CheckpointReader& checkpoint, std::span<const Attachment> vocabularies) {
  TokenRows rows;
  HADAL_ASSIGN_OR_RETURN(rows.source, RowsOfSide(checkpoint, kSourceVocabulary, vocabularies));
  HADAL_ASSIGN_OR_RETURN(rows.target, RowsOfSide(checkpoint, kTargetVocabulary, vocabularies));
  return rows;
}

absl::Status CompareBesideRows(const std::vector<CheckpointParameter>& checkpoint, const ModelPlan& model,
                               const TokenRows* rows) {
  std::vector<CheckpointParameter> expected = DescribeParameters(model);
  for (size_t p = 0; p < expected.size() && p < checkpoint.size(); ++p) {
    if (rows == nullptr && HasRowPerToken(model.parameters[p].role)) expected[p].rows = checkpoint[p].rows;
    if (rows == nullptr) continue;
    const std::span<const int32_t> ids = rows->Of(model, static_cast<int32_t>(p));
    if (!ids.empty()) expected[p].rows = static_cast<int64_t>(ids.size());
  }
  return CompareParameters(checkpoint, expected);
}

absl::Status ReadRowsByToken(CheckpointReader& checkpoint, const ModelPlan& model, const TokenRows& rows,
                             NewRows new_rows, uint64_t seed, std::span<const SliceState> slices, Device* device) {
  if (model.options.adaptive()) {
    return FailedPreconditionError(checkpoint.directory(),
                                   " has another vocabulary, and with model.adaptive_cutoffs ids are bands of the "
                                   "softmax; prepare the corpus with the checkpoint's vocabulary");
  }
  OldTable table;
  int32_t read = -1;  // the parameter that `table` is of
  std::vector<float> values;
  for (const SliceState& slice : slices) {
    const std::span<const int32_t> ids = rows.Of(model, slice.parameter);
    if (ids.empty() || slice.weight.empty()) continue;
    if (std::exchange(read, slice.parameter) != slice.parameter) {
      HADAL_ASSIGN_OR_RETURN(table, ReadTable(checkpoint, read, ids, model.parameters[slice.parameter].rows));
    }
    values.resize(static_cast<size_t>(slice.weight.size));
    if (new_rows == NewRows::kDraw) {
      InitializeSlice(Stream::Cpu(1), model, seed, slice.parameter, slice.slice, {values.data(), slice.weight.size});
    }
    for (int64_t i = 0; i < slice.weight.size; ++i) {
      const int64_t element = slice.slice * kSliceElements + i, column = element % table.columns;
      const int32_t from = table.from[element / table.columns];
      if (from >= 0) {
        values[i] = table.values[from * table.columns + column];
      } else if (new_rows == NewRows::kMean) {
        values[i] = table.mean[column];
      }
    }
    const int64_t bytes = slice.weight.size * int64_t{sizeof(float)};
    device != nullptr ? device->CopyIn(slice.weight.data, values.data(), bytes)
                      : static_cast<void>(std::ranges::copy(values, slice.weight.data));
  }
  return absl::OkStatus();
}

}  // namespace hadal
