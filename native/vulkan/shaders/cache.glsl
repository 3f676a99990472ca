// Rows of a cache: floats, halves, or bytes with their scale and zero behind them.
layout(constant_id = 0) const uint KIND = 0;
const uint FLOATS = 0, HALVES = 1, BYTES = 2;

uint row_words(uint dim) { return KIND == FLOATS ? dim : KIND == HALVES ? dim / 2 : dim / 4 + 2; }

// Of a token that is not written, because another one is at its place.
const uint NO_PAGE = 0xFFFFFFFFu;
