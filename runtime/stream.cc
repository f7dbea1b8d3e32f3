#include "runtime/stream.h"

#include <omp.h>

namespace hadal {

void UseSerialLibraries() { omp_set_num_threads(1); }

}  // namespace hadal
