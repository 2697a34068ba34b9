//! Values above 16 KiB.
