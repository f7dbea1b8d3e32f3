#include "tools/config/nearest_name.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"

namespace hadal {

int EditDistance(absl::string_view a, absl::string_view b) {
  // distance[i][j]: between the first i bytes of a and the first j of b.
  std::vector<std::vector<int>> distance(a.size() + 1, std::vector<int>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i) distance[i][0] = static_cast<int>(i);
  for (size_t j = 0; j <= b.size(); ++j) distance[0][j] = static_cast<int>(j);
  for (size_t i = 1; i <= a.size(); ++i) {
    for (size_t j = 1; j <= b.size(); ++j) {
      const int substitution = distance[i - 1][j - 1] + (a[i - 1] != b[j - 1]);
      int best = std::min({substitution, distance[i - 1][j] + 1, distance[i][j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        best = std::min(best, distance[i - 2][j - 2] + 1);
      distance[i][j] = best;
    }
  }
  return distance[a.size()][b.size()];
}

std::string NearestName(absl::string_view name, const std::vector<std::string>& candidates) {
  const std::string lower = absl::AsciiStrToLower(name);
  const int limit = std::max(2, static_cast<int>(name.size() / 3));
  int best = limit + 1;
  std::string nearest;
  for (const std::string& candidate : candidates) {
    if (lower.size() >= 2 * candidate.size()) continue;  // the distance is at least the difference of the lengths
    const int distance = EditDistance(lower, absl::AsciiStrToLower(candidate));
    // A distance as long as the word itself is no similarity.
    if (distance < best && distance < static_cast<int>(candidate.size())) {
      best = distance;
      nearest = candidate;
    }
  }
  if (!nearest.empty() || lower.size() < 3) return nearest;
  for (const std::string& candidate : candidates) {
    if (absl::StartsWith(absl::AsciiStrToLower(candidate), lower)) return candidate;
  }
  return "";
}

}  // namespace hadal
