// Draws one number of every sublayer (or layer) in several columns, usually recorded steps, as an SVG heat map. Depth
// goes upwards, with the encoder below the decoder.
//
// A cell combines a few neighbouring sublayers in one column: by their geometric mean on a logarithmic scale, else by
// their mean. The colour bar spans the lowest to the highest cell, or `range`. Columns are records, not steps, so the
// first steps are dense and later ones sparse; the axis names the steps. White: no such tensor. Red, which the scale
// does not have: a number that is not finite.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace hadal {

struct DepthHeatMap {
  std::string title;
  std::string unit;
  bool logarithmic = true;
  std::string x_label;
  int32_t encoder_sublayers = 0;            // the first ones; a line separates them from the others
  std::vector<int64_t> columns;             // [records] names of the columns, ascending
  std::vector<std::vector<float>> records;  // [records][sublayers]; NaN: no value
  // What the colours span; above 0 on a logarithmic scale. Numbers outside it, and 0, count as its nearest end.
  std::optional<std::pair<double, double>> range;
  double width = 560, height = 300;
};

// From the lowest number of all maps, above 0 on a logarithmic scale, to the highest: a range with which maps that are
// seen side by side can be compared. nullopt if there is no number.
std::optional<std::pair<double, double>> CommonRange(const std::vector<DepthHeatMap>& maps);

// REQUIRES: at least one record; all records of the same length.
std::string DrawDepthHeatMap(const DepthHeatMap& map);

}  // namespace hadal
