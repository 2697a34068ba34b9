//! Numbers and text, clock, randomness, hashing: what every room needs and none owns.

pub mod clock;
pub mod hash;
pub mod number;
pub mod random;
