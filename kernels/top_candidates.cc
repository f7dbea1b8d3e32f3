#include "kernels/top_candidates.h"

#include "kernels/cpu/top_candidates.h"
#include "runtime/check.h"

namespace hadal {

void TopCandidates(const Stream& stream, const TopCandidatesArgs& args) {
  HADAL_CHECK_EQ(args.tokens.rows, args.logits.rows);
  HADAL_CHECK_GE(args.tokens.columns, 1);
  cpu::TopCandidates(stream, args);
}

}  // namespace hadal
