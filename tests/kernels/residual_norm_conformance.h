// What the residual connection must do, forward and backward: one text for the CPU in each instruction set and for
// CUDA's kernels in each pair of stored types. A backend's test says how it runs a case, and adds what only it has.
#pragma once

#include <functional>
#include <ostream>
#include <span>

#include "gtest/gtest.h"
#include "kernels/residual_norm.h"
#include "runtime/random.h"
#include "tests/support/backend.h"
#include "tests/support/residual_norm_reference.h"

namespace hadal::testing {

// Which optional arguments a case gives.
struct ResidualNormFields {
  bool branch = true, bias = false, skip = false, dropout = false, norm = true, d_sum = false;
  bool learned_residual = false, learned_branch = false, norm_gain = false;
  bool second = false, second_starts = false;  // a second stream goes on, or starts here
  bool rms = false, shift = true;              // RMSNorm; whether the norm has a shift
};
// One of each kind that a method uses.
std::span<const ResidualNormFields> ResidualNormCombinations();

struct ResidualNormCase {
  static constexpr float kResidualGain = 1.75f, kBranchGain = 0.625f, kSkipGain = 0.75f, kNormGain = 0.375f,
                         kSecondGain = 0.3125f, kRmsEpsilon = 1e-3f;

  NormForm form() const { return fields.rms ? NormForm{.centred = false, .epsilon = kRmsEpsilon} : NormForm(); }

  int64_t rows = 0, width = 0;
  ResidualNormFields fields;
  Dropout dropout;
  // Every one has values; a backend passes those that `fields` gives.
  std::vector<float> residual, branch, skip, d_normed, d_sum;  // [rows, width]
  std::vector<float> bias, scale, shift, learned_residual;     // [width]
  std::vector<float> learned_branch;                           // [1]
  std::vector<float> second, d_second;                         // [rows, width]
};
std::ostream& operator<<(std::ostream& out, const ResidualNormCase& c);
// The case in doubles, without what its fields leave out.
ResidualNormReference ReferenceOf(const ResidualNormCase& c);
// The gradients that arrive, likewise.
std::vector<double> ReferenceDNormed(const ResidualNormCase& c);
std::vector<double> ReferenceDSum(const ResidualNormCase& c);
std::vector<double> ReferenceDSecond(const ResidualNormCase& c);

// Dense; what a case does not give is empty.
struct ResidualNormForwardResult {
  std::vector<float> sum, normed, mean, rstd, second;
};
// What a kernel adds to starts from the forward's input of the same shape.
struct ResidualNormBackwardResult {
  std::vector<float> d_residual, d_branch, d_skip, d_bias, d_scale, d_shift, d_learned_residual, d_learned_branch;
};

// Where the forward's sum and the backward's d_residual lie. A second stream lies over itself except with kOwn.
enum class SumPlace { kOwn, kLeftOut, kOverResidual, kOverBranch };
enum class ResidualGradientPlace { kOwn, kOverDNormed, kOverDSum };

struct ResidualNormBackend {
  using Forward = ResidualNormForwardResult(const ResidualNormCase& c, int variation, SumPlace place);
  using Backward = ResidualNormBackwardResult(const ResidualNormCase& c, const ResidualNormForwardResult& forward,
                                              int variation, ResidualGradientPlace place);
  std::string name;
  // A case's results have the same bits for every `variation` below `variations`: an alignment, a number of threads, an
  // order of theirs. At least 3.
  std::function<Forward> run_forward;
  std::function<Backward> run_backward;
  int variations;
  // What it holds of a float in the residual stream and in what touches products (kernels/residual_norm.h, Storage).
  float (*stored_residual)(float x);
  float (*stored_product)(float x);
  // The most that storing costs, in units of 2^-24 of the value; 0: nothing beyond fp32.
  double residual_roundoff = 0, product_roundoff = 0;

  // Only then can a matrix of one kind lie over one of the other.
  bool one_stored_type() const { return stored_residual == stored_product; }
};

// A case of values that the backend holds exactly, so that the reference starts from the same numbers.
ResidualNormCase MakeResidualNormCase(const ResidualNormBackend& backend, int64_t rows, int64_t width,
                                      const ResidualNormFields& fields);

class ResidualNormConformance : public ::testing::TestWithParam<ResidualNormBackend> {
 protected:
  static ResidualNormCase MakeCase(int64_t rows, int64_t width, const ResidualNormFields& fields) {
    return MakeResidualNormCase(GetParam(), rows, width, fields);
  }
  static ResidualNormForwardResult Forward(const ResidualNormCase& c, int variation = 0,
                                           SumPlace place = SumPlace::kOwn) {
    return GetParam().run_forward(c, variation, place);
  }
  static ResidualNormBackwardResult Backward(const ResidualNormCase& c, const ResidualNormForwardResult& forward,
                                             int variation = 0,
                                             ResidualGradientPlace place = ResidualGradientPlace::kOwn) {
    return GetParam().run_backward(c, forward, variation, place);
  }
  static void ExpectSameBitsEveryWay(const ResidualNormCase& c);
};

}  // namespace hadal::testing
