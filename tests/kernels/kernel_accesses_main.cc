// Prints kernels/cuda/accesses.md.
#include <cstdio>

#include "tests/kernels/kernel_accesses.h"

int main() { std::fputs(hadal::testing::AccessTable(hadal::testing::CountKernelAccesses()).c_str(), stdout); }
