#include "invar/program.h"
int main(int argc, char** argv) { return invar::program(argc, argv); }
