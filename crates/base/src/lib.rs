//! Numbers and text, clock, randomness, hashing: what every room needs and none owns.
