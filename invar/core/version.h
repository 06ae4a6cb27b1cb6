// The version of this library. The build takes it from here.
#pragma once

#define INVAR_VERSION "0.1.0"

// What stands before the version in a plug-in, so that it can be found there before any of its code runs.
#define INVAR_PLUGIN_MARK "invar plug-in for version "
