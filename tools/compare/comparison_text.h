// Formats the texts and table rows that are common to the Markdown and HTML reports of a comparison.
//
// Thread safety: pure.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "tools/compare/comparison_report.h"
#include "tools/drawing/table_cell.h"

namespace hadal {

struct InstrumentColumn {
  const char* name;   // in JSON
  const char* title;  // in tables
  std::optional<double> CellInstruments::*value;
};
inline constexpr InstrumentColumn kInstrumentColumns[] = {
    {"early_model_update", "‖ΔF‖ after 10 updates", &CellInstruments::early_model_update},
    {"model_update", "‖ΔF‖ at the end", &CellInstruments::model_update},
    {"gradient_ratio_encoder", "encoder gradient, bottom/top", &CellInstruments::gradient_ratio_encoder},
    {"gradient_ratio_decoder", "decoder gradient, bottom/top", &CellInstruments::gradient_ratio_decoder},
    {"norm_gradient_ratio", "gradient before/after a norm", &CellInstruments::norm_gradient_ratio},
    {"similarity", "similarity", &CellInstruments::similarity},
    {"active", "active", &CellInstruments::active},
};

// The rule of the verdicts, with the unigram level if all cells have the same.
std::string RuleText(const ComparisonReport& report);
// Explains the instruments' columns.
std::string InstrumentNote();

std::vector<std::string> PanelHeader(const ComparisonReport& report, const ComparisonPanel& panel);
// A row of a panel's table, its label first.
std::vector<TableCell> PanelRow(const ComparisonPanel& panel, size_t row);
std::vector<std::string> RunHeader();
std::vector<std::string> RunCells(const ComparedCell& cell);
std::vector<std::string> InstrumentHeader();
std::vector<std::string> InstrumentCells(const ComparedCell& cell);

// All cells in the order of the tables: panel by panel, column by column.
std::vector<const ComparedCell*> InTableOrder(const std::vector<ComparisonPanel>& panels);

}  // namespace hadal
