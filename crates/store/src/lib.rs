//! The shared keyspace behind five operations: index, records, expiry, eviction.
