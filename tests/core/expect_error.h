// EXPECT_ERROR: a statement throws exactly this kind of error, and its text says what it should.
// The text matters as much as the type: it is all a user gets to see.
#pragma once

#include <gtest/gtest.h>

#include <string>

#define EXPECT_ERROR(statement, Kind, fragment)                                                                       \
    try {                                                                                                             \
        statement;                                                                                                    \
        ADD_FAILURE() << #statement << " threw nothing";                                                              \
    } catch (const Kind& error) {                                                                                     \
        EXPECT_NE(std::string(error.what()).find(fragment), std::string::npos) << "the error says: " << error.what(); \
        EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << "more than one line";                   \
    }
