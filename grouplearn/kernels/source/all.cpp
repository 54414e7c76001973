// One translation unit per processor: what is small is inlined everywhere.
#include "algebra.cpp"
#include "functions.cpp"
#include "generalised_linear.cpp"
#include "generalised_linear_sums.cpp"
#include "least_squares.cpp"
#include "moments.cpp"
#include "networks.cpp"
#include "processor.cpp"
