// A plug-in is a shared library whose registered parts the program takes in with `--plugin FILE`, or with
// `plugins: [FILE]` in a configuration. One of its source files says
//
//   INVAR_PLUGIN {}
//
// and between the braces may stand what is to be done when it is loaded.
#pragma once

#include "invar/core/version.h"

#define INVAR_PLUGIN                                                                            \
    extern "C" __attribute__((visibility("default"), used)) const char invar_plugin_version[] = \
        INVAR_PLUGIN_MARK INVAR_VERSION;                                                        \
    extern "C" __attribute__((visibility("default"))) void invar_plugin_start()
