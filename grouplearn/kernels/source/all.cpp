// One translation unit per processor: what is small is inlined everywhere.
#include "functions.cpp"
#include "processor.cpp"
