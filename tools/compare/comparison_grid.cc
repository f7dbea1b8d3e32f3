#include "tools/compare/comparison_grid.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "runtime/files.h"
#include "runtime/status_macros.h"
#include "tools/config/config_loading.h"
#include "tools/config/config_origin.h"
#include "tools/config/run_options.h"
#include "tools/output/work_progress.h"

namespace hadal {
namespace {

// The labels of one exclusion on each axis; empty: any.
using Exclusion = std::vector<std::set<int>>;

absl::Status CheckName(absl::string_view name, absl::string_view what, std::set<std::string>& seen) {
  const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return absl::ascii_isalnum(static_cast<unsigned char>(c)) || absl::StrContains("._+-", absl::string_view(&c, 1));
  });
  if (!plain) {
    return absl::InvalidArgumentError(
        absl::StrCat(what, " \"", name, "\": a name may have only letters, digits and \".\", \"_\", \"+\", \"-\""));
  }
  if (!seen.insert(std::string(name)).second) {
    return absl::InvalidArgumentError(absl::StrCat(what, " \"", name, "\" is given twice"));
  }
  return absl::OkStatus();
}

// Whether a value sets the seed and nothing else.
bool SetsSeed(const config::AxisValue& value) {
  return value.files().empty() && value.set_size() == 1 && absl::StartsWith(value.set(0), "seed=");
}

absl::StatusOr<std::vector<GridAxis>> NameAxes(const config::Comparison& settings) {
  std::vector<GridAxis> axes;
  std::set<std::string> names;
  for (const config::Axis& axis : settings.axes()) {
    HADAL_RETURN_IF_ERROR(CheckName(axis.name(), "axis", names));
    if (axis.values().empty()) {
      return absl::InvalidArgumentError(absl::StrCat("axis \"", axis.name(), "\" has no values"));
    }
    axes.push_back(
        {.name = axis.name(), .is_seeds = std::all_of(axis.values().begin(), axis.values().end(), SetsSeed)});
    std::set<std::string> labels;
    for (const config::AxisValue& value : axis.values()) {
      HADAL_RETURN_IF_ERROR(CheckName(value.label(), absl::StrCat("axis \"", axis.name(), "\": label"), labels));
      axes.back().labels.push_back(value.label());
    }
  }
  return axes;
}

// Adds the labels of one "axis=label|label" to `exclusion`.
absl::Status ParseExcluded(absl::string_view part, const std::vector<GridAxis>& axes, Exclusion& exclusion) {
  const std::pair<absl::string_view, absl::string_view> sides = absl::StrSplit(part, absl::MaxSplits('=', 1));
  const auto axis = std::find_if(axes.begin(), axes.end(), [&](const GridAxis& a) { return a.name == sides.first; });
  if (axis == axes.end()) {
    std::vector<std::string> names;
    names.reserve(axes.size());
    for (const GridAxis& known : axes) names.push_back(known.name);
    return absl::InvalidArgumentError(
        absl::StrCat("there is no axis \"", sides.first, "\"; the axes are ", absl::StrJoin(names, ", ")));
  }
  for (absl::string_view label : absl::StrSplit(sides.second, '|')) {
    const auto found = std::find(axis->labels.begin(), axis->labels.end(), label);
    if (found == axis->labels.end()) {
      return absl::InvalidArgumentError(absl::StrCat("axis \"", axis->name, "\" has no label \"", label, "\"; it has ",
                                                     absl::StrJoin(axis->labels, ", ")));
    }
    exclusion[axis - axes.begin()].insert(static_cast<int>(found - axis->labels.begin()));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Exclusion>> ParseExclusions(const config::Comparison& settings,
                                                       const std::vector<GridAxis>& axes) {
  std::vector<Exclusion> exclusions;
  for (const std::string& text : settings.exclude()) {
    exclusions.emplace_back(axes.size());
    for (absl::string_view part : absl::StrSplit(text, ',')) {
      const absl::Status status = ParseExcluded(part, axes, exclusions.back());
      if (!status.ok()) {
        return absl::InvalidArgumentError(absl::StrCat("exclude \"", text, "\": ", status.message()));
      }
    }
  }
  return exclusions;
}

bool IsExcluded(const std::vector<int>& place, const std::vector<Exclusion>& exclusions) {
  return std::any_of(exclusions.begin(), exclusions.end(), [&](const Exclusion& exclusion) {
    for (size_t axis = 0; axis < place.size(); ++axis) {
      if (!exclusion[axis].empty() && exclusion[axis].count(place[axis]) == 0) return false;
    }
    return true;
  });
}

// Advances to the next place in the written order, the last axis fastest; false after the last one.
bool Advance(const std::vector<GridAxis>& axes, std::vector<int>& place) {
  for (size_t axis = axes.size(); axis-- > 0;) {
    if (++place[axis] < static_cast<int>(axes[axis].labels.size())) return true;
    place[axis] = 0;
  }
  return false;
}

// The cells with those that are excluded.
absl::StatusOr<int64_t> Places(const std::vector<GridAxis>& axes) {
  constexpr int64_t kMostPlaces = 100'000;  // some five seconds to read their configs
  int64_t places = 1;
  for (const GridAxis& axis : axes) {
    places *= std::ssize(axis.labels);
    if (places <= kMostPlaces) continue;
    return absl::InvalidArgumentError(absl::StrCat("the grid has more than ", kMostPlaces,
                                                   " cells, with the axes up to \"", axis.name,
                                                   "\" alone; split it, or give its axes fewer values"));
  }
  return places;
}

absl::StatusOr<GridCell> MakeCell(const config::Comparison& settings, const std::vector<GridAxis>& axes,
                                  const std::vector<int>& place, const std::string& folder,
                                  const std::vector<std::string>& overrides) {
  GridCell cell{.place = place};
  const auto add_files = [&](const auto& files) {
    for (const std::string& file : files) {
      cell.files.push_back(absl::StartsWith(file, "/") ? file : JoinPath(folder, file));
    }
  };
  const auto add_settings = [&](const auto& set) {
    cell.overrides.insert(cell.overrides.end(), set.begin(), set.end());
  };
  add_files(settings.base());
  add_settings(settings.set());
  for (size_t axis = 0; axis < axes.size(); ++axis) {
    const config::AxisValue& value = settings.axes(static_cast<int>(axis)).values(place[axis]);
    absl::StrAppend(&cell.name, cell.name.empty() ? "" : ",", axes[axis].name, "=", value.label());
    add_files(value.files());
    add_settings(value.set());
  }
  add_settings(overrides);
  absl::StatusOr<config::RunConfig> config = LoadConfig(cell.files, cell.overrides);
  absl::Status status = config.status();
  if (status.ok()) status = MakeRunOptions(*config).status();
  if (status.ok()) status = CheckFieldsWithEffect(*config);
  if (config.ok()) status = WithOrigins(status, cell.files, cell.overrides);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat(cell.name, ": ", status.message()));
  cell.config = *std::move(config);
  cell.cost = CellCost(cell.config);
  return cell;
}

absl::StatusOr<ComparisonGrid> Unroll(const config::Comparison& settings, const std::string& folder,
                                      const std::vector<std::string>& overrides) {
  ComparisonGrid grid{.settings = settings};
  HADAL_ASSIGN_OR_RETURN(grid.axes, NameAxes(settings));
  HADAL_ASSIGN_OR_RETURN(const std::vector<Exclusion> exclusions, ParseExclusions(settings, grid.axes));
  if (grid.axes.empty())
    return absl::InvalidArgumentError(
        "the grid has no axes; add what to compare, as in  axes { name: \"depth\" values { label: \"6\" set: "
        "\"model.encoder_layers=6\" } }  (configs/papers/laptop has examples)");
  HADAL_ASSIGN_OR_RETURN(const int64_t places, Places(grid.axes));
  WorkProgress progress("reading the grid's configs", "cells", places);
  std::vector<int> place(grid.axes.size(), 0);
  do {
    progress.Advance(1);
    if (IsExcluded(place, exclusions)) continue;
    HADAL_ASSIGN_OR_RETURN(GridCell cell, MakeCell(settings, grid.axes, place, folder, overrides));
    grid.cells.push_back(std::move(cell));
  } while (Advance(grid.axes, place));
  if (grid.cells.empty()) return absl::InvalidArgumentError("every cell of the grid is excluded");
  std::stable_sort(grid.cells.begin(), grid.cells.end(),
                   [](const GridCell& a, const GridCell& b) { return a.cost < b.cost; });
  return grid;
}

}  // namespace

double CellCost(const config::RunConfig& config) {
  const config::Model& model = config.model();
  const double d = model.d_model(), f = model.d_ff();
  const double heads = model.heads(), kv = model.block().kv_heads() > 0 ? model.block().kv_heads() : heads;
  const double head_width = model.block().head_width() > 0 ? model.block().head_width() : d / heads;
  const double gate = model.block().attention_gate() ? d * head_width * heads : 0;  // self-attention alone
  const double attention = 2 * d * head_width * (heads + kv), feed_forward = (model.block().gated() ? 3 : 2) * d * f;
  const bool cross = model.encoder_layers() > 0;
  const double weights = model.encoder_layers() * (attention + gate + feed_forward) +
                         model.decoder_layers() * ((cross ? 2 : 1) * attention + gate + feed_forward);
  const double tokens = static_cast<double>(config.batch().micro_batches()) * config.batch().target_tokens();
  return 3 * weights * tokens * static_cast<double>(std::max<int64_t>(1, config.stop().steps()));
}

absl::StatusOr<ComparisonGrid> LoadGrid(const std::string& file, const std::vector<std::string>& overrides,
                                        const std::vector<uint64_t>& seeds) {
  config::Comparison settings;
  HADAL_RETURN_IF_ERROR(LoadMessage(file, settings));
  if (!seeds.empty()) {
    config::Axis& axis = *settings.add_axes();
    axis.set_name("seed");
    for (const uint64_t seed : seeds) {
      config::AxisValue& value = *axis.add_values();
      value.set_label(absl::StrCat(seed));
      value.add_set(absl::StrCat("seed=", seed));
    }
  }
  absl::StatusOr<ComparisonGrid> grid = Unroll(settings, DirectoryName(file), overrides);
  if (!grid.ok()) return absl::Status(grid.status().code(), absl::StrCat(file, ": ", grid.status().message()));
  return grid;
}

}  // namespace hadal
