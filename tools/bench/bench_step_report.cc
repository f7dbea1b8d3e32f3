#include "tools/bench/bench_step_report.h"

#include <algorithm>

#include "runtime/check.h"
#include "tools/median.h"

namespace hadal {

FastestLimit FastestLimitOf(const BenchStepMeasurement& measured) {
  HADAL_CHECK(!measured.ways.empty());
  FastestLimit limit;
  for (size_t way = 0; way < measured.ways.size(); ++way) {
    const double seconds = Median(measured.limit_seconds[way]);
    if (way > 0 && seconds >= limit.seconds) continue;
    limit.way = way;
    limit.seconds = seconds;
  }
  limit.attention_seconds = Median(measured.limit_attention_seconds[limit.way]);
  const std::vector<double>& seconds = measured.limit_seconds[limit.way];
  for (size_t i = 0; i < seconds.size(); ++i) limit.shares.push_back(seconds[i] / measured.step_seconds[i]);
  std::sort(limit.shares.begin(), limit.shares.end());
  return limit;
}

}  // namespace hadal
