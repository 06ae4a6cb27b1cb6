#include "invar/plugin.h"
INVAR_PLUGIN {}
