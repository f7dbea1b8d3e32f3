// One number of every sublayer (or layer) in several columns, recorded steps mostly, as an SVG heat map: depth upwards,
// encoder below decoder.
//
// A cell stands for a few neighbouring sublayers and one column: their geometric mean on a logarithmic scale, else
// their mean. The colour bar shows the range, whose ends are the lowest and highest cell. Columns are records, not
// steps: dense first steps, thin later ones; the axis names the steps. White: no such tensor. Black: a number that is
// not finite.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hadal {

struct DepthHeatMap {
  std::string title;
  std::string unit;
  bool logarithmic = true;
  std::string x_label;
  int32_t encoder_sublayers = 0;            // the first ones; a line parts them from the others
  std::vector<int64_t> columns;             // [records] their names, ascending
  std::vector<std::vector<float>> records;  // [records][sublayers]; NaN: none
  double width = 560, height = 300;
};

// REQUIRES: at least one record; all of the same length.
std::string DrawDepthHeatMap(const DepthHeatMap& map);

}  // namespace hadal
