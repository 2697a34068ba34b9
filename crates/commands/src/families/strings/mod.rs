//! Strings: bytes or a number at a key.
//!
//! ```text
//!   read     GET MGET STRLEN GETRANGE SUBSTR        change   APPEND SETRANGE
//!   set      SET SETNX SETEX PSETEX GETSET          counter  INCR INCRBY DECR DECRBY
//!   many     MSET MSETNX MSETEX                     float    INCRBYFLOAT
//!   taking   GETDEL GETEX DELIFEQ                   lcs      LCS
//!   expiry   EX PX EXAT PXAT
//! ```
//!
//! # Effects
//! A write states one of few canonical commands, which replayed in order give the same values,
//! deadlines and encodings:
//!
//! - `SET key value [PXAT ms | KEEPTTL]` for whatever wrote a whole value, numbers included: the
//!   result of an addition, unlike its summand, may be applied twice;
//! - `APPEND` and `SETRANGE` as they came: the value may be large, what was added is not;
//! - `DEL`, `PEXPIREAT key ms` and `PERSIST` for what changed no value;
//! - `INCRBYFLOAT key 0` behind a `SET` of text that spells a whole number, which `SET` alone would
//!   keep as one.
//!
//! A command that changed nothing states nothing.

use engine::spec::CommandSpec;

mod change;
mod counter;
pub(super) mod expiry;
mod float;
mod lcs;
mod many;
mod read;
mod set;
pub(super) mod shared;
mod taking;

#[cfg(test)]
mod effect_tests;

/// The rows of this family.
pub const COMMANDS: &[CommandSpec] = &[
    read::GET,
    set::SET,
    set::SETNX,
    set::SETEX,
    set::PSETEX,
    many::MSET,
    many::MSETNX,
    many::MSETEX,
    read::MGET,
    set::GETSET,
    taking::GETDEL,
    taking::GETEX,
    taking::DELIFEQ,
    change::APPEND,
    read::STRLEN,
    read::GETRANGE,
    read::SUBSTR,
    change::SETRANGE,
    counter::INCR,
    counter::INCRBY,
    float::INCRBYFLOAT,
    counter::DECR,
    counter::DECRBY,
    lcs::LCS,
];
