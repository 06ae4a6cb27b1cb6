// The whole program `invar`, with the models, data sets and tasks that the executable registers beside its own:
//
//   #include "invar/program.h"
//   int main(int argc, char** argv) { return invar::program(argc, argv); }
#pragma once

namespace invar {

// Every command. Call it first thing in main(), before anything is opened or threads are started. Returns the exit
// code.
int program(int argc, char** argv);

}  // namespace invar
