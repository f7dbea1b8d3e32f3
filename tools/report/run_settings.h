// The configs of runs side by side: what a report says of them, and whether runs differ in their layout only.
//
// Threads: pure.
#pragma once

#include <string>
#include <vector>

#include "tools/output/run_record.h"

namespace hadal {

// A table of the fields that a run has set to something other than their default, or in which runs differ. A row has
// the field and each run's value ("-": its config could not be read), the first row the runs' names. Empty if no config
// could be read.
std::vector<std::vector<std::string>> SettingsTable(const std::vector<RunRecord>& runs);

// What keeps two runs from being layouts of one run: the fields in which they differ outside layout, size of the batch,
// length of the run and records, at most three of them with their values, or a config that cannot be read. "": nothing.
// Values that are derived from other fields do not count: the other fields do.
std::string DifferenceBesideLayout(const RunRecord& a, const RunRecord& b);

}  // namespace hadal
