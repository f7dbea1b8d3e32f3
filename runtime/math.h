// Elementary functions for numbers that training and decoding depend on: the same bits with every compiler and C
// library on every x86-64 CPU. The C library's own functions pick a variant for the CPU and change between versions.
//
// Method: argument reduction and a Taylor polynomial in long double (64 significant bits on x86-64), with additions,
// multiplications and divisions only, which IEEE 754 rounds in one way; then one rounding to double.
// Error: below 0.51 ulp of double; Pow below 0.8. NaN gives NaN. About 100 ns a call: not for elements of matrices
// (kernels/cpu/exp-inl.h).
// Square roots are exact in the C library: use std::sqrt.
#pragma once

namespace hadal {

// e^x; 0 below -745.14, infinity above 709.79.
double Exp(double x);

// The natural logarithm; -infinity for 0, NaN for x < 0.
double Log(double x);

// base^exponent. Pow(x, 0) = 1; Pow(0, y) = 0 for y > 0, infinity for y < 0. REQUIRES: base ≥ 0.
double Pow(double base, double exponent);

// Of x in radians; NaN for infinity. REQUIRES: |x| < 2^31.
double Sin(double x);
double Cos(double x);

}  // namespace hadal
